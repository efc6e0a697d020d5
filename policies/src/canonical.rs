//! The one form of an effective policy that its digest is made of.
//!
//! It is JSON with a fixed order of keys and sorted lists: formatting, order, comments, file names and repeated rules
//! do not change it. A change of this form changes every digest, and owners are asked again.

use serde::Serialize;

use crate::condition::Subject;
use crate::rule::{Effect, Mode, Rule};
use crate::settings::Settings;
use crate::share::CanonicalStep;

/// The canonical text of one rule.
pub(crate) fn rule(rule: &Rule) -> String {
    let sorted = |mut texts: Vec<String>| {
        texts.sort();
        texts.dedup();
        texts
    };
    let canonical = CanonicalRule {
        effect: match rule.effect {
            Effect::Deny => "deny",
            Effect::Allow => "allow",
        },
        hosts: sorted(rule.hosts.iter().map(ToString::to_string).collect()),
        scheme: rule.scheme.map(|scheme| scheme.as_str()),
        ports: &rule.ports,
        mode: match rule.mode {
            Mode::Inspect => "inspect",
            Mode::Tunnel => "tunnel",
        },
        endpoints: {
            let mut endpoints: Vec<_> = rule
                .endpoints
                .iter()
                .map(|endpoint| CanonicalEndpoint {
                    endpoint: endpoint.to_string(),
                    refused: sorted(endpoint.refused.iter().map(ToString::to_string).collect()),
                })
                .collect();
            endpoints.sort();
            endpoints.dedup();
            endpoints
        },
        conditions: {
            let mut conditions: Vec<_> = rule
                .conditions
                .iter()
                .map(|condition| {
                    let (kind, name) = match &condition.subject {
                        Subject::Header(name) => ("header", name),
                        Subject::Query(name) => ("query", name),
                    };
                    (kind, name.as_str(), condition.values.as_slice())
                })
                .collect();
            conditions.sort();
            conditions
        },
        provider: rule.provider(),
        secret: rule.secret(),
        name: rule.name(),
        reason: rule.reason(),
    };
    json(&canonical)
}

/// The canonical text of a whole policy. `layers` and `denies` are canonical rules, `steps` are sorted.
pub(crate) fn policy(
    layers: &[Vec<String>],
    denies: &[String],
    settings: &Settings,
    steps: &[CanonicalStep],
) -> String {
    let sorted = |rules: &[String]| {
        let mut rules = rules.to_vec();
        rules.sort();
        rules.dedup();
        rules
    };
    let mut ceilings: Vec<_> = layers.iter().skip(1).map(|layer| sorted(layer)).collect();
    ceilings.sort();
    ceilings.dedup();
    let sandbox = settings.sandbox();
    let amounts = settings.amounts.iter();
    json(&CanonicalPolicy {
        version: 1,
        allow: layers
            .first()
            .map(|layer| sorted(layer))
            .unwrap_or_default(),
        ceilings,
        deny: sorted(denies),
        amounts: amounts
            .map(|(amount, placed)| (amount.key(), placed.value))
            .collect(),
        workspace: (&sandbox.workspace.path, sandbox.workspace.mode.as_str()),
        read: &sandbox.read,
        hide: &sandbox.hide,
        network: sandbox.network.as_str(),
        env: sandbox.env.iter().collect(),
        steps,
    })
}

#[derive(Serialize)]
struct CanonicalPolicy<'a> {
    version: u32,
    allow: Vec<String>,
    ceilings: Vec<Vec<String>>,
    deny: Vec<String>,
    amounts: Vec<(&'static str, u64)>,
    workspace: (&'a str, &'static str),
    read: &'a [String],
    hide: &'a [String],
    network: &'static str,
    env: Vec<(&'a String, &'a String)>,
    // Left out where there are none, so that policies without them keep the digest they had.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    steps: &'a [CanonicalStep],
}

#[derive(Serialize)]
struct CanonicalRule<'a> {
    effect: &'static str,
    hosts: Vec<String>,
    scheme: Option<&'static str>,
    ports: &'a [u16],
    mode: &'static str,
    endpoints: Vec<CanonicalEndpoint>,
    conditions: Vec<(&'static str, &'a str, &'a [String])>,
    provider: Option<&'a str>,
    secret: Option<&'a str>,
    name: Option<&'a str>,
    reason: Option<&'a str>,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct CanonicalEndpoint {
    endpoint: String,
    refused: Vec<String>,
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("these types have string keys and no maps that can fail")
}
