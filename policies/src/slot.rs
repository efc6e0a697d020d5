//! Where in a request a credential stands.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::reader::{Section, Value};

/// A place of a request that holds a credential.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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

/// The keys of a slot in a file, as [`read`] takes them.
pub const KEYS: &[&str] = &[
    "bearer", "header", "prefix", "suffix", "basic", "query", "path", "cookie",
];

/// Reads a slot: `{ bearer = true }`, `{ header = "x-api-key", prefix = "", suffix = "" }`, `{ basic = true }` or
/// with a user name, `{ query = "key" }`, `{ path = "/bot{secret}/" }`, `{ cookie = "name" }`.
pub fn read(section: &Section<'_>) -> Option<Slot> {
    let kinds = ["bearer", "header", "basic", "query", "path", "cookie"];
    let mut found = kinds.iter().filter_map(|kind| section.item(kind));
    let (Some(item), None) = (found.next(), found.next()) else {
        let message =
            "a slot is exactly one of `bearer`, `header`, `basic`, `query`, `path`, `cookie`";
        section.refuse(section.span(), message, None);
        return None;
    };
    let kind = item.key().text.as_str();
    if kind != "header" {
        for key in ["prefix", "suffix"] {
            if let Some(item) = section.item(key) {
                item.refuse(format!("`{key}` goes with `header` only"), None);
            }
        }
    }
    if let ("bearer" | "basic", Value::Boolean(is_on)) = (kind, &item.node().value) {
        if !is_on {
            item.refuse(format!("`{kind}` is `true` or not there"), None);
            return None;
        }
        return Some(match kind {
            "bearer" => Slot::bearer(),
            _ => Slot::Basic { username: None },
        });
    }
    if kind == "bearer" {
        item.boolean();
        return None;
    }
    let text = item.text()?.value;
    let is_right = match kind {
        "header" | "cookie" => is_token(text),
        "path" => text.starts_with('/') && text.matches("{secret}").count() == 1,
        "basic" => !text.contains(':') && !text.contains(char::is_control),
        _ => !text.is_empty() && !text.contains(char::is_control),
    };
    if !is_right {
        item.refuse(format!("`{kind}` cannot be this"), None);
        return None;
    }
    let extra = |key: &str| section.text(key).map_or("", |text| text.value);
    Some(match kind {
        "header" => Slot::header(text, extra("prefix"), extra("suffix")),
        "basic" => Slot::Basic {
            username: Some(text.to_owned()),
        },
        "query" => Slot::Query {
            name: text.to_owned(),
        },
        "path" => Slot::Path {
            template: text.to_owned(),
        },
        _ => Slot::Cookie {
            name: text.to_owned(),
        },
    })
}

/// Whether a text can be a field's name (RFC 9110, `token`).
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
