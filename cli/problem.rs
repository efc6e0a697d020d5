//! One thing that is wrong, where, and what to do about it: for people, and for programs.

use std::fmt;

use policies::Diagnostic;
use serde::Serialize;

/// One thing that is wrong. Its `Display` is the whole message, several lines without a line break at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// A stable name of it.
    pub(crate) code: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The file it stands in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) column: Option<usize>,
    /// What people are shown instead, where the line itself can be shown.
    #[serde(skip)]
    shown: Option<String>,
}

impl Problem {
    /// A problem that stands in no file.
    pub(crate) fn new(
        code: &'static str,
        message: impl Into<String>,
        hint: Option<String>,
    ) -> Self {
        Self {
            code,
            message: message.into(),
            hint,
            file: None,
            line: None,
            column: None,
            shown: None,
        }
    }

    /// What the owner's side refuses.
    pub(crate) fn refused(error: &broker::Error) -> Self {
        let place = error.place();
        Self {
            file: place.map(|(file, _)| file.to_owned()),
            line: place.map(|(_, line)| line),
            ..Self::new(error.code(), chain(error), error.hint())
        }
    }

    /// A mistake in a file.
    pub(crate) fn mistake(code: &'static str, found: &Diagnostic) -> Self {
        Self {
            file: Some(found.file.clone()),
            line: Some(found.line),
            column: Some(found.column),
            shown: Some(found.to_string()),
            ..Self::new(code, found.message.clone(), found.hint.clone())
        }
    }

    /// Whether it is the same thing at the same place.
    pub(crate) fn is_about(&self, other: &Self) -> bool {
        (self.code, &self.file, self.line) == (other.code, &other.file, other.line)
    }

    /// The same in one line: `valetkey.toml:3:1: unknown key`.
    pub(crate) fn in_short(&self) -> String {
        let mut text = String::new();
        if let Some(file) = &self.file {
            text.push_str(file);
            for number in [self.line, self.column].into_iter().flatten() {
                text.push_str(&format!(":{number}"));
            }
            text.push_str(": ");
        }
        text.push_str(&self.message);
        text
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(shown) = &self.shown {
            return f.write_str(shown);
        }
        write!(f, "error: {}", self.message)?;
        if let (Some(file), Some(line)) = (&self.file, self.line) {
            write!(f, "\n  --> {file}:{line}")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// What went wrong, with each cause behind it that says more.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        // Some errors have their cause in their own words already.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_its_place_and_what_to_do() {
        let problem = Problem::refused(&broker::Error::UnknownSecret {
            secret: "mine".to_owned(),
            rule: "valetkey.toml:3".to_owned(),
        });
        let told = problem.to_string();
        assert!(
            told.contains("--> valetkey.toml:3\nhint: the owner"),
            "{told}"
        );
        assert_eq!(problem.code, "unknown-secret");
    }

    #[test]
    fn a_cause_that_was_told_already_is_not_told_again() {
        #[derive(Debug)]
        struct Outer(std::fmt::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "outer: {}", self.0)
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        assert_eq!(chain(&Outer(fmt::Error)), Outer(fmt::Error).to_string());
    }
}
