//! What an `[[allow]]` or a `[[deny]]` says.

use std::sync::Arc;

use super::{condition, endpoint, later};
use crate::catalogue::{self, Provider};
use crate::pattern::HostPattern;
use crate::reader::{At, Section, nearest};
use crate::rule::{Effect, Mode, Rule};
use crate::scheme::Scheme;
use crate::tenants;

/// Reads an `[[allow]]`.
pub(super) fn read_allow(section: &Section<'_>, file: &Arc<str>) -> Option<Rule> {
    later::read_rule(section);
    let mut rule = read_common(section, file, Effect::Allow)?;
    rule.secret = read_secret(section);
    rule.mode = read_mode(section)?;
    if rule.ports.is_empty() {
        rule.ports = vec![rule.scheme.unwrap_or(Scheme::Https).default_port()];
    }
    rule.scheme = Some(rule.scheme.unwrap_or(Scheme::Https));
    if rule.mode == Mode::Tunnel {
        check_tunnel(section);
    }
    if let (Some(_), Some(host)) = (&rule.secret, section.text("host")) {
        let is_shared = |pattern: &HostPattern| match pattern {
            HostPattern::Exact(_) => false,
            HostPattern::Below(name) => tenants::are_below(name),
        };
        if rule.hosts.iter().any(is_shared) {
            let message = format!("strangers have names below `{}`", shown(host.value));
            let hint = "a secret goes to hosts that are yours alone: name them exactly";
            section.refuse(&host.span, message, Some(hint.into()));
        }
    }
    Some(rule)
}

/// Reads a `[[deny]]`.
pub(super) fn read_deny(section: &Section<'_>, file: &Arc<str>) -> Option<Rule> {
    let mut rule = read_common(section, file, Effect::Deny)?;
    rule.reason = read_line(section, "reason", 500);
    Some(rule)
}

fn read_common(section: &Section<'_>, file: &Arc<str>, effect: Effect) -> Option<Rule> {
    let provider = read_provider(section);
    let hosts = read_hosts(section, provider, effect);
    let refusals = match effect {
        Effect::Allow => provider.map(|p| p.refusals.as_slice()).unwrap_or_default(),
        Effect::Deny => &[],
    };
    let (name, line) = (read_line(section, "name", 100), section.line());
    let rule = Rule {
        effect,
        label: match &name {
            Some(name) => name.as_str().into(),
            None => format!("{file}:{line}").into(),
        },
        name,
        provider: provider.map(|provider| provider.id.clone()),
        secret: None,
        reason: None,
        mode: Mode::Inspect,
        hosts: Vec::new(),
        ports: read_ports(section),
        scheme: read_scheme(section),
        endpoints: endpoint::read(section, refusals),
        conditions: condition::read(section),
        file: Arc::clone(file),
        line,
    };
    Some(Rule {
        hosts: hosts?,
        ..rule
    })
}

fn read_provider(section: &Section<'_>) -> Option<&'static Provider> {
    let id = section.text("use")?;
    let found = catalogue::provider(id.value);
    if found.is_none() {
        let ids = catalogue::providers().map(|provider| provider.id.as_str());
        let hint = match nearest(id.value, ids) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`valetkey providers list` shows them; or write `host` instead".to_owned(),
        };
        let message = format!("provider `{}` is not in the catalogue", shown(id.value));
        section.refuse(&id.span, message, Some(hint));
    }
    found
}

fn read_hosts(
    section: &Section<'_>,
    provider: Option<&Provider>,
    effect: Effect,
) -> Option<Vec<HostPattern>> {
    let named: Vec<&str> = ["use", "host", "postgres", "redis", "ssh", "tcp"]
        .into_iter()
        .filter(|key| section.has(key))
        .collect();
    match *named.as_slice() {
        [] => {
            let hint = "add `host = \"api.example.com\"` or `use = \"openai\"`".to_owned();
            section.refuse(section.span(), "the rule names no host", Some(hint));
            None
        }
        ["use"] => Some(provider?.hosts.clone()),
        ["host"] => {
            let text = section.text("host")?;
            let pattern = match effect {
                Effect::Allow => HostPattern::parse(text.value),
                Effect::Deny => HostPattern::parse_to_deny(text.value),
            };
            match pattern {
                Ok(pattern) => Some(vec![pattern]),
                Err(error) => {
                    let hint = error.hint().map(str::to_owned);
                    section.refuse(&text.span, error.to_string(), hint);
                    None
                }
            }
        }
        // Another protocol, which was reported as not supported yet.
        [_] => None,
        [first, second, ..] => {
            let message = format!("a rule has `{first}` or `{second}`, not both");
            section.refuse(section.span(), message, Some("write two rules".into()));
            None
        }
    }
}

fn read_scheme(section: &Section<'_>) -> Option<Scheme> {
    let text = section.text("scheme")?;
    let scheme = Scheme::parse(text.value);
    if scheme.is_none() {
        let hint = Some("write `https` or `http`".to_owned());
        section.refuse(&text.span, "`scheme` is neither `https` nor `http`", hint);
    }
    scheme
}

fn read_ports(section: &Section<'_>) -> Vec<u16> {
    let Some(item) = section.item("ports") else {
        return Vec::new();
    };
    let items = item.each().unwrap_or_default();
    if items.is_empty() {
        item.refuse(
            "`ports` names no port",
            Some("leave it out for the default".into()),
        );
    }
    let port = |port: At<i64>| u16::try_from(port.value).ok();
    let mut ports: Vec<u16> = items
        .iter()
        .filter_map(|item| item.integer(1..=65_535).and_then(port))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn read_secret(section: &Section<'_>) -> Option<String> {
    let text = section.text("secret")?;
    let is_name = !text.value.is_empty()
        && text.value.len() <= 100
        && text
            .value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !is_name {
        let message = "a secret's name has letters, digits, `-`, `_` and `.`, at most 100";
        let hint = "it is the owner's name for the secret, never the secret itself";
        section.refuse(&text.span, message, Some(hint.into()));
        return None;
    }
    Some(text.value.to_owned())
}

fn read_mode(section: &Section<'_>) -> Option<Mode> {
    let Some(item) = section.item("mode") else {
        return Some(Mode::Inspect);
    };
    let text = item.text()?;
    match text.value {
        "inspect" => Some(Mode::Inspect),
        "tunnel" => Some(Mode::Tunnel),
        _ => {
            let hint = Some("write `inspect` or `tunnel`".to_owned());
            item.refuse("`mode` is neither `inspect` nor `tunnel`", hint);
            None
        }
    }
}

/// What passes unread cannot be judged or changed.
fn check_tunnel(section: &Section<'_>) {
    for key in ["use", "secret", "methods", "paths", "only", "query", "when"] {
        if let Some(item) = section.item(key) {
            let message = format!("`{key}` cannot hold in a tunnel: nothing in it is read");
            item.refuse(message, Some("remove it, or remove `mode`".into()));
        }
    }
}

/// One line of text for people.
fn read_line(section: &Section<'_>, key: &str, most: usize) -> Option<String> {
    let text = section.text(key)?;
    if text.value.is_empty() || text.value.len() > most || text.value.contains(char::is_control) {
        let message = format!("`{key}` is one line of at most {most} bytes");
        section.refuse(&text.span, message, None);
        return None;
    }
    Some(text.value.to_owned())
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}
