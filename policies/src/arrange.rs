//! Where the rules of a policy stand, each once however often it was written.

use std::collections::HashSet;
use std::sync::Arc;

use crate::canonical;
use crate::index::HostIndex;
use crate::rule::Rule;
use crate::settings::Placed;

/// The rules on their way into a policy.
#[derive(Default)]
pub(crate) struct Arranging {
    pub(crate) rules: Vec<Rule>,
    texts: Vec<String>,
    pub(crate) layers: Vec<Arc<HostIndex>>,
    pub(crate) layer_ids: Vec<Vec<u32>>,
    /// The positions of the rules that were indexed last.
    pub(crate) last: Vec<u32>,
}

impl Arranging {
    /// Adds rules that have to allow a request by themselves.
    pub(crate) fn layer(&mut self, rules: Vec<Placed<Rule>>) {
        let index = self.index(rules);
        self.layers.push(Arc::new(index));
        self.layer_ids.push(std::mem::take(&mut self.last));
    }

    /// Indexes rules, each once however often it was written; `last` has their positions then.
    pub(crate) fn index(&mut self, rules: Vec<Placed<Rule>>) -> HostIndex {
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

    /// The canonical texts of rules.
    pub(crate) fn texts_of(&self, ids: &[u32]) -> Vec<String> {
        let text = |id: &u32| self.texts.get(*id as usize).cloned();
        ids.iter().filter_map(text).collect()
    }
}
