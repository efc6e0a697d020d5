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
        writeln!(f, "error: {}", plain(&self.message))?;
        write!(
            f,
            "  --> {}:{}:{}",
            plain(&self.file),
            self.line,
            self.column
        )?;
        if !self.source_line.is_empty() {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let shown = plain(&self.source_line);
            let (start, length) = (self.column.saturating_sub(1), self.length.max(1));
            write!(f, "\n{margin} |\n{number} | {shown}\n{margin} | ")?;
            write!(f, "{}{}", " ".repeat(start), "^".repeat(length))?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {}", plain(hint))?;
        }
        Ok(())
    }
}

/// A text in which nothing moves the cursor, changes colours or turns the direction: whoever wrote the file must not
/// decide what its reader sees. Each character keeps one column, so that carets stand under what they mean.
fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() || is_deceptive(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Whether a character is not seen or reorders what is seen.
pub(crate) fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cannot_write_to_the_terminal() {
        let mut diagnostic = Diagnostic::of_file("a\x1b[2J", "key `\u{202e}`\nerror: none");
        diagnostic.source_line = "\x1b]0;x\x07".into();
        let shown = diagnostic.to_string();
        assert!(!shown.contains(['\x1b', '\x07', '\u{202e}']), "{shown}");
        assert_eq!(shown.lines().count(), 5, "{shown}");
    }

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
