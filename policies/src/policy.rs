//! What a loaded policy holds.

use std::collections::{BTreeSet, HashSet};

use crate::canonical;
use crate::diagnostic::Diagnostic;
use crate::digest::Digest;
use crate::explain;
use crate::extend::Unit;
use crate::index::HostIndex;
use crate::limits::{Budget, Limits};
use crate::load::{self, NoSources};
use crate::recipe::Recipe;
use crate::rule::{Effect, Rule};
use crate::sample::Expectation;
use crate::sandbox::{NetworkMode, Sandbox};
use crate::settings::{Placed, Settings};

/// An effective policy: read, checked, with its bases and presets, ready to decide.
#[derive(Debug)]
pub struct Policy {
    /// In the order in which they are shown; nothing else depends on it.
    pub(crate) rules: Vec<Rule>,
    /// The allows. Each layer alone has to allow a request; the first is the policy's own, the others are locked
    /// bases. None: nothing is allowed.
    pub(crate) layers: Vec<HostIndex>,
    pub(crate) denies: HostIndex,
    digest: Digest,
    needs_approval: bool,
    secrets: BTreeSet<String>,
    sandbox: Sandbox,
    limits: Limits,
    budget: Budget,
    expectations: Vec<Expectation>,
    // What `effective_toml` shows.
    layer_ids: Vec<Vec<u32>>,
    deny_ids: Vec<u32>,
    settings: Settings,
    recipe: Recipe,
}

impl Policy {
    /// What holds where there is no policy file: an overlay of the workspace, no network, default limits.
    pub fn default_for_no_file() -> Self {
        let defaults = load::defaults();
        let mut settings = defaults.clone();
        if let Some(network) = &mut settings.network {
            network.value = NetworkMode::None;
        }
        Self::build(
            Unit::default(),
            &settings,
            &defaults,
            Vec::new(),
            Recipe::default(),
        )
    }

    /// Reads a policy given as JSON of the same model. It cannot extend files or package presets.
    pub fn from_json(text: &str) -> Result<Self, Vec<Diagnostic>> {
        load::load_json(text, &mut NoSources)
    }

    /// Puts together what was read. Nothing here can fail: what is wrong was found before.
    pub(crate) fn build(
        unit: Unit,
        settings: &Settings,
        defaults: &Settings,
        expectations: Vec<Expectation>,
        recipe: Recipe,
    ) -> Self {
        let mut arranging = Arranging::default();
        let (allows, denies): (Vec<_>, Vec<_>) = unit
            .rules
            .into_iter()
            .partition(|rule| rule.value.effect == Effect::Allow);
        // A file without any allow that extends a locked base has what the base has.
        if !allows.is_empty() || unit.ceilings.is_empty() {
            arranging.layer(allows);
        }
        for ceiling in unit.ceilings {
            if !ceiling.rules.is_empty() {
                arranging.layer(ceiling.rules);
            }
        }
        let denies_index = arranging.index(denies);
        let deny_texts = arranging.texts_of(&arranging.last);
        let layer_texts: Vec<_> = arranging
            .layer_ids
            .iter()
            .map(|ids| arranging.texts_of(ids))
            .collect();
        let canonical = canonical::policy(&layer_texts, &deny_texts, settings);
        let secrets: BTreeSet<String> = arranging
            .layer_ids
            .first()
            .into_iter()
            .flatten()
            .filter_map(|id| arranging.rules.get(*id as usize)?.secret.clone())
            .collect();
        let is_harmless = arranging.layers.iter().all(HostIndex::is_empty)
            && settings.is_within_defaults(defaults);
        Self {
            digest: Digest::of(canonical.as_bytes()),
            needs_approval: !is_harmless,
            secrets,
            sandbox: settings.sandbox(),
            limits: settings.limits(),
            budget: settings.budget(),
            expectations,
            settings: settings.clone(),
            recipe,
            rules: arranging.rules,
            layers: arranging.layers,
            layer_ids: arranging.layer_ids,
            denies: denies_index,
            deny_ids: arranging.last,
        }
    }

    /// The hash of the canonical effective policy; formatting, order and file names do not change it.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Whether the owner has to approve it: it asks for a host, a secret, an extra path or more than the defaults.
    pub fn needs_approval(&self) -> bool {
        self.needs_approval
    }

    /// The names of the secrets that it uses, each once, sorted.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(String::as_str)
    }

    /// Every rule of the effective policy.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// How the sandbox looks.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// What bounds each step.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the whole run may spend.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The `[[test]]`s of the file itself; those of its bases are about the bases.
    pub fn tests(&self) -> &[Expectation] {
        &self.expectations
    }

    /// What it was read from.
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The effective policy as text in the grammar of the file, each rule with the place it came from.
    pub fn effective_toml(&self) -> String {
        explain::effective(&self.rules, &self.layer_ids, &self.deny_ids, &self.settings)
    }
}

/// The rules on their way into a policy.
#[derive(Default)]
struct Arranging {
    rules: Vec<Rule>,
    texts: Vec<String>,
    layers: Vec<HostIndex>,
    layer_ids: Vec<Vec<u32>>,
    last: Vec<u32>,
}

impl Arranging {
    fn layer(&mut self, rules: Vec<Placed<Rule>>) {
        let index = self.index(rules);
        self.layers.push(index);
        self.layer_ids.push(std::mem::take(&mut self.last));
    }

    /// Indexes rules, each once however often it was written; `last` has their positions then.
    fn index(&mut self, rules: Vec<Placed<Rule>>) -> HostIndex {
        let mut index = HostIndex::default();
        let mut seen: HashSet<String> = HashSet::new();
        self.last = Vec::new();
        for rule in rules {
            let text = canonical::rule(&rule.value);
            if !seen.insert(text.clone()) {
                continue;
            }
            let Ok(id) = u32::try_from(self.rules.len()) else {
                // Four thousand million rules do not fit into memory.
                break;
            };
            for pattern in &rule.value.hosts {
                index.insert(pattern, id);
            }
            self.rules.push(rule.value);
            self.texts.push(text);
            self.last.push(id);
        }
        index
    }

    fn texts_of(&self, ids: &[u32]) -> Vec<String> {
        let text = |id: &u32| self.texts.get(*id as usize).cloned();
        ids.iter().filter_map(text).collect()
    }
}
