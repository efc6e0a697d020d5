//! What a file and everything it extends say together.

use std::sync::Arc;

use crate::load::{Origin, Sources};
use crate::path_pattern::PathPattern;
use crate::pattern::HostPattern;
use crate::presets;
use crate::read::{self, File};
use crate::reader::{Findings, SourceText, nearest, parse_toml};
use crate::rule::{Effect, Endpoint, Mode, Rule};
use crate::sandbox::NetworkMode;
use crate::select::{MOST_SELECTED, select};
use crate::settings::{Placed, Settings};
use crate::step::Steps;

/// A file with its bases.
#[derive(Debug, Default)]
pub(crate) struct Unit {
    /// Its rules and those of its unlocked bases; the denies of locked bases too.
    pub(crate) rules: Vec<Placed<Rule>>,
    pub(crate) settings: Settings,
    /// What it says of steps.
    pub(crate) steps: Steps,
    /// The locked bases.
    pub(crate) ceilings: Vec<Ceiling>,
}

/// The allows of a locked base, with what it leaves of them to steps: what extends it can only be narrower.
#[derive(Debug)]
pub(crate) struct Ceiling {
    pub(crate) rules: Vec<Placed<Rule>>,
    pub(crate) steps: Steps,
}

/// The walk over a file's bases.
pub(crate) struct Extending<'s> {
    sources: &'s mut dyn Sources,
    findings: &'s Findings,
    /// The files that are being read, each extended by the one before.
    open: Vec<String>,
    read_so_far: usize,
    /// How many more rules the steps may name.
    room: usize,
}

impl<'s> Extending<'s> {
    pub(crate) fn new(sources: &'s mut dyn Sources, findings: &'s Findings) -> Self {
        Self {
            sources,
            findings,
            open: Vec::new(),
            read_so_far: 0,
            room: MOST_SELECTED,
        }
    }

    /// Puts a file together with its bases.
    pub(crate) fn resolve(&mut self, file: File, name: &str) -> Unit {
        self.open.push(name.to_owned());
        let mut unit = Unit {
            rules: file.rules,
            ..Unit::default()
        };
        let mut unlocked: Option<Settings> = None;
        let mut locked: Vec<Settings> = Vec::new();
        let mut inherited = Steps::new();
        for base in &file.extends {
            let Some((base, is_locked)) = self.base(base, name) else {
                continue;
            };
            unit.ceilings.extend(base.ceilings);
            if is_locked {
                let (allows, denies) = base
                    .rules
                    .into_iter()
                    .partition(|rule| rule.value.effect == Effect::Allow);
                unit.ceilings.push(Ceiling {
                    rules: allows,
                    steps: base.steps,
                });
                unit.rules.extend::<Vec<_>>(denies);
                locked.push(base.settings);
            } else {
                unit.rules.extend(base.rules);
                inherit(&mut inherited, base.steps, &file.steps, self.findings);
                unlocked = Some(match unlocked {
                    None => base.settings,
                    Some(before) => before.beside(base.settings, self.findings),
                });
            }
        }
        let settings = file.settings.over(unlocked.unwrap_or_default());
        unit.settings = locked
            .into_iter()
            .fold(settings, |narrow, base| narrow.within(base, self.findings));
        unit.steps = file.steps;
        self.settle_steps(&mut unit);
        for (name, rights) in inherited {
            unit.steps.entry(name).or_insert(rights);
        }
        self.open.pop();
        unit
    }

    /// Finds what the file's own steps mean, and whether none has more than the run or a locked base leaves it.
    fn settle_steps(&mut self, unit: &mut Unit) {
        for (name, rights) in &unit.steps {
            let Some(network) = rights.value.network.as_ref() else {
                continue;
            };
            if network.value == NetworkMode::None {
                continue;
            }
            let run = unit.settings.network.as_ref();
            if run.is_some_and(|run| run.value < network.value) {
                let message = "the run has no network, and a step may only have less".to_owned();
                network.refuse(self.findings, message, None);
            }
            let mut bases = unit.ceilings.iter().filter_map(|base| base.steps.get(name));
            if bases.any(|base| base.value.is_cut_off()) {
                let message = format!("the locked base leaves the step `{name}` no network");
                network.refuse(self.findings, message, None);
            }
        }
        let is_allow = |rule: &&Placed<Rule>| rule.value.effect == Effect::Allow;
        let mut allows: Vec<_> = unit.rules.iter().filter(is_allow).collect();
        if allows.is_empty() {
            // A file without any allow that extends a locked base has what the base has.
            allows = unit.ceilings.iter().flat_map(|base| &base.rules).collect();
        }
        select(&mut unit.steps, &allows, self.findings, &mut self.room);
    }

    /// One base, and whether it is locked.
    fn base(&mut self, reference: &Placed<String>, from: &str) -> Option<(Unit, bool)> {
        match reference.value.strip_prefix("preset:") {
            Some(preset) => self.preset(reference, preset),
            None => self.file(reference, from),
        }
    }

