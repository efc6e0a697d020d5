//! What a run proves itself with.

use zeroize::Zeroizing;

/// A run token: a signed JWT that names the run. It is shown once and has no `Debug`.
pub struct RunToken(pub(crate) Zeroizing<String>);

impl RunToken {
    /// The token itself, for the run and nobody else.
    pub fn danger_expose(&self) -> &str {
        &self.0
    }
}

/// A short stand-in for a run token, for programs that check a key's shape or length. It has no `Debug`.
pub struct Alias(pub(crate) Zeroizing<String>);

impl Alias {
    /// The alias itself, for the run and nobody else.
    pub fn danger_expose(&self) -> &str {
        &self.0
    }
}

/// Why a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is malformed, not signed by this broker, or for something else.
    #[error("the run token is not valid")]
    Invalid,
    /// Its time is over.
    #[error("the run token has expired")]
    Expired,
    /// Its run has ended.
    #[error("the run has ended")]
    Ended,
}
