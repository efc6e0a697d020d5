//! Which rules are about a host, found in a time that does not grow with the number of rules.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::host::{Host, Name};
use crate::pattern::HostPattern;

/// Rules by their hosts: one look-up for the host itself and one for each depth at which a `*.` stands.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    exact: HashMap<Host, Ids, RandomState>,
    below: HashMap<Box<str>, Ids, RandomState>,
    /// Bit n is set if a `*.` stands over a name of n labels. A name has at most 127.
    depths: u128,
}

/// Positions in the policy's list of rules.
type Ids = SmallVec<[u32; 4]>;

impl HostIndex {
    /// Adds a rule under one of its hosts.
    pub(crate) fn insert(&mut self, pattern: &HostPattern, id: u32) {
        let ids = match pattern {
            HostPattern::Exact(host) => match self.exact.get_mut(host) {
                Some(ids) => ids,
                None => self.exact.entry(host.clone()).or_default(),
            },
            HostPattern::Below(name) => {
                self.depths |= 1 << depth(name.as_str());
                self.below.entry(name.as_str().into()).or_default()
            }
        };
        if ids.last() != Some(&id) {
            ids.push(id);
        }
    }

    /// Whether no rule is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.below.is_empty()
    }

    /// The rules about a host. A rule is given twice if two of its patterns match.
    pub(crate) fn candidates<'i>(&'i self, host: &'i Host) -> impl Iterator<Item = u32> + 'i {
        let exact = self.exact.get(host);
        let below = host
            .name()
            .filter(|_| self.depths != 0)
            .into_iter()
            .flat_map(|name| self.parents(name));
        exact.into_iter().chain(below).flatten().copied()
    }

    fn parents<'i>(&'i self, name: &'i Name) -> impl Iterator<Item = &'i Ids> + 'i {
        self.probes(name.as_str())
            .filter_map(|parent| self.below.get(parent))
    }

    /// What is looked up for the names above a name: at most one for each of its dots.
    fn probes<'i>(&'i self, name: &'i str) -> impl Iterator<Item = &'i str> + 'i {
        let total = depth(name);
        name.match_indices('.')
            .enumerate()
            .filter(move |(at, _)| self.depths >> (total - *at as u32 - 1) & 1 == 1)
            .map(|(_, (dot, _))| &name[dot + 1..])
    }
}

/// How many labels a name has.
fn depth(name: &str) -> u32 {
    1 + name.bytes().filter(|byte| *byte == b'.').count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(hosts: u32) -> HostIndex {
        let mut index = HostIndex::default();
        for number in 0..hosts {
            let exact = HostPattern::parse(&format!("api{number}.example")).unwrap();
            let below = HostPattern::parse(&format!("*.zone{number}.example")).unwrap();
            index.insert(&exact, 2 * number);
            index.insert(&below, 2 * number + 1);
        }
        index
    }

    // What a decision does is counted, not timed: a machine that is busy must not fail a test.
    #[test]
    fn a_hundred_thousand_hosts_are_looked_up_in_as_many_steps_as_ten() {
        let (few, many) = (index(10), index(100_000));
        for name in [
            "api7.example",
            "a.b.zone7.example",
            "evil.example",
            "x.y.z.w.v.example",
        ] {
            let host = Host::parse(name).unwrap();
            assert_eq!(
                few.probes(name).collect::<Vec<_>>(),
                many.probes(name).collect::<Vec<_>>()
            );
            assert!(many.probes(name).count() <= 1, "{name}");
            assert_eq!(
                few.candidates(&host).collect::<Vec<_>>(),
                many.candidates(&host).collect::<Vec<_>>()
            );
        }
    }
}
