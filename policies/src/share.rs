//! What the steps that a policy names keep of its rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::arrange::Arranging;
use crate::explain;
use crate::index::HostIndex;
use crate::settings::Placed;
use crate::step::{StepName, StepRights, Steps};

/// What one step keeps.
#[derive(Default)]
pub(crate) struct Share {
    /// It has no network.
    pub(crate) is_cut_off: bool,
    /// Each has to allow a request as well, with the positions of its rules; the policy's own comes first.
    pub(crate) layers: Vec<(Arc<HostIndex>, Vec<u32>)>,
    /// Whether the first of them is the policy's own, and not a locked base's.
    pub(crate) has_own: bool,
}

/// What a policy and its locked bases say of steps.
#[derive(Default)]
pub(crate) struct Shares {
    own: Vec<(StepName, Placed<StepRights>)>,
    bases: Vec<(StepName, Placed<StepRights>)>,
}

/// The shares, and how they are told.
#[derive(Default)]
pub(crate) struct Arranged {
    pub(crate) shares: BTreeMap<StepName, Share>,
    pub(crate) canonical: Vec<CanonicalStep>,
    pub(crate) text: String,
}

/// A step in the canonical form: its name, whether it has no network, and the rules of each layer.
pub(crate) type CanonicalStep = (String, bool, Vec<Vec<String>>);

impl Shares {
    pub(crate) fn own(&mut self, steps: &Steps) {
        self.own.extend(steps.clone());
    }

    pub(crate) fn of_base(&mut self, steps: &Steps) {
        self.bases.extend(steps.clone());
    }

    /// Indexes what each step keeps.
    pub(crate) fn arrange(self, arranging: &mut Arranging) -> Arranged {
        let mut arranged = Arranged::default();
        let own = self.own.into_iter().map(|step| (step, true));
        let bases = self.bases.into_iter().map(|step| (step, false));
        let mut texts: BTreeMap<StepName, Vec<Vec<String>>> = BTreeMap::new();
        // All of the policy's own come first, so a base's never stands before one.
        for ((name, rights), is_own) in own.chain(bases) {
            explain::step(&name, &rights, is_own, &mut arranged.text);
            let share = arranged.shares.entry(name.clone()).or_default();
            let texts = texts.entry(name).or_default();
            share.is_cut_off |= rights.value.is_cut_off();
            if rights.value.allow.is_some() {
                let index = arranging.index(rights.value.rules);
                let ids = std::mem::take(&mut arranging.last);
                let mut rules = arranging.texts_of(&ids);
                rules.sort();
                texts.push(rules);
                share.layers.push((Arc::new(index), ids));
                share.has_own |= is_own;
            }
        }
        for (name, mut layers) in texts {
            let is_cut_off = arranged
                .shares
                .get(&name)
                .is_some_and(|share| share.is_cut_off);
            // Which layer is whose makes no difference to what is allowed.
            layers.sort();
            layers.dedup();
            arranged
                .canonical
                .push((name.to_string(), is_cut_off, layers));
        }
        arranged
    }
}
