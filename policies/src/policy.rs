//! What a loaded policy holds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arrange::Arranging;
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
use crate::settings::Settings;
use crate::share::{Share, Shares};
use crate::step::StepName;

/// An effective policy: read, checked, with its bases and presets, ready to decide.
#[derive(Debug)]
pub struct Policy {
    /// In the order in which they are shown; nothing else depends on it. A step's share them with the policy.
    pub(crate) rules: Arc<Vec<Rule>>,
    /// The allows. Each layer alone has to allow a request; the first is the policy's own, the others are locked
    /// bases. None: nothing is allowed.
    pub(crate) layers: Vec<Arc<HostIndex>>,
    pub(crate) denies: Arc<HostIndex>,
    digest: Digest,
    needs_approval: bool,
    secrets: BTreeSet<String>,
    sandbox: Arc<Sandbox>,
    limits: Limits,
    budget: Budget,
    expectations: Arc<[Expectation]>,
    /// What is left to the steps that are named.
    steps: BTreeMap<StepName, Arc<Policy>>,
    // What `effective_toml` shows.
    layer_ids: Vec<Vec<u32>>,
    deny_ids: Arc<[u32]>,
    settings: Arc<Settings>,
    steps_text: String,
    recipe: Arc<Recipe>,
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
        let mut steps = Shares::default();
        steps.own(&unit.steps);
        for ceiling in unit.ceilings {
            if !ceiling.rules.is_empty() {
                arranging.layer(ceiling.rules);
            }
            steps.of_base(&ceiling.steps);
        }
        let denies_index = arranging.index(denies);
        let deny_ids = std::mem::take(&mut arranging.last);
        let deny_texts = arranging.texts_of(&deny_ids);
        let layer_texts: Vec<_> = arranging
            .layer_ids
            .iter()
            .map(|ids| arranging.texts_of(ids))
            .collect();
        let arranged = steps.arrange(&mut arranging);
        let canonical = canonical::policy(&layer_texts, &deny_texts, settings, &arranged.canonical);
        let is_harmless = arranging.layers.iter().all(|layer| layer.is_empty())
            && settings.is_within_defaults(defaults);
        let rules = Arc::new(arranging.rules);
        let whole = Self {
            digest: Digest::of(canonical.as_bytes()),
            needs_approval: !is_harmless,
            secrets: secrets(&rules, &arranging.layer_ids),
            sandbox: Arc::new(settings.sandbox()),
            limits: settings.limits(),
            budget: settings.budget(),
            expectations: expectations.into(),
            steps: BTreeMap::new(),
            settings: Arc::new(settings.clone()),
            steps_text: arranged.text,
            recipe: Arc::new(recipe),
            layers: arranging.layers,
            layer_ids: arranging.layer_ids,
            denies: Arc::new(denies_index),
            deny_ids: deny_ids.into(),
            rules,
        };
        let steps = arranged.shares.into_iter();
        Self {
            steps: steps
                .map(|(name, share)| (name, Arc::new(whole.narrowed(share))))
                .collect(),
            ..whole
        }
    }

    /// What a share leaves of this policy: the same policy, with layers on top that have to allow a request as well.
    fn narrowed(&self, share: Share) -> Self {
        let mut sandbox = Arc::clone(&self.sandbox);
        let (mut layers, mut layer_ids) = (Vec::new(), Vec::new());
        if share.is_cut_off {
            Arc::make_mut(&mut sandbox).network = NetworkMode::None;
        } else {
            // The policy's own allows stay: they say what is inspected, and a step may only have less.
            let (own, bases) = share.layers.split_at(usize::from(share.has_own));
            let index = |(index, _): &(Arc<HostIndex>, Vec<u32>)| Arc::clone(index);
            layers.extend(own.iter().map(index));
            layers.extend(self.layers.iter().cloned());
            layers.extend(bases.iter().map(index));
            // What is shown, and whose secrets count, is the step's share in the place of the policy's own allows.
            let ids = |(_, ids): &(Arc<HostIndex>, Vec<u32>)| ids.clone();
            layer_ids.extend(own.iter().map(ids));
            layer_ids.extend(self.layer_ids.iter().skip(own.len()).cloned());
            layer_ids.extend(bases.iter().map(ids));
        }
        Self {
            rules: Arc::clone(&self.rules),
            layers,
            denies: Arc::clone(&self.denies),
            digest: self.digest,
            needs_approval: self.needs_approval,
            secrets: secrets(&self.rules, &layer_ids),
            sandbox,
            limits: self.limits.clone(),
            budget: self.budget.clone(),
            expectations: Arc::clone(&self.expectations),
            steps: BTreeMap::new(),
            layer_ids,
            deny_ids: Arc::clone(&self.deny_ids),
            settings: Arc::clone(&self.settings),
            steps_text: String::new(),
            recipe: Arc::clone(&self.recipe),
        }
    }

    /// The rights of a step: less than the policy where a `[steps.NAME]` says so, else the policy itself.
    ///
    /// It decides as this policy does or refuses; its digest is the policy's.
    pub fn for_step(self: &Arc<Self>, name: Option<&str>) -> Arc<Self> {
        Arc::clone(name.and_then(|name| self.steps.get(name)).unwrap_or(self))
    }

    /// The steps that it gives rights of their own.
    pub fn steps(&self) -> impl Iterator<Item = &StepName> {
        self.steps.keys()
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

    /// Whether it uses the secret of this name.
    pub fn uses(&self, secret: &str) -> bool {
        self.secrets.contains(secret)
    }

    /// Every rule of the effective policy; of a step's, those that are left to it.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        let ids = self.layer_ids.iter().flatten().chain(&*self.deny_ids);
        ids.filter_map(|id| self.rules.get(*id as usize))
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
        let mut text = explain::effective(
            &self.rules,
            &self.layer_ids,
            &self.deny_ids,
            &self.settings,
            &self.sandbox,
        );
        text.push_str(&self.steps_text);
        text
    }
}

/// The secrets of the rules that the policy itself has; locked bases only bound them.
fn secrets(rules: &[Rule], layer_ids: &[Vec<u32>]) -> BTreeSet<String> {
    let own = layer_ids.first().into_iter().flatten();
    own.filter_map(|id| rules.get(*id as usize)?.secret.clone())
        .collect()
}
