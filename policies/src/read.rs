//! What one policy file says.

mod condition;
mod endpoint;
mod later;
mod rule;
mod settings;
mod step;

use std::sync::Arc;

use crate::grammar;
use crate::reader::{At, Findings, Node, Section, SourceText, Value};
use crate::rule::Rule;
use crate::sample::{Expectation, Sample};
use crate::settings::{Placed, Settings};
use crate::step::Steps;

/// A policy file, read and checked by itself.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) extends: Vec<Placed<String>>,
    pub(crate) is_locked: bool,
    pub(crate) rules: Vec<Placed<Rule>>,
    pub(crate) settings: Settings,
    pub(crate) steps: Steps,
    pub(crate) expectations: Vec<Expectation>,
}

/// Reads a file. What is wrong becomes findings; what is given back then is of no use but to find more.
pub(crate) fn read(source: &SourceText, root: &Node, findings: &Findings) -> File {
    let section = Section::open(source, findings, root, "", grammar::FILE);
    let is_empty = matches!(&root.value, Value::Table(table) if table.entries().is_empty());
    if is_empty && findings.is_empty() {
        let hint = "begin with `version = 1`; `valetkey policy init` proposes a policy";
        section.refuse(&(0..0), "the policy is empty", Some(hint.into()));
    } else if section.integer("version", 1..=1).is_none() && !section.has("version") {
        let hint = "begin the file with `version = 1`".to_owned();
        section.refuse(&(0..0), "`version` is missing", Some(hint));
    }
    let file: Arc<str> = source.name().into();
    let mut rules = Vec::new();
    for allow in section.sections("allow", grammar::ALLOW) {
        rules.extend(rule::read_allow(&allow, &file).map(|rule| placed(rule, &allow)));
    }
    for deny in section.sections("deny", grammar::DENY) {
        rules.extend(rule::read_deny(&deny, &file).map(|rule| placed(rule, &deny)));
    }
    File {
        extends: read_extends(&section),
        is_locked: section.boolean("locked").is_some_and(|locked| locked.value),
        rules,
        settings: settings::read(&section),
        steps: step::read(&section),
        expectations: section
            .sections("test", grammar::TEST)
            .iter()
            .filter_map(read_expectation)
            .collect(),
    }
}

fn placed(rule: Rule, section: &Section<'_>) -> Placed<Rule> {
    Placed {
        value: rule,
        source: section.source().clone(),
        span: section.span().clone(),
    }
}

fn read_extends(section: &Section<'_>) -> Vec<Placed<String>> {
    let texts = section.texts("extends").unwrap_or_default();
    let place = |text: At<&str>| Placed {
        value: text.value.to_owned(),
        source: section.source().clone(),
        span: text.span,
    };
    texts.into_iter().map(place).collect()
}

fn read_expectation(section: &Section<'_>) -> Option<Expectation> {
    let request = require(section, "request")?;
    let expect = require(section, "expect")?;
    let sample = Sample::parse(request.value);
    if let Err(error) = &sample {
        section.refuse(&request.span, error.to_string(), None);
    }
    let is_allowed = match expect.value {
        "allow" => true,
        "deny" => false,
        _ => {
            let hint = Some("write `allow` or `deny`".to_owned());
            section.refuse(&expect.span, "`expect` is neither `allow` nor `deny`", hint);
            return None;
        }
    };
    Some(Expectation {
        sample: sample.ok()?,
        is_allowed,
        file: section.source().name().to_owned(),
        line: section.line(),
    })
}

/// A string that has to be there.
fn require<'a>(section: &Section<'a>, key: &str) -> Option<At<&'a str>> {
    if !section.has(key) {
        section.refuse(section.span(), format!("`{key}` is missing"), None);
    }
    section.text(key)
}
