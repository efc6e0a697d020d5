//! How a command of ours fails: what is said, and the exit code.

use std::error::Error;
use std::fmt;

use policies::Diagnostic;
use serde_json::json;

use crate::output::count;
use crate::problem::{Problem, chain};

/// A failure of a command, ready to be told.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
    cause: Option<Box<dyn Error + Send + Sync>>,
    problems: Vec<Problem>,
    name: &'static str,
    code: u8,
}

impl Failure {
    /// The machine or Valetkey itself stood in the way; nothing ran.
    pub(crate) fn ours(message: impl Into<String>) -> Self {
        Self::with_code(message, "unavailable", sdk::exit::OURS)
    }

    /// A policy or a settings file is wrong.
    pub(crate) fn bad_policy(message: impl Into<String>) -> Self {
        Self::with_code(message, "invalid", sdk::exit::BAD_POLICY)
    }

    /// A file has mistakes.
    pub(crate) fn mistakes(
        file: impl fmt::Display,
        name: &'static str,
        found: &[Diagnostic],
    ) -> Self {
        let mistakes = count(found.len() as u64, "mistake");
        Self::bad_policy(format!("`{file}` has {mistakes}"))
            .named(name)
            .with_problems(
                found
                    .iter()
                    .map(|one| Problem::mistake(name, one))
                    .collect(),
            )
    }

    /// The policy is not approved.
    pub(crate) fn not_approved(message: impl Into<String>) -> Self {
        Self::with_code(message, "policy-not-approved", sdk::exit::NOT_APPROVED)
    }

    /// What was asked for was refused or not found; everything worked.
    pub(crate) fn negative(message: impl Into<String>) -> Self {
        Self::with_code(message, "not-found", sdk::exit::DENIED)
    }

    fn with_code(message: impl Into<String>, name: &'static str, code: u8) -> Self {
        Self {
            message: message.into(),
            hint: None,
            cause: None,
            problems: Vec::new(),
            name,
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

    /// Gives it a stable name of its own, for programs.
    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Says everything that is wrong, one by one.
    pub(crate) fn with_problems(mut self, problems: Vec<Problem>) -> Self {
        self.problems = problems;
        self
    }

    /// What to do about it, if something can be.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Everything that is wrong, one by one.
    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What went wrong, with the causes behind it, in one line.
    pub(crate) fn reason(&self) -> String {
        let mut text = chain(self);
        for problem in &self.problems {
            text.push_str(": ");
            text.push_str(&problem.in_short());
        }
        text
    }

    /// Everything that is to be said, in one text.
    pub(crate) fn told(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.reason()),
            None => self.reason(),
        }
    }

    /// As one problem, where it is one of several.
    pub(crate) fn into_problem(self) -> Problem {
        Problem::new(self.name, self.reason(), self.hint)
    }

    /// The same for programs.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let first = self.problems.first();
        let hint = self.advice();
        json!({"error": {
            "code": self.name,
            "message": chain(self),
            "hint": hint.or(first.and_then(|problem| problem.hint.as_deref())),
            "file": first.and_then(|problem| problem.file.as_deref()),
            "line": first.and_then(|problem| problem.line),
            "column": first.and_then(|problem| problem.column),
            "problems": self.problems,
            "exit": self.code,
        }})
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_same_exit_code_for_programs() {
        let failure = Failure::not_approved("no").hint("say yes");
        let told = failure.to_json();
        assert_eq!(told["error"]["exit"], failure.code());
        assert_eq!(told["error"]["code"], "policy-not-approved");
        assert_eq!(told["error"]["hint"], "say yes");
    }
}