    fn preset(&mut self, reference: &Placed<String>, preset: &str) -> Option<(Unit, bool)> {
        if presets::PACKAGES.contains(&preset) {
            return match self.sources.packages(preset) {
                Ok(origins) => Some((self.packages(reference, preset, &origins), false)),
                Err(error) => {
                    let hint = "configure the package manager's index, or leave the preset out";
                    let message = format!("the hosts of `{preset}` are not known: {error}");
                    reference.refuse(self.findings, message, Some(hint.into()));
                    None
                }
            };
        }
        let Some(text) = presets::text(preset) else {
            let hint = match nearest(preset, presets::names()) {
                Some(meant) => format!("did you mean `preset:{meant}`?"),
                None => format!(
                    "the presets are {}",
                    presets::names().collect::<Vec<_>>().join(", ")
                ),
            };
            reference.refuse(self.findings, "there is no such preset".into(), Some(hint));
            return None;
        };
        let name = format!("preset:{preset}");
        self.text(reference, &name, text.to_owned())
    }

    fn file(&mut self, reference: &Placed<String>, from: &str) -> Option<(Unit, bool)> {
        let path = &reference.value;
        if from.starts_with("preset:") || !is_inside(path) {
            let message = "`extends` names files inside the policy's own folder".to_owned();
            let hint = "a relative path without `..`, or `preset:NAME`".to_owned();
            reference.refuse(self.findings, message, Some(hint));
            return None;
        }
        match self.sources.document(from, path) {
            Ok(document) => self.text(reference, &document.name, document.text),
            Err(error) => {
                let message = format!("`{path}` cannot be read: {error}");
                reference.refuse(self.findings, message, None);
                None
            }
        }
    }

    fn text(
        &mut self,
        reference: &Placed<String>,
        name: &str,
        text: String,
    ) -> Option<(Unit, bool)> {
        if self.open.iter().any(|open| open == name) {
            let message = format!("`{name}` extends itself in the end");
            reference.refuse(
                self.findings,
                message,
                Some("remove one of the `extends`".into()),
            );
            return None;
        }
        self.read_so_far += 1;
        if self.open.len() > MAX_DEPTH || self.read_so_far > MAX_FILES {
            reference.refuse(
                self.findings,
                "too many files extend each other".into(),
                None,
            );
            return None;
        }
        let source = SourceText::new(name, text);
        let root = parse_toml(&source, self.findings);
        let file = read::read(&source, &root, self.findings);
        let is_locked = file.is_locked;
        let unit = self.resolve(file, name);
        let allows_nothing = unit.ceilings.is_empty()
            && unit
                .rules
                .iter()
                .all(|rule| rule.value.effect == Effect::Deny);
        if is_locked && allows_nothing {
            let message =
                format!("the locked base `{name}` allows nothing, so nothing can be allowed");
            reference.refuse(
                self.findings,
                message,
                Some("add an `[[allow]]` to the base".into()),
            );
        }
        Some((unit, is_locked))
    }

    /// Rules that let a package manager read from its own hosts.
    fn packages(&self, reference: &Placed<String>, preset: &str, origins: &[Origin]) -> Unit {
        let file: Arc<str> = format!("preset:{preset}").into();
        let mut unit = Unit::default();
        for origin in origins {
            let path = match PathPattern::below(&origin.path) {
                Ok(path) => path,
                Err(error) => {
                    let message = format!("`{preset}` has a path that cannot be a rule: {error}");
                    reference.refuse(self.findings, message, None);
                    continue;
                }
            };
            let endpoint = |method: &str| Endpoint {
                method: Some(method.to_owned()),
                path: path.clone(),
                refused: Arc::new([]),
            };
            let rule = Rule {
                effect: Effect::Allow,
                name: Some(preset.to_owned()),
                provider: None,
                secret: None,
                reason: None,
                mode: Mode::Inspect,
                hosts: vec![HostPattern::Exact(origin.host.clone())],
                ports: vec![origin.port],
                scheme: Some(origin.scheme),
                endpoints: vec![endpoint("GET"), endpoint("HEAD")],
                conditions: Vec::new(),
                file: Arc::clone(&file),
                line: 1,
                label: preset.into(),
            };
            unit.rules.push(Placed {
                value: rule,
                source: reference.source.clone(),
                span: reference.span.clone(),
            });
        }
        unit
    }
}

/// Takes over what an unlocked base says of steps. Where two say it of the same step, the file itself has to.
fn inherit(inherited: &mut Steps, base: Steps, own: &Steps, findings: &Findings) {
    for (name, rights) in base {
        if let Some(before) = inherited.get(&name)
            && !own.contains_key(&name)
        {
            let message = format!("{} gives the step `{name}` rights as well", before.place());
            let hint = "say it in the file that extends both".to_owned();
            rights.refuse(findings, message, Some(hint));
        }
        inherited.insert(name, rights);
    }
}

const MAX_DEPTH: usize = 16;
const MAX_FILES: usize = 256;

/// Whether a path stays inside a folder, as far as its text says; links are for whoever opens it.
fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\\', ':'])
        && !path.contains(char::is_control)
        && !path.starts_with(['/', '~'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
