//! What kind of value stands under a key.

use std::ops::Range;

use super::{Key, Node, Section, Value};

/// A value that was read, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes of the text.
    pub span: Range<usize>,
}

/// A key with its value.
#[derive(Clone, Copy)]
pub struct Item<'s, 'a> {
    section: &'s Section<'a>,
    key: &'a Key,
    node: &'a Node,
}

impl<'s, 'a> Item<'s, 'a> {
    pub(super) fn new(section: &'s Section<'a>, key: &'a Key, node: &'a Node) -> Self {
        Self { section, key, node }
    }

    /// The key.
    pub fn key(&self) -> &'a Key {
        self.key
    }

    /// The value.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Reports something wrong with the value.
    pub fn refuse(&self, message: impl Into<String>, hint: Option<String>) {
        self.section.refuse(&self.node.span, message, hint);
    }

    /// Reports that the key is understood but not enforced in this version, and so refused.
    pub fn not_supported_yet(&self) {
        let path = self.section.below(&self.key.text);
        self.section.refuse(
            &self.key.span,
            format!("`{path}` is not supported yet"),
            Some("remove it: what is not enforced is refused, never ignored".into()),
        );
    }

    /// The value as a string.
    pub fn text(&self) -> Option<At<&'a str>> {
        match &self.node.value {
            Value::Text(text) => Some(self.found(text.as_str())),
            _ => self.wrong_kind("a string", None),
        }
    }

    /// The value as a boolean.
    pub fn boolean(&self) -> Option<At<bool>> {
        match &self.node.value {
            Value::Boolean(boolean) => Some(self.found(*boolean)),
            _ => self.wrong_kind("`true` or `false`", None),
        }
    }

    /// The value as a whole number of this range.
    pub fn integer(&self, range: std::ops::RangeInclusive<i64>) -> Option<At<i64>> {
        match &self.node.value {
            Value::Integer(number) if range.contains(number) => Some(self.found(*number)),
            Value::Integer(_) => {
                let (low, high) = (range.start(), range.end());
                let message = match *high {
                    i64::MAX => format!("{} must be at least {low}", self.name()),
                    _ => format!("{} must be from {low} to {high}", self.name()),
                };
                self.refuse(message, None);
                None
            }
            _ => self.wrong_kind("an integer", None),
        }
    }

    /// The value as a number, whole or not.
    pub fn number(&self) -> Option<At<f64>> {
        match &self.node.value {
            Value::Integer(number) => Some(self.found(*number as f64)),
            Value::Float(number) => Some(self.found(*number)),
            _ => self.wrong_kind("a number", None),
        }
    }

    /// The value as a list of strings.
    pub fn texts(&self) -> Option<Vec<At<&'a str>>> {
        let Value::Array(nodes) = &self.node.value else {
            let hint = matches!(self.node.value, Value::Text(_))
                .then(|| "put it into brackets, also when it is only one".to_owned());
            return self.wrong_kind("an array of strings", hint);
        };
        let item = |node: &'a Node| Item { node, ..*self }.text();
        Some(nodes.iter().filter_map(item).collect())
    }

    /// The value as a list of nodes of any kind, each as if it stood alone under the key.
    pub fn each(&self) -> Option<Vec<Item<'s, 'a>>> {
        let Value::Array(nodes) = &self.node.value else {
            return self.wrong_kind("an array", None);
        };
        Some(nodes.iter().map(|node| Item { node, ..*self }).collect())
    }

    /// The value as a table with no other keys than these.
    pub fn section(&self, known: &[&str]) -> Section<'a> {
        let Section {
            source, findings, ..
        } = *self.section;
        let path = self.section.below(&self.key.text);
        Section::open(source, findings, self.node, path, known)
    }

    /// The value as a table with whatever keys the author chose.
    pub fn map(&self) -> Section<'a> {
        let Section {
            source, findings, ..
        } = *self.section;
        let path = self.section.below(&self.key.text);
        Section::open_map(source, findings, self.node, path)
    }

    /// Reports that the value is of the wrong kind.
    pub fn wrong_kind<T>(&self, wanted: &str, hint: Option<String>) -> Option<T> {
        let kind = self.node.value.kind();
        self.refuse(
            format!("{} must be {wanted}, not {kind}", self.name()),
            hint,
        );
        None
    }

    fn name(&self) -> String {
        format!("`{}`", shown(&self.section.below(&self.key.text)))
    }

    fn found<T>(&self, value: T) -> At<T> {
        At {
            value,
            span: self.node.span.clone(),
        }
    }
}

/// A text of the author's, as much as is worth showing.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .take(80)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
