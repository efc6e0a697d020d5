//! Where in a text a span is.

use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::Diagnostic;

/// The text of a file with its name; cheap to clone.
#[derive(Clone, Debug)]
pub struct SourceText(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    text: String,
    line_starts: Vec<usize>,
    has_spans: bool,
}

impl SourceText {
    /// The text of a file, whose nodes keep their spans.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::build(name.into(), text.into(), true)
    }

    /// A text whose nodes have no spans; diagnostics name the key instead.
    pub fn without_spans(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self::build(name.into(), text.into(), false)
    }

    fn build(name: String, text: String, has_spans: bool) -> Self {
        let line_starts = std::iter::once(0)
            .chain(later_lines(&text))
            .collect::<Vec<_>>();
        Self(Arc::new(Inner {
            name,
            text,
            line_starts,
            has_spans,
        }))
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Whether nodes of this text know where they stand.
    pub fn has_spans(&self) -> bool {
        self.0.has_spans
    }

    /// The line of an offset, from 1.
    pub fn line(&self, offset: usize) -> usize {
        self.0.line_starts.partition_point(|start| *start <= offset)
    }

    /// A diagnostic about these bytes of the text.
    pub fn diagnostic(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let mut diagnostic = Diagnostic::of_file(self.name(), message);
        if !self.has_spans() {
            return diagnostic;
        }
        let text = self.text();
        let start = floor(text, span.start);
        let line = self.line(start);
        let line_start = self.0.line_starts[line - 1];
        let line_text = text[line_start..].split(['\n', '\r']).next().unwrap_or("");
        let line_end = line_start + line_text.len();
        let end = floor(text, span.end).clamp(start, line_end.max(start));
        diagnostic.line = line;
        diagnostic.column = text[line_start..start].chars().count() + 1;
        diagnostic.length = text[start..end].chars().count().max(1);
        // A line without end is a hostile file, not something to print.
        diagnostic.source_line = line_text.chars().take(MAX_SHOWN).collect();
        if diagnostic.column > MAX_SHOWN {
            diagnostic.source_line.clear();
        }
        diagnostic.length = diagnostic.length.min(MAX_SHOWN);
        diagnostic
    }
}

/// How many characters of a line are shown.
const MAX_SHOWN: usize = 300;

/// Where lines start, but for the first.
fn later_lines(text: &str) -> impl Iterator<Item = usize> {
    text.bytes()
        .enumerate()
        .filter(|(_, byte)| *byte == b'\n')
        .map(|(at, _)| at + 1)
}

/// The offset, moved back to the start of a character and into the text.
fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let source = SourceText::new("a.toml", "x = 1\nbü = 2\n");
        let diagnostic = source.diagnostic(10..11, "no");
        assert_eq!((diagnostic.line, diagnostic.column), (2, 4));
        assert_eq!(diagnostic.source_line, "bü = 2");
    }

    #[test]
    fn a_span_outside_the_text_does_no_harm() {
        let source = SourceText::new("a.toml", "");
        let diagnostic = source.diagnostic(7..90, "no");
        assert_eq!((diagnostic.line, diagnostic.column), (1, 1));
    }
}
