//! How the text of a policy and its bases become a policy.

use serde::{Deserialize, Serialize};

use crate::diagnostic::Diagnostic;
use crate::extend::{Ceiling, Extending, Unit};
use crate::host::Host;
use crate::policy::Policy;
use crate::read;
use crate::reader::{Findings, Node, SourceText, parse_json, parse_toml};
use crate::recipe::Recorder;
use crate::scheme::Scheme;
use crate::settings::Settings;

/// A policy file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The file's name, as diagnostics show it and as it is given back to [`Sources`].
    pub name: String,
    /// Its whole text.
    pub text: String,
}

/// Where a host of packages is, as the owner's own client is configured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// How it is reached.
    pub scheme: Scheme,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The path below which everything is, such as `/simple`; `/` for all of the host.
    pub path: String,
}

/// Gives what a policy refers to; the one who implements it does the reading.
pub trait Sources {
    /// The file that `extends` of the file `from` names by a relative path without `..`.
    ///
    /// It must refuse what leaves the policy's folder, through symbolic links too.
    fn document(&mut self, from: &str, path: &str) -> Result<Document, String>;

    /// The hosts that the owner's clients take packages from, for a preset such as `python-packages`.
    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String>;
}

/// Reads a policy with everything it extends. Every error is reported, not only the first.
pub fn load(root: Document, sources: &mut dyn Sources) -> Result<Policy, Vec<Diagnostic>> {
    let recorder = Recorder::of_toml(&root, sources);
    let source = SourceText::new(root.name, root.text);
    load_source(&source, parse_toml, recorder)
}

/// Reads a policy given as JSON of the same model.
pub fn load_json(text: &str, sources: &mut dyn Sources) -> Result<Policy, Vec<Diagnostic>> {
    let source = SourceText::without_spans("json", text);
    load_source(&source, parse_json, Recorder::of_json(text, sources))
}

/// Gives nothing: for policies that come alone.
pub(crate) struct NoSources;

impl Sources for NoSources {
    fn document(&mut self, _from: &str, _path: &str) -> Result<Document, String> {
        Err("a policy given this way cannot extend files".to_owned())
    }

    fn packages(&mut self, _preset: &str) -> Result<Vec<Origin>, String> {
        Err("a policy given this way cannot extend package presets".to_owned())
    }
}

type Parse = fn(&SourceText, &Findings) -> Node;

fn load_source(
    source: &SourceText,
    parse: Parse,
    mut recorder: Recorder<'_>,
) -> Result<Policy, Vec<Diagnostic>> {
    let findings = Findings::default();
    let root = parse(source, &findings);
    let file = read::read(source, &root, &findings);
    let expectations = file.expectations.clone();
    let mut extending = Extending::new(&mut recorder, &findings);
    let unit = extending.resolve(file, source.name());
    let defaults = defaults();
    let settings = unit.settings.clone().over(defaults.clone());
    check_secrets(&unit, &findings);
    let policy = Policy::build(unit, &settings, &defaults, expectations, recorder.finish());
    findings.into_result(policy)
}

/// The settings of `defaults.toml`.
pub(crate) fn defaults() -> Settings {
    let source = SourceText::new("defaults.toml", include_str!("../defaults.toml"));
    // A test reads the file and fails on any finding.
    let findings = Findings::default();
    let root = parse_toml(&source, &findings);
    read::read(&source, &root, &findings).settings
}

/// A secret that a locked base does not use is more than the base allows.
fn check_secrets(unit: &Unit, findings: &Findings) {
    for rule in &unit.rules {
        let Some(secret) = rule.value.secret() else {
            continue;
        };
        let is_in = |ceiling: &Ceiling| {
            let mut rules = ceiling.rules.iter();
            rules.any(|rule| rule.value.secret() == Some(secret))
        };
        if !unit.ceilings.iter().all(is_in) {
            let message = format!("the locked base does not use the secret `{secret}`");
            rule.refuse(findings, message, None);
        }
    }
}

#[cfg(test)]
mod tests;
