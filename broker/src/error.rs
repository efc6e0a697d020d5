//! What can go wrong in the broker, ordered by who has to act.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use policies::{Diagnostic, Digest};

/// What can go wrong in the broker. No variant holds anything of a secret's value or of a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The owner has not approved this policy for this project.
    #[error("the policy `{digest}` is not approved for `{}`", project.display())]
    NotApproved {
        /// The project's folder.
        project: PathBuf,
        /// The digest of the policy.
        digest: Digest,
    },
    /// The policy uses a secret that the owner does not have.
    #[error("rule {rule} uses secret `{secret}`, which the owner does not have")]
    UnknownSecret {
        /// The secret.
        secret: String,
        /// Where the rule is.
        rule: String,
    },
    /// The policy uses a secret for one provider, and the owner has it for another one.
    #[error("rule {rule} uses secret `{secret}` for `{wanted}`, but it is for `{bound}`")]
    ProviderMismatch {
        /// The secret.
        secret: String,
        /// Where the rule is.
        rule: String,
        /// The provider of the rule.
        wanted: String,
        /// The provider of the owner's binding.
        bound: String,
    },
    /// The policy would send a secret to where the owner does not let it go.
    #[error(
        "rule {rule} uses secret `{secret}` for `{destination}`, where its owner does not let it go"
    )]
    OutsideBinding {
        /// The secret.
        secret: String,
        /// Where the rule is.
        rule: String,
        /// Where it would go.
        destination: String,
    },
    /// The owner keeps a secret for other projects.
    #[error("rule {rule} uses secret `{secret}`, which is not for the project `{}`", project.display())]
    NotForProject {
        /// The secret.
        secret: String,
        /// Where the rule is.
        rule: String,
        /// The project's folder.
        project: PathBuf,
    },
    /// Two secrets of one run would be read from the same environment variable.
    #[error("secrets `{one}` and `{other}` are both read from the variable `{variable}`")]
    SameVariable {
        /// The variable.
        variable: String,
        /// One secret.
        one: String,
        /// The other one.
        other: String,
    },
    /// The project's folder cannot be used.
    #[error("the project folder `{}` cannot be used", path.display())]
    Project {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is no such run.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// What the owner wrote is wrong.
    #[error("{}", joined(.0))]
    Owner(Vec<Diagnostic>),
    /// What the owner asked for cannot be.
    #[error("{0}")]
    Asked(String),
    /// A secret's value cannot be read or used.
    #[error("secret `{name}` cannot be used: {source}")]
    Secret {
        /// The secret.
        name: String,
        /// Why.
        source: crate::CredentialError,
    },
    /// A secret is in `secrets.toml` and in our store.
    #[error("secret `{0}` is both in `secrets.toml` and in the store; remove one of them")]
    TwoBindings(String),
    /// Secrets of these names are kept already, and nobody said to replace them.
    #[error("{} kept already, and nothing was changed: `{}`", if .0.len() == 1 { "a secret of this name is" } else { "secrets of these names are" }, .0.join("`, `"))]
    SecretExists(Vec<String>),
    /// A file of the owner's could have been made by somebody else.
    #[error("`{}` is not used: {why}", path.display())]
    OwnerFile {
        /// The file.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A file of the owner's cannot be read.
    #[error("`{}` cannot be read", path.display())]
    OwnerFileUnreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
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
    /// The database of the state cannot be used.
    #[error("the state's database cannot be used")]
    Store(#[source] rusqlite::Error),
    /// A segment of the audit log cannot be made or read.
    #[error("a segment of the audit log cannot be used")]
    AuditSegment(#[source] io::Error),
    /// The log cannot be written, so nothing may happen.
    #[error("the audit log cannot be written")]
    AuditUnavailable(#[from] crate::AuditUnavailable),
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes")]
    NoEntropy,
    /// A thread could not be started, or it panicked.
    #[error("a thread of the broker does not run")]
    Thread(#[source] io::Error),
    /// The clock shows an impossible time.
    #[error("the clock shows an impossible time")]
    Clock(#[source] jiff::Error),
    /// A sealed run cannot go on: another version wrote it, or its policy does not read as it did.
    #[error("this version cannot go on with the run")]
    NotResumable,
    /// A signing key was retired while it was about to be used.
    #[error("the signing key was retired meanwhile")]
    KeyRetired,
    /// A certificate could not be made.
    #[error("a certificate cannot be made")]
    Certificate(#[source] rcgen::Error),
    /// A bug: a certificate was wanted for a run that never meets TLS.
    #[error("this run signs no certificates")]
    NoAuthority,
    /// A bug: the patterns of a tripwire do not fit.
    #[error("the tripwire cannot be built")]
    Tripwire(#[source] aho_corasick::BuildError),
    /// A bug: a run token cannot be signed.
    #[error("a run token cannot be signed")]
    Token(#[source] jsonwebtoken::errors::Error),
    /// A bug: something of ours cannot be written as JSON, or read back.
    #[error("a record of ours is not JSON")]
    Json(#[source] serde_json::Error),
}

/// Who has to act on an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The owner has to approve the policy first.
    NotApproved,
    /// The policy or a file of the owner's has to be corrected.
    Wrong,
    /// What was named is not there.
    NotFound,
    /// This machine or we.
    Ours,
}

impl Error {
    /// Who has to act.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotApproved { .. } => ErrorKind::NotApproved,
            Self::UnknownSecret { .. }
            | Self::ProviderMismatch { .. }
            | Self::OutsideBinding { .. }
            | Self::NotForProject { .. }
            | Self::SameVariable { .. }
            | Self::Owner(_)
            | Self::Asked(_)
            | Self::Secret { .. }
            | Self::TwoBindings(_)
            | Self::SecretExists(_)
            | Self::OwnerFile { .. }
            | Self::OwnerFileUnreadable { .. } => ErrorKind::Wrong,
            Self::Project { .. } | Self::UnknownRun(_) => ErrorKind::NotFound,
            Self::State { .. }
            | Self::StateTooNew
            | Self::SealBroken
            | Self::Store(_)
            | Self::AuditSegment(_)
            | Self::AuditUnavailable(_)
            | Self::NoEntropy
            | Self::Thread(_)
            | Self::Clock(_)
            | Self::NotResumable
            | Self::KeyRetired
            | Self::Certificate(_)
            | Self::NoAuthority
            | Self::Tripwire(_)
            | Self::Token(_)
            | Self::Json(_) => ErrorKind::Ours,
        }
    }

    /// A stable name of what went wrong, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotApproved { .. } => "policy-not-approved",
            Self::UnknownSecret { .. } => "unknown-secret",
            Self::ProviderMismatch { .. } => "provider-mismatch",
            Self::OutsideBinding { .. } => "outside-binding",
            Self::NotForProject { .. } => "not-for-project",
            Self::SameVariable { .. } => "same-variable",
            Self::Project { .. } => "project-unusable",
            Self::UnknownRun(_) => "unknown-run",
            Self::Owner(_) => "settings-invalid",
            Self::Asked(_) => "not-possible",
            Self::Secret { .. } => "secret-unusable",
            Self::TwoBindings(_) => "two-bindings",
            Self::SecretExists(_) => "secret-exists",
            Self::OwnerFile { .. } | Self::OwnerFileUnreadable { .. } => "settings-unusable",
            Self::State { .. }
            | Self::StateTooNew
            | Self::SealBroken
            | Self::NotResumable
            | Self::Store(_) => "state-unusable",
            Self::AuditSegment(_) | Self::AuditUnavailable(_) => "audit-unavailable",
            Self::NoEntropy
            | Self::Thread(_)
            | Self::Clock(_)
            | Self::KeyRetired
            | Self::Certificate(_)
            | Self::NoAuthority
            | Self::Tripwire(_)
            | Self::Token(_)
            | Self::Json(_) => "internal",
        }
    }

    /// The rule of the policy that has to be corrected, as its file and line.
    pub fn place(&self) -> Option<(&str, usize)> {
        let (Self::UnknownSecret { rule, .. }
        | Self::ProviderMismatch { rule, .. }
        | Self::OutsideBinding { rule, .. }
        | Self::NotForProject { rule, .. }) = self
        else {
            return None;
        };
        let (file, line) = rule.rsplit_once(':')?;
        Some((file, line.parse().ok()?))
    }

    /// What to do about it, if that can be said.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotApproved { .. } => Some(
                "read it with `valetkey policy explain`, then say yes with `valetkey policy approve`"
                    .to_owned(),
            ),
            Self::UnknownSecret { secret, .. } => Some(format!(
                "the owner can add it with `valetkey secret add {secret}`, or in `secrets.toml`"
            )),
            Self::OutsideBinding { .. } | Self::ProviderMismatch { .. } => Some(
                "no policy can widen this; the owner can, in `secrets.toml`".to_owned(),
            ),
            Self::NotForProject { .. } => {
                Some("the owner can add the folder to `projects` in `secrets.toml`".to_owned())
            }
            Self::SecretExists(_) => {
                Some("give --replace to put the new value in the place of the old one".to_owned())
            }
            Self::SameVariable { other, variable, .. } => Some(format!(
                "give `{other}` other ones in `secrets.toml`, such as `variables = [\"OTHER_{variable}\"]`"
            )),
            _ => None,
        }
    }
}

fn joined(found: &[Diagnostic]) -> String {
    let mut text = String::new();
    for (at, diagnostic) in found.iter().enumerate() {
        let gap = if at == 0 { "" } else { "\n\n" };
        // Writing to a string does not fail.
        let _ = write!(text, "{gap}{diagnostic}");
    }
    text
}
