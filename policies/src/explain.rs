//! How an effective policy is shown: in the grammar of the file, each rule with the place it came from.

use std::fmt::Write;

use crate::amount::Amount;
use crate::condition::Subject;
use crate::diagnostic::is_deceptive;
use crate::rule::{Effect, Mode, Rule};
use crate::sandbox::Sandbox;
use crate::settings::{Placed, Settings};
use crate::step::{StepName, StepRights};

/// The whole policy as text. Without locked bases, loading it gives the same policy again.
pub(crate) fn effective(
    rules: &[Rule],
    layers: &[Vec<u32>],
    denies: &[u32],
    settings: &Settings,
    sandbox: &Sandbox,
) -> String {
    let mut text = String::from("version = 1\n");
    let mut show = |ids: &[u32], margin: &str| {
        for rule in ids.iter().filter_map(|id| rules.get(*id as usize)) {
            let shown = show_rule(rule);
            for line in shown.lines() {
                text.push_str(margin);
                text.push_str(line);
                text.push('\n');
            }
        }
    };
    for (at, ids) in layers.iter().enumerate() {
        // A locked base is shown as a comment: it bounds the rules and is not one of them.
        show(ids, if at > 0 { "# locked base: " } else { "" });
    }
    show(denies, "");
    show_settings(settings, sandbox, &mut text);
    text
}

/// What is left to one step. What a locked base says of it is a comment: it bounds the step all the same.
pub(crate) fn step(name: &StepName, rights: &Placed<StepRights>, is_own: bool, text: &mut String) {
    let margin = if is_own { "" } else { "# locked base: " };
    let mut line = |line: String| {
        text.push_str(if line.is_empty() { "" } else { margin });
        text.push_str(&line);
        text.push('\n');
    };
    line(String::new());
    line(format!("# from {}", one_line(&rights.place())));
    line(format!("[steps.{}]", quoted(name.as_str())));
    if let Some(allow) = &rights.value.allow {
        let allow: Vec<_> = allow.iter().map(|text| quoted(&text.value)).collect();
        line(format!("allow = [{}]", allow.join(", ")));
    }
    if let Some(network) = &rights.value.network {
        line(format!("network = {}", quoted(network.value.as_str())));
    }
}

fn show_rule(rule: &Rule) -> String {
    let mut text = String::new();
    let (head, is_allow) = match rule.effect {
        Effect::Deny => ("[[deny]]", false),
        Effect::Allow => ("[[allow]]", true),
    };
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line(String::new());
    line(format!("# from {}", one_line(&rule.origin())));
    line(head.to_owned());
    if let Some(name) = rule.name() {
        line(format!("name = {}", quoted(name)));
    }
    match (rule.provider(), rule.hosts.as_slice()) {
        (Some(provider), hosts) => {
            line(format!("use = {}", quoted(provider)));
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            line(format!("# hosts: {}", hosts.join(", ")));
        }
        (None, hosts) => hosts
            .iter()
            .for_each(|host| line(format!("host = {}", quoted(&host.to_string())))),
    }
    if let Some(secret) = rule.secret() {
        line(format!("secret = {}", quoted(secret)));
    }
    if let Some(scheme) = rule.scheme {
        line(format!("scheme = {}", quoted(scheme.as_str())));
    }
    if !rule.ports.is_empty() {
        line(format!("ports = {:?}", rule.ports));
    }
    if rule.mode == Mode::Tunnel {
        line("mode = \"tunnel\"".to_owned());
    }
    if !rule.endpoints.is_empty() {
        let endpoints = rule.endpoints.iter().map(|e| quoted(&e.to_string()));
        line(format!(
            "only = [{}]",
            endpoints.collect::<Vec<_>>().join(", ")
        ));
        if is_allow {
            let mut refused: Vec<_> = rule
                .endpoints
                .iter()
                .flat_map(|e| e.refused.iter())
                .collect();
            refused.sort();
            refused.dedup();
            for endpoint in refused {
                line(format!("# but not {endpoint}, unless an endpoint names it"));
            }
        }
    }
    for condition in &rule.conditions {
        let values: Vec<_> = condition.values.iter().map(|value| quoted(value)).collect();
        let (kind, name) = match &condition.subject {
            Subject::Header(name) => ("header", name),
            Subject::Query(name) => ("query", name),
        };
        line(format!(
            "when.{kind}.{} = [{}]",
            quoted(name),
            values.join(", ")
        ));
    }
    if let Some(reason) = rule.reason() {
        line(format!("reason = {}", quoted(reason)));
    }
    text
}

fn show_settings(settings: &Settings, sandbox: &Sandbox, text: &mut String) {
    let list = |texts: &[String]| {
        let quoted: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
        quoted.join(", ")
    };
    let env: Vec<_> = sandbox
        .env
        .iter()
        .map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)))
        .collect();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    line("\n[budget]".to_owned());
    show_amounts(settings, &Amount::BUDGET, &mut line);
    line("\n[sandbox]".to_owned());
    line(format!(
        "workspace = {{ path = {}, mode = {} }}",
        quoted(&sandbox.workspace.path),
        quoted(sandbox.workspace.mode.as_str())
    ));
    line(format!("read = [{}]", list(&sandbox.read)));
    line(format!("hide = [{}]", list(&sandbox.hide)));
    line(format!("network = {}", quoted(sandbox.network.as_str())));
    line(format!("env = {{ {} }}", env.join(", ")));
    line("\n[limits]".to_owned());
    show_amounts(settings, &Amount::LIMITS, &mut line);
}

fn show_amounts(settings: &Settings, amounts: &[Amount], line: &mut impl FnMut(String)) {
    for amount in amounts {
        if let Some(placed) = settings.amounts.get(amount) {
            line(format!("{} = {}", amount.key(), amount.show(placed.value)));
        }
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            // Also what turns the direction of text: an approval must show what is there.
            c if c.is_control() || is_deceptive(c) => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn one_line(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() && !is_deceptive(*c))
        .collect()
}
