//! Where the value of a secret is, and how it is read.

use std::path::PathBuf;

/// Where the owner keeps a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A variable of the broker's own environment.
    Env(String),
    /// A file.
    File(PathBuf),
    /// The output of a program, given as its arguments; no shell reads them.
    Command(Vec<String>),
    /// Our encrypted store, under this name.
    Store(String),
}

impl Source {
    /// The kind, as it is written in `secrets.toml`.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Env(_) => "env",
            Self::File(_) => "file",
            Self::Command(_) => "command",
            Self::Store(_) => "store",
        }
    }
}
