//! In which way a request is carried: in clear or over TLS.

use std::fmt;

/// The scheme of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// HTTP over TLS.
    Https,
    /// HTTP in clear.
    Http,
}

impl Scheme {
    /// The scheme as it is written in a URL.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// The port that is meant where none is written.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }

    /// The scheme of this name, in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "https" => Some(Self::Https),
            "http" => Some(Self::Http),
            _ => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
