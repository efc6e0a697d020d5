//! What can go wrong in the broker, ordered by who has to act.

use std::io;
use std::path::PathBuf;

/// What can go wrong in the broker. No variant holds anything of a secret's value or of a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes")]
    NoEntropy,
    /// A thread could not be started.
    #[error("a thread could not be started")]
    Thread(#[source] io::Error),
    /// A segment of the audit log could not be made.
    #[error("a segment of the audit log cannot be made")]
    AuditSegment(#[source] io::Error),
    /// The log cannot be written, so nothing may happen.
    #[error("the audit log cannot be written")]
    AuditUnavailable(#[from] crate::AuditUnavailable),
    /// A certificate could not be made.
    #[error("a certificate cannot be made")]
    Certificate(#[source] rcgen::Error),
    /// The clock shows an impossible time.
    #[error("the clock shows an impossible time")]
    Clock(#[source] jiff::Error),
    /// A bug: the patterns of a tripwire do not fit.
    #[error("the tripwire cannot be built")]
    Tripwire(#[source] aho_corasick::BuildError),
    /// A folder or file of the state cannot be used.
    #[error("`{}` cannot be used", path.display())]
    State {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The state was written by a newer version.
    #[error("the state folder was written by a newer version of Valetkey")]
    StateTooNew,
    /// Something sealed does not open: the folder's key is another one, or the state was changed.
    #[error("what is sealed in the state folder does not open with its key")]
    SealBroken,
    /// A signing key was retired while it was about to be used.
    #[error("the signing key was retired meanwhile")]
    KeyRetired,
    /// The database of the state cannot be used.
    #[error("the state's database cannot be used")]
    Store(#[source] rusqlite::Error),
}
