//! What a run proves itself with.

mod jwt;
mod keyring;
mod provider;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::{Error, random};

pub(crate) use jwt::{AUDIENCE, Claims};
pub(crate) use keyring::Keyring;

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
    /// A new alias: 256 random bits.
    pub(crate) fn new() -> Result<Self, Error> {
        let bits = Zeroizing::new(random::bytes::<32>()?);
        let mut text = Zeroizing::new(String::with_capacity(ALIAS_PREFIX.len() + 43));
        text.push_str(ALIAS_PREFIX);
        URL_SAFE_NO_PAD.encode_string(&bits[..], &mut text);
        Ok(Self(text))
    }

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

/// What every alias begins with.
pub(crate) const ALIAS_PREFIX: &str = "vkr_";

/// No token of ours is longer; anything longer is refused before it is looked at.
pub(crate) const MAX_TOKEN: usize = 4096;
