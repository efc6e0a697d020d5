//! Where in a request a credential stands.

use std::fmt;

/// A place of a request that holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// A header whose value is `prefix`, the secret, `suffix`.
    Header {
        /// The field's name, in lower case.
        name: String,
        /// What stands before the secret, such as `Bearer `.
        prefix: String,
        /// What stands after it.
        suffix: String,
    },
    /// The `Authorization` header with HTTP Basic; the secret is the password.
    Basic {
        /// The user name. `None`: whatever the client sends is kept.
        username: Option<String>,
    },
    /// A parameter of the query.
    Query {
        /// The parameter's name.
        name: String,
    },
    /// A part of the path.
    Path {
        /// The start of the path with `{secret}` where the secret stands, such as `/bot{secret}/`.
        template: String,
    },
    /// A cookie.
    Cookie {
        /// The cookie's name.
        name: String,
    },
}

impl Slot {
    /// `Authorization: Bearer SECRET`.
    pub fn bearer() -> Self {
        Self::header("authorization", "Bearer ", "")
    }

    /// A header of this name; the name is lower-cased.
    pub fn header(name: &str, prefix: &str, suffix: &str) -> Self {
        Self::Header {
            name: name.to_ascii_lowercase(),
            prefix: prefix.to_owned(),
            suffix: suffix.to_owned(),
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header {
                name,
                prefix,
                suffix,
            } => write!(f, "header {name}: {prefix}{{secret}}{suffix}"),
            Self::Basic {
                username: Some(name),
            } => write!(f, "basic {name}"),
            Self::Basic { username: None } => f.write_str("basic"),
            Self::Query { name } => write!(f, "query {name}"),
            Self::Path { template } => write!(f, "path {template}"),
            Self::Cookie { name } => write!(f, "cookie {name}"),
        }
    }
}
