//! What a text says, before anyone knows what it means.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use toml::de::{DeTable, DeValue};

use super::{Findings, SourceText};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// The bytes of the text; for a `[table]`, its header.
    pub span: Range<usize>,
    /// What stands there.
    pub value: Value,
}

/// A value of TOML or JSON.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A date or time of TOML, or `null` of JSON: nothing that we use.
    Other(&'static str),
    /// A list.
    Array(Vec<Node>),
    /// A table.
    Table(Table),
}

impl Value {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "a boolean",
            Self::Other(kind) => kind,
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub struct Key {
    /// The key.
    pub text: String,
    /// Its bytes of the text.
    pub span: Range<usize>,
}

/// A table: its keys are distinct.
#[derive(Clone, Debug, Default)]
pub struct Table {
    entries: Vec<(Key, Node)>,
}

impl Table {
    /// The entries in the order of their keys.
    pub fn entries(&self) -> &[(Key, Node)] {
        &self.entries
    }

    /// The entry of this key.
    pub fn entry(&self, key: &str) -> Option<&(Key, Node)> {
        let at = self
            .entries
            .binary_search_by(|(found, _)| found.text.as_str().cmp(key))
            .ok()?;
        self.entries.get(at)
    }
}

/// Reads TOML. Every syntax error and duplicate key becomes a finding; what could be read is given back, so that
/// the rest of the file is checked too.
pub fn parse_toml(source: &SourceText, findings: &Findings) -> Node {
    if is_too_long(source, findings) {
        return nothing();
    }
    let (table, errors) = DeTable::parse_recoverable(source.text());
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        let mut diagnostic = source.diagnostic(span, message);
        if error.message().contains("duplicate key") {
            diagnostic.hint = Some("each key may stand once; remove one of them".into());
        }
        findings.add(diagnostic);
    }
    let span = table.span();
    Node {
        span,
        value: Value::Table(from_table(table.into_inner(), source, findings)),
    }
}

/// Reads JSON. Duplicate keys are an error here too.
pub fn parse_json(source: &SourceText, findings: &Findings) -> Node {
    if is_too_long(source, findings) {
        return nothing();
    }
    match serde_json::from_str::<Node>(source.text()) {
        Ok(node) => node,
        Err(error) => {
            let mut diagnostic = source.diagnostic(0..0, error.to_string());
            diagnostic.line = error.line().max(1);
            diagnostic.column = error.column().max(1);
            findings.add(diagnostic);
            nothing()
        }
    }
}

/// What is left of a text that cannot be read at all.
fn nothing() -> Node {
    Node {
        span: 0..0,
        value: Value::Table(Table::default()),
    }
}

fn is_too_long(source: &SourceText, findings: &Findings) -> bool {
    let is_too_long = source.text().len() > MAX_LENGTH;
    if is_too_long {
        findings.add(source.diagnostic(0..0, "the text is longer than 64 MiB"));
    }
    is_too_long
}

/// Room for a million rules; more is an attempt to use up the memory.
const MAX_LENGTH: usize = 64 << 20;

fn from_table(table: DeTable<'_>, source: &SourceText, findings: &Findings) -> Table {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(key, value)| {
            let span = value.span();
            let key = Key {
                span: key.span(),
                text: key.into_inner().into_owned(),
            };
            (key, from_value(value.into_inner(), span, source, findings))
        })
        .collect();
    entries.sort_by(|(a, _), (b, _)| a.text.cmp(&b.text));
    Table { entries }
}

fn from_value(
    value: DeValue<'_>,
    span: Range<usize>,
    source: &SourceText,
    findings: &Findings,
) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(_) => {
                findings
                    .add(source.diagnostic(span.clone(), "the number does not fit into 64 bits"));
                Value::Other("a number that does not fit")
            }
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(_) => Value::Other("a number that cannot be read"),
        },
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(_) => Value::Other("a date or time"),
        DeValue::Array(array) => Value::Array(
            array
                .into_iter()
                .map(|item| {
                    let span = item.span();
                    from_value(item.into_inner(), span, source, findings)
                })
                .collect(),
        ),
        DeValue::Table(table) => Value::Table(from_table(table, source, findings)),
    };
    Node { span, value }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = deserializer.deserialize_any(ValueVisitor)?;
        Ok(Self { span: 0..0, value })
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Value, E> {
        Ok(Value::Boolean(boolean))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Value, E> {
        let number = i64::try_from(number).map_err(|_| E::custom("the number does not fit"))?;
        Ok(Value::Integer(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other("null"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = sequence.next_element()? {
            nodes.push(node);
        }
        Ok(Value::Array(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        while let Some((text, node)) = map.next_entry::<String, Node>()? {
            entries.push((Key { text, span: 0..0 }, node));
        }
        entries.sort_by(|(a, _), (b, _)| a.text.cmp(&b.text));
        if let Some(pair) = entries.windows(2).find(|p| p[0].0.text == p[1].0.text) {
            return Err(A::Error::custom(format_args!(
                "duplicate key `{}`",
                pair[0].0.text
            )));
        }
        Ok(Value::Table(Table { entries }))
    }
}
