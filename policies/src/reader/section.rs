//! How known keys are taken out of a table.

use std::ops::Range;

use super::item::shown;
use super::{At, Findings, Item, Node, SourceText, Table, Value, nearest};
use crate::diagnostic::Diagnostic;

/// A table whose keys are known. Opening it reports every key that is not.
#[derive(Clone)]
pub struct Section<'a> {
    pub(super) source: &'a SourceText,
    pub(super) findings: &'a Findings,
    table: Option<&'a Table>,
    span: Range<usize>,
    path: String,
}

impl<'a> Section<'a> {
    /// Opens a node that must be a table with no other keys than these.
    pub fn open(
        source: &'a SourceText,
        findings: &'a Findings,
        node: &'a Node,
        path: impl Into<String>,
        known: &[&str],
    ) -> Self {
        let section = Self::open_map(source, findings, node, path);
        let unknown = section
            .table
            .iter()
            .flat_map(|table| table.entries())
            .filter(|(key, _)| !known.contains(&key.text.as_str()));
        for (key, _) in unknown {
            let mut diagnostic =
                section.at(&key.span, format!("unknown key `{}`", shown(&key.text)));
            diagnostic.hint = match nearest(&key.text, known.iter().copied()) {
                Some(word) => Some(format!("did you mean `{word}`?")),
                None => Some(format!("the keys here are {}", list(known))),
            };
            findings.add(diagnostic);
        }
        section
    }

    /// Opens a node that must be a table, with whatever keys the author chose.
    pub fn open_map(
        source: &'a SourceText,
        findings: &'a Findings,
        node: &'a Node,
        path: impl Into<String>,
    ) -> Self {
        let mut section = Self {
            source,
            findings,
            table: None,
            span: node.span.clone(),
            path: path.into(),
        };
        match &node.value {
            Value::Table(table) => section.table = Some(table),
            other => section.refuse(
                &node.span,
                format!("{} must be a table, not {}", section.name(), other.kind()),
                None,
            ),
        }
        section
    }

    /// Where the table stands: the whole of an inline one, else its header.
    pub fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// The text it stands in.
    pub fn source(&self) -> &'a SourceText {
        self.source
    }

    /// The line on which the table begins.
    pub fn line(&self) -> usize {
        self.source.line(self.span.start)
    }

    /// Reports something wrong with these bytes.
    pub fn refuse(&self, span: &Range<usize>, message: impl Into<String>, hint: Option<String>) {
        let mut diagnostic = self.at(span, message.into());
        diagnostic.hint = hint;
        self.findings.add(diagnostic);
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.item(key).is_some()
    }

    /// The value of a key, of whatever kind.
    pub fn item(&self, key: &str) -> Option<Item<'_, 'a>> {
        let (key, node) = self.table?.entry(key)?;
        Some(Item::new(self, key, node))
    }

    /// Every key with its value.
    pub fn items(&self) -> impl Iterator<Item = Item<'_, 'a>> {
        let entries = self.table.map(Table::entries).unwrap_or_default();
        entries.iter().map(|(key, node)| Item::new(self, key, node))
    }

    /// A string.
    pub fn text(&self, key: &str) -> Option<At<&'a str>> {
        self.item(key)?.text()
    }

    /// A list of strings.
    pub fn texts(&self, key: &str) -> Option<Vec<At<&'a str>>> {
        self.item(key)?.texts()
    }

    /// `true` or `false`.
    pub fn boolean(&self, key: &str) -> Option<At<bool>> {
        self.item(key)?.boolean()
    }

    /// A whole number of this range.
    pub fn integer(&self, key: &str, range: std::ops::RangeInclusive<i64>) -> Option<At<i64>> {
        self.item(key)?.integer(range)
    }

    /// A table under a key, with no other keys than these.
    pub fn section(&self, key: &str, known: &[&str]) -> Option<Section<'a>> {
        Some(self.item(key)?.section(known))
    }

    /// A table under a key, with whatever keys the author chose.
    pub fn map(&self, key: &str) -> Option<Section<'a>> {
        Some(self.item(key)?.map())
    }

    /// The tables of a `[[key]]`.
    pub fn sections(&self, key: &str, known: &[&str]) -> Vec<Section<'a>> {
        let Some(item) = self.item(key) else {
            return Vec::new();
        };
        let Value::Array(nodes) = &item.node().value else {
            let hint = format!("write it as `[[{key}]]`");
            item.wrong_kind::<()>("an array of tables", Some(hint));
            return Vec::new();
        };
        nodes
            .iter()
            .enumerate()
            .map(|(at, node)| {
                let path = format!("{}[{at}]", self.below(key));
                Section::open(self.source, self.findings, node, path, known)
            })
            .collect()
    }

    fn at(&self, span: &Range<usize>, message: String) -> Diagnostic {
        if self.source.has_spans() || self.path.is_empty() {
            self.source.diagnostic(span.clone(), message)
        } else {
            let message = format!("{message} (in `{}`)", self.path);
            self.source.diagnostic(span.clone(), message)
        }
    }

    pub(super) fn below(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn name(&self) -> String {
        if self.path.is_empty() {
            "the file".to_owned()
        } else {
            format!("`{}`", self.path)
        }
    }
}

fn list(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}
