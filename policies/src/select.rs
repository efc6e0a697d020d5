//! Which rules the `allow` of a step means: by a rule's name, by a provider, or by a host.

use std::collections::{BTreeMap, HashMap};

use crate::host::Host;
use crate::pattern::HostPattern;
use crate::reader::{Findings, nearest};
use crate::rule::Rule;
use crate::settings::Placed;
use crate::step::Steps;

/// Finds the rules that each step's `allow` means, among the allows that the steps may name.
///
/// Named by its host, a rule is left to the step for that host only: a step may only have less.
pub(crate) fn select(
    steps: &mut Steps,
    allows: &[&Placed<Rule>],
    findings: &Findings,
    room: &mut usize,
) {
    if steps.is_empty() {
        return;
    }
    let known = Known::of(allows);
    for rights in steps.values_mut() {
        let mut chosen: BTreeMap<usize, Chosen> = BTreeMap::new();
        for text in rights.value.allow.iter().flatten() {
            if !known.choose(&text.value, &mut chosen) {
                let message = format!("no rule is called `{}` or is for it", shown(&text.value));
                text.refuse(findings, message, Some(known.hint(&text.value)));
            }
        }
        if chosen.len() > *room {
            rights.refuse(findings, "the steps name too many rules".to_owned(), None);
            return;
        }
        *room -= chosen.len();
        rights.value.rules = chosen
            .into_iter()
            .filter_map(|(at, chosen)| Some(chosen.of((*allows.get(at)?).clone())))
            .collect();
    }
}

/// What is left of a rule.
enum Chosen {
    Whole,
    Hosts(Vec<HostPattern>),
}

impl Chosen {
    fn of(self, mut rule: Placed<Rule>) -> Placed<Rule> {
        if let Self::Hosts(hosts) = self {
            rule.value.hosts = hosts;
        }
        rule
    }
}

/// The rules by everything they can be named by.
struct Known<'r> {
    names: HashMap<&'r str, Vec<usize>>,
    hosts: HashMap<&'r HostPattern, Vec<usize>>,
}

impl<'r> Known<'r> {
    fn of(allows: &[&'r Placed<Rule>]) -> Self {
        let (mut names, mut hosts) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (at, rule) in allows.iter().enumerate() {
            for name in [rule.value.name(), rule.value.provider()]
                .into_iter()
                .flatten()
            {
                names.entry(name).or_default().push(at);
            }
            for host in rule.value.hosts() {
                hosts.entry(host).or_default().push(at);
            }
        }
        Self { names, hosts }
    }

    /// Adds what a text means; whether it means anything.
    fn choose(&self, text: &str, chosen: &mut BTreeMap<usize, Chosen>) -> bool {
        let by_name = self.names.get(text);
        for at in by_name.into_iter().flatten() {
            chosen.insert(*at, Chosen::Whole);
        }
        let pattern = HostPattern::parse(text).ok();
        let by_host = pattern.as_ref().and_then(|host| self.hosts.get(host));
        for (at, host) in by_host.into_iter().flatten().zip(pattern.iter().cycle()) {
            let so_far = chosen
                .entry(*at)
                .or_insert_with(|| Chosen::Hosts(Vec::new()));
            if let Chosen::Hosts(hosts) = so_far
                && !hosts.contains(host)
            {
                hosts.push(host.clone());
            }
        }
        by_name.is_some() || by_host.is_some()
    }

    /// What may have been meant.
    fn hint(&self, text: &str) -> String {
        if let Ok(host) = Host::parse(text)
            && let Some(wide) = self.hosts.keys().filter(|wide| wide.matches(&host)).min()
        {
            return format!(
                "a rule is for `{wide}`; name it so, or give the host a rule of its own"
            );
        }
        let hosts: Vec<String> = self.hosts.keys().map(ToString::to_string).collect();
        let mut known: Vec<&str> = self.names.keys().copied().collect();
        known.extend(hosts.iter().map(String::as_str));
        known.sort_unstable();
        match nearest(text, known.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None if known.is_empty() => "there is no `[[allow]]`".to_owned(),
            None => {
                let more = known.len().saturating_sub(SHOWN);
                known.truncate(SHOWN);
                let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                format!("the rules go by {}{more}", known.join(", "))
            }
        }
    }
}

/// A text of the author's, as much as is worth showing.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

const SHOWN: usize = 8;

/// How many rules all steps of a policy may name together: each is kept once for each step that names it.
pub(crate) const MOST_SELECTED: usize = 65_536;
