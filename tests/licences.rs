//! May we give this to others? Every dependency has a licence of deny.toml's list.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::support::root;

#[test]
fn every_dependency_has_an_allowed_licence() {
    let allowed = allowed();
    let refused: Vec<String> = packages()
        .iter()
        .filter(|package| !is_allowed(package["license"].as_str().unwrap_or("none"), &allowed))
        .map(|package| {
            format!(
                "{} {}: {}",
                package["name"], package["version"], package["license"]
            )
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn an_expression_is_allowed_when_one_choice_is_wholly_allowed() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0".to_owned()]);
    assert!(is_allowed("MIT OR GPL-3.0", &allowed));
    assert!(is_allowed("(MIT OR GPL-3.0) AND Apache-2.0", &allowed));
    assert!(is_allowed("MIT/GPL-3.0", &allowed));
}

#[test]
fn an_expression_with_one_refused_part_is_refused() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Apache-2.0".to_owned()]);
    assert!(!is_allowed("MIT AND GPL-3.0", &allowed));
    assert!(!is_allowed("(MIT OR Apache-2.0) AND GPL-3.0", &allowed));
    assert!(!is_allowed("none", &allowed));
}

fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text
        .split("allow = [")
        .nth(1)
        .unwrap()
        .split(']')
        .next()
        .unwrap();
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

// SPDX: `AND` binds tighter than `OR`; `/` is Cargo's old spelling of `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (answer, rest) = any(&words, allowed);
    answer && rest.is_empty()
}

fn any<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut answer, mut rest) = all(words, allowed);
    while let Some((&"OR", after)) = rest.split_first() {
        let (next, left) = all(after, allowed);
        answer |= next;
        rest = left;
    }
    (answer, rest)
}

fn all<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    let (mut answer, mut rest) = one(words, allowed);
    while let Some((&"AND", after)) = rest.split_first() {
        let (next, left) = one(after, allowed);
        answer &= next;
        rest = left;
    }
    (answer, rest)
}

fn one<'a>(words: &'a [&'a str], allowed: &BTreeSet<String>) -> (bool, &'a [&'a str]) {
    match words.split_first() {
        Some((&"(", after)) => {
            let (answer, rest) = any(after, allowed);
            (answer, rest.get(1..).unwrap_or_default())
        }
        Some((name, [with, exception, rest @ ..])) if *with == "WITH" => {
            (allowed.contains(&format!("{name} WITH {exception}")), rest)
        }
        Some((name, rest)) => (allowed.contains(*name), rest),
        None => (false, words),
    }
}
