//! What is known of the providers of APIs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::diagnostic::Diagnostic;
use crate::path_pattern::PathPattern;
use crate::pattern::HostPattern;
use crate::placeholder::PlaceholderShape;
use crate::reader::{Findings, Section, SourceText, parse_toml};
use crate::rule::Refused;
use crate::slot::{self, Slot};

/// A provider of the catalogue.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its id, as `use` names it.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<HostPattern>,
    /// Where its clients put the credential; the first is filled when all are absent.
    pub slots: Vec<Slot>,
    /// The shape of its keys.
    pub placeholder: PlaceholderShape,
    /// A regular expression of its real keys, as secret scanners know it.
    pub key_pattern: Option<String>,
    /// The variables that its clients read the key from.
    pub env: Vec<String>,
    /// The variables that its clients read the base URL from.
    pub base_url_env: Vec<String>,
    /// Endpoints that are refused unless a rule names them, as `METHOD /path`.
    pub refused: Vec<String>,
    pub(crate) refusals: Vec<Refused>,
}

/// The provider of this id.
pub fn provider(id: &str) -> Option<&'static Provider> {
    CATALOGUE.get(id)
}

/// Every provider, in the order of their ids.
pub fn providers() -> impl Iterator<Item = &'static Provider> {
    CATALOGUE.values()
}

static CATALOGUE: LazyLock<BTreeMap<String, Provider>> = LazyLock::new(|| {
    // A test reads the file too and fails on any finding, so that none is left in a release.
    read(TEXT).unwrap_or_default()
});

const TEXT: &str = include_str!("../providers.toml");

const FILE_KEYS: &[&str] = &["version", "provider"];

const PROVIDER_KEYS: &[&str] = &[
    "id",
    "name",
    "hosts",
    "slots",
    "placeholder",
    "key_pattern",
    "env",
    "base_url_env",
    "refused",
];

/// Reads a catalogue.
fn read(text: &str) -> Result<BTreeMap<String, Provider>, Vec<Diagnostic>> {
    let source = SourceText::new("providers.toml", text);
    let findings = Findings::default();
    let root = parse_toml(&source, &findings);
    let file = Section::open(&source, &findings, &root, "", FILE_KEYS);
    file.integer("version", 1..=1);
    let mut catalogue = BTreeMap::new();
    for section in file.sections("provider", PROVIDER_KEYS) {
        let Some(provider) = read_provider(&section) else {
            section.refuse(section.span(), "the provider is incomplete", None);
            continue;
        };
        if let Some(before) = catalogue.insert(provider.id.clone(), provider) {
            let message = format!("provider `{}` stands twice", before.id);
            section.refuse(section.span(), message, None);
        }
    }
    findings.into_result(catalogue)
}

fn read_provider(section: &Section<'_>) -> Option<Provider> {
    let strings = |key: &str| -> Vec<String> {
        let texts = section.texts(key).unwrap_or_default();
        texts.iter().map(|text| text.value.to_owned()).collect()
    };
    let mut hosts = Vec::new();
    for host in section.texts("hosts")? {
        match HostPattern::parse(host.value) {
            Ok(pattern) if pattern.to_string() == host.value => hosts.push(pattern),
            Ok(pattern) => section.refuse(&host.span, format!("write it `{pattern}`"), None),
            Err(error) => section.refuse(&host.span, error.to_string(), None),
        }
    }
    let slots: Vec<Slot> = section
        .item("slots")?
        .each()?
        .iter()
        .filter_map(|item| slot::read(&item.section(slot::KEYS)))
        .collect();
    let shape = section.text("placeholder")?;
    let placeholder = PlaceholderShape::parse(shape.value);
    if placeholder.is_none() {
        section.refuse(&shape.span, "not a placeholder shape", None);
    }
    let mut refusals = Vec::new();
    for text in section.texts("refused").unwrap_or_default() {
        match read_refused(text.value) {
            Some(refused) => refusals.push(refused),
            None => section.refuse(&text.span, "not `METHOD /path`", None),
        }
    }
    if hosts.is_empty() || slots.is_empty() {
        return None;
    }
    Some(Provider {
        id: section.text("id")?.value.to_owned(),
        name: section.text("name")?.value.to_owned(),
        hosts,
        slots,
        placeholder: placeholder?,
        key_pattern: section.text("key_pattern").map(|p| p.value.to_owned()),
        env: strings("env"),
        base_url_env: strings("base_url_env"),
        refused: strings("refused"),
        refusals,
    })
}

fn read_refused(text: &str) -> Option<Refused> {
    let (method, path) = text.split_once(' ')?;
    Some(Refused {
        method: (method != "*").then(|| method.to_owned()),
        path: PathPattern::parse(path).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_no_findings() {
        if let Err(found) = read(TEXT) {
            let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
            panic!("{}", shown.join("\n\n"));
        }
    }

    #[test]
    fn every_entry_is_usable() {
        for provider in providers() {
            let id = &provider.id;
            assert!(
                id.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{id}"
            );
            assert!(!provider.env.is_empty(), "{id} has no variable for its key");
            for name in provider.env.iter().chain(&provider.base_url_env) {
                let is_variable = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                assert!(name.bytes().all(is_variable), "{id}: {name}");
            }
            for slot in &provider.slots {
                if let Slot::Header { name, .. } = slot {
                    assert_eq!(*name, name.to_ascii_lowercase(), "{id}");
                }
            }
        }
    }

    #[test]
    fn a_placeholder_has_the_shape_of_a_real_key() {
        for provider in providers() {
            let mut seed = 7u8;
            let mut entropy = || {
                seed = seed.wrapping_mul(31).wrapping_add(17);
                seed
            };
            let value = provider.placeholder.fill(&mut entropy);
            assert!(value.len() >= 16, "{}: {value} can be guessed", provider.id);
            if let Some(pattern) = &provider.key_pattern {
                let whole = regex::RegexBuilder::new(&format!("^(?:{pattern})$"))
                    .unicode(false)
                    .build()
                    .unwrap();
                assert!(whole.is_match(&value), "{}: {value}", provider.id);
            }
        }
    }

    #[test]
    fn the_providers_that_examples_use_are_there() {
        for id in [
            "openai",
            "anthropic",
            "gemini",
            "mistral",
            "groq",
            "cohere",
            "huggingface",
            "replicate",
            "openrouter",
            "github",
            "gitlab",
            "stripe",
            "slack",
            "sendgrid",
            "notion",
            "twilio",
            "telegram",
        ] {
            assert!(provider(id).is_some(), "{id}");
        }
    }

    #[test]
    fn an_incomplete_entry_is_an_error() {
        assert!(read("version = 1\n[[provider]]\nid = \"x\"\n").is_err());
    }
}
