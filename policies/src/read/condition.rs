//! Which conditions a rule sets: `query` and `when`.

use crate::condition::{Condition, Subject};
use crate::grammar;
use crate::read::later;
use crate::reader::{Item, Section, Value};
use crate::slot::is_token;

/// Reads `query`, `when.query` and `when.header`; other conditions are refused as not supported yet.
pub(super) fn read(section: &Section<'_>) -> Vec<Condition> {
    let mut conditions = Vec::new();
    if let Some(query) = section.map("query") {
        conditions.extend(query.items().filter_map(|item| read_query(&item)));
    }
    if let Some(when) = section.section("when", grammar::WHEN) {
        if let Some(query) = when.map("query") {
            conditions.extend(query.items().filter_map(|item| read_query(&item)));
        }
        if let Some(header) = when.map("header") {
            conditions.extend(header.items().filter_map(|item| read_header(&item)));
        }
        later::read_when(&when);
    }
    conditions.sort();
    conditions.dedup();
    conditions
}

fn read_query(item: &Item<'_, '_>) -> Option<Condition> {
    Some(Condition {
        subject: Subject::Query(item.key().text.clone()),
        values: read_values(item)?,
    })
}

fn read_header(item: &Item<'_, '_>) -> Option<Condition> {
    let name = item.key().text.to_ascii_lowercase();
    if !is_token(&name) {
        item.refuse("the key is not the name of a header field", None);
        return None;
    }
    // A client can write these as it likes, and what is sent upstream is not what it wrote.
    let is_ours = matches!(
        name.as_str(),
        "host" | "connection" | "content-length" | "transfer-encoding"
    ) || name.starts_with("proxy-");
    if is_ours {
        item.refuse(
            format!("`{name}` is rewritten on the way and cannot be a condition"),
            None,
        );
        return None;
    }
    Some(Condition {
        subject: Subject::Header(name),
        values: read_values(item)?,
    })
}

/// One string or a list of them.
fn read_values(item: &Item<'_, '_>) -> Option<Vec<String>> {
    let mut values: Vec<String> = match &item.node().value {
        Value::Array(_) => item
            .texts()?
            .iter()
            .map(|text| text.value.to_owned())
            .collect(),
        Value::Text(text) => vec![text.clone()],
        _ => return item.wrong_kind("a string or an array of strings", None),
    };
    if values.is_empty() {
        item.refuse("a condition without values never holds", None);
        return None;
    }
    values.sort();
    values.dedup();
    Some(values)
}
