//! How a command of ours fails: what is said, and the exit code.

use std::error::Error;
use std::fmt;

/// A failure of a command, ready to be told.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    cause: Option<Box<dyn Error + Send + Sync>>,
    code: u8,
}

impl Failure {
    /// The machine or Valetkey itself stood in the way; nothing ran.
    pub(crate) fn ours(message: impl Into<String>) -> Self {
        Self::with_code(message, sdk::exit::OURS)
    }

    /// A policy or a settings file is wrong.
    pub(crate) fn bad_policy(message: impl Into<String>) -> Self {
        Self::with_code(message, sdk::exit::BAD_POLICY)
    }

    /// The policy is not approved.
    pub(crate) fn not_approved(message: impl Into<String>) -> Self {
        Self::with_code(message, sdk::exit::NOT_APPROVED)
    }

    /// What was asked for was refused or not found; everything worked.
    pub(crate) fn negative(message: impl Into<String>) -> Self {
        Self::with_code(message, sdk::exit::DENIED)
    }

    fn with_code(message: impl Into<String>, code: u8) -> Self {
        Self {
            message: message.into(),
            hint: None,
            cause: None,
            code,
        }
    }

    /// Says what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what was behind it.
    pub(crate) fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What to do about it, if something can be.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Everything that is to be said, in one text.
    pub(crate) fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(inner) = cause {
            text.push_str(&format!(": {inner}"));
            cause = inner.source();
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("; {hint}"));
        }
        text
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Some(cause) => Some(cause.as_ref()),
            None => None,
        }
    }
}
