//! What is wrong with a file, where, and what to do about it.

use std::fmt;

/// One thing wrong with a file that a person wrote.
///
/// Its `Display` is the whole message, several lines without a line break at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, as the person knows it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, in characters from 1.
    pub column: usize,
    /// How many characters of that line are meant; at least 1.
    pub length: usize,
    /// What is wrong: a lower-case fragment.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
    /// The whole line, without its line break; empty if there is none to show.
    pub source_line: String,
}

impl Diagnostic {
    /// A diagnostic about a file as a whole.
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 1,
            column: 1,
            length: 1,
            message: message.into(),
            hint: None,
            source_line: String::new(),
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.message)?;
        write!(f, "  --> {}:{}:{}", self.file, self.line, self.column)?;
        if !self.source_line.is_empty() {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            // A tab is one column wide here, so that the caret stands under what it means.
            let shown: String = self
                .source_line
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            let (start, length) = (self.column.saturating_sub(1), self.length.max(1));
            write!(f, "\n{margin} |\n{number} | {shown}\n{margin} | ")?;
            write!(f, "{}{}", " ".repeat(start), "^".repeat(length))?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_points_at_the_place() {
        let diagnostic = Diagnostic {
            file: "policy.toml".into(),
            line: 12,
            column: 8,
            length: 3,
            message: "host pattern `*` matches every host".into(),
            hint: Some("name the domain, such as `*.example.com`".into()),
            source_line: "host = \"*\"".into(),
        };
        assert_eq!(
            diagnostic.to_string(),
            "error: host pattern `*` matches every host\n  --> policy.toml:12:8\n   |\n12 | host = \"*\"\n   |        ^^^\nhint: name the domain, such as `*.example.com`"
        );
    }
}
