//! Which hosts a rule means.

use std::fmt;

use crate::host::{Host, HostError, Name};

/// A host, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// Exactly this host.
    Exact(Host),
    /// Every name below this one, at any depth; never the name itself.
    Below(Name),
}

/// Why a text is not a host pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// `*` alone, or nothing after `*.`.
    #[error("host pattern `{0}` matches every host")]
    Everything(String),
    /// A `*` somewhere else than as the whole first label.
    #[error("host pattern `{0}` has a `*` that is not the whole first label")]
    Star(String),
    /// Below a public suffix everyone can have a name.
    #[error("host pattern `{0}` covers a public suffix, under which anyone can own a name")]
    PublicSuffix(String),
    /// An address has no names below it.
    #[error("host pattern `{0}` is below an address")]
    Address(String),
    /// What is left is not a host.
    #[error("host pattern `{0}`: {1}")]
    Host(String, HostError),
}

impl HostPattern {
    /// Reads an exact host or a name with a leading `*.`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let shown = || text.to_owned();
        if matches!(text, "*" | "*." | "**") {
            return Err(PatternError::Everything(shown()));
        }
        let Some(base) = text.strip_prefix("*.") else {
            if text.contains('*') {
                return Err(PatternError::Star(shown()));
            }
            let host = Host::parse(text).map_err(|error| PatternError::Host(shown(), error))?;
            return Ok(Self::Exact(host));
        };
        if base.contains('*') {
            return Err(PatternError::Star(shown()));
        }
        match Host::parse(base).map_err(|error| PatternError::Host(shown(), error))? {
            Host::Name(name) if is_public_suffix(&name) => Err(PatternError::PublicSuffix(shown())),
            Host::Name(name) => Ok(Self::Below(name)),
            Host::V4(_) | Host::V6(_) => Err(PatternError::Address(shown())),
        }
    }

    /// Reads a pattern for a deny, which may cover public suffixes too.
    pub fn parse_to_deny(text: &str) -> Result<Self, PatternError> {
        match (Self::parse(text), text.strip_prefix("*.")) {
            (Err(PatternError::PublicSuffix(shown)), Some(base)) => match Host::parse(base) {
                Ok(Host::Name(name)) => Ok(Self::Below(name)),
                Ok(Host::V4(_) | Host::V6(_)) => Err(PatternError::Address(shown)),
                Err(error) => Err(PatternError::Host(shown, error)),
            },
            (result, _) => result,
        }
    }

    /// Whether the host is one of those meant.
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(exact), host) => exact == host,
            (Self::Below(base), Host::Name(name)) => name
                .as_str()
                .strip_suffix(base.as_str())
                .is_some_and(|rest| rest.ends_with('.')),
            (Self::Below(_), Host::V4(_) | Host::V6(_)) => false,
        }
    }
}

impl PatternError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Everything(_) => Some("name the domain, such as `*.example.com`"),
            Self::Star(_) => Some("a `*` stands for every name below a domain: `*.example.com`"),
            Self::PublicSuffix(_) => Some("name the domain that you mean, one label longer"),
            Self::Address(_) => Some("name each address, without `*.`"),
            Self::Host(_, _) => {
                Some("a host is a name or an address, without scheme, port, path or user")
            }
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => host.fmt(f),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// Whether anyone can register names directly below this one.
fn is_public_suffix(name: &Name) -> bool {
    let text = name.as_str();
    psl::suffix(text.as_bytes()).is_some_and(|suffix| suffix.as_bytes().len() >= text.len())
}
