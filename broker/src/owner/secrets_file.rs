//! What `secrets.toml` says: for each secret where it comes from, and to which hosts it may ever be sent.

use std::path::{Path, PathBuf};

use policies::reader::{Findings, Item, Section, SourceText, parse_json, parse_toml};
use policies::{Diagnostic, HostPattern, Provider, Slot, catalogue};

use crate::source::Source;

use super::binding::Binding;
use super::inject;

/// The owner's home, for paths that begin with `~/`.
#[derive(Clone, Debug)]
pub(crate) struct Home(pub(crate) Option<PathBuf>);

/// Every binding of the text of a `secrets.toml`.
pub(crate) fn parse(name: &str, text: &str, home: &Home) -> Result<Vec<Binding>, Vec<Diagnostic>> {
    let source = SourceText::new(name, text);
    let findings = Findings::default();
    let root = parse_toml(&source, &findings);
    let bindings = read(&Section::open_map(&source, &findings, &root, ""), home);
    findings.into_result(bindings)
}

/// The binding of a secret that we keep ourselves, which is written as JSON of the same model.
pub(crate) fn parse_kept(text: &str, home: &Home) -> Result<Vec<Binding>, Vec<Diagnostic>> {
    let source = SourceText::without_spans("the kept binding", text);
    let findings = Findings::default();
    let root = parse_json(&source, &findings);
    let bindings = read(&Section::open_map(&source, &findings, &root, ""), home);
    findings.into_result(bindings)
}

/// Why a text cannot be the name of a secret; none if it can.
pub(crate) fn check_name(name: &str) -> Option<&'static str> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_good) {
        Some("the name of a secret has letters, digits, `-`, `_` and `.`, and at most 64 of them")
    } else {
        None
    }
}

fn read(root: &Section<'_>, home: &Home) -> Vec<Binding> {
    root.items()
        .filter_map(|item| binding(&item, home))
        .collect()
}

fn binding(item: &Item<'_, '_>, home: &Home) -> Option<Binding> {
    let name = item.key().text.as_str();
    let section = item.section(KEYS);
    if let Some(why) = check_name(name) {
        item.refuse(why, None);
        return None;
    }
    for key in ["limits", "capture"] {
        if let Some(item) = section.item(key) {
            item.not_supported_yet();
        }
    }
    let source = source(&section, name, home);
    let target = match section.item("provider") {
        Some(item) => of_provider(&section, &item),
        None => of_hosts(&section),
    };
    let ports = ports(&section)?;
    let plaintext = match section.item("plaintext") {
        Some(item) => item.boolean()?.value,
        None => false,
    };
    let projects = projects(&section, home)?;
    let (source, target) = (source?, target?);
    let variables = match section.item("variables") {
        Some(item) => variables(&item)?,
        None => target.default_variables(&source),
    };
    Some(Binding {
        name: name.to_owned(),
        provider: target.provider.map(|provider| provider.id.clone()),
        placeholder: target.provider.map(|provider| provider.placeholder.clone()),
        hosts: target.hosts,
        slots: target.slots,
        ports,
        plaintext,
        variables,
        projects,
        source,
    })
}

/// Where a secret may go, and how.
struct Target {
    provider: Option<&'static Provider>,
    hosts: Vec<HostPattern>,
    slots: Vec<Slot>,
}

impl Target {
    /// The variables that the provider's clients read; else the one that the owner's own programs read.
    fn default_variables(&self, source: &Source) -> Vec<String> {
        match (self.provider, source) {
            (Some(provider), _) => provider.env.clone(),
            (None, Source::Env(name)) if is_variable(name) => vec![name.clone()],
            (None, _) => Vec::new(),
        }
    }
}

fn of_provider(section: &Section<'_>, item: &Item<'_, '_>) -> Option<Target> {
    let id = item.text()?.value;
    let Some(provider) = catalogue::provider(id) else {
        let near = policies::reader::nearest(id, catalogue::providers().map(|p| p.id.as_str()));
        let hint = near.map_or_else(
            || "see `valetkey providers list`, or give `hosts` and `inject`".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        item.refuse(format!("no provider is called `{id}`"), Some(hint));
        return None;
    };
    if let Some(inject) = section.item("inject") {
        inject.refuse("the provider says how its key is attached", None);
        return None;
    }
    let hosts = match section.item("hosts") {
        None => provider.hosts.clone(),
        Some(item) => {
            let hosts = hosts(&item)?;
            // The owner may name some of the provider's hosts, or the hosts of one that has none of its own.
            let is_within = |host: &HostPattern| {
                provider.hosts.is_empty()
                    || provider.hosts.contains(host)
                    || match host {
                        HostPattern::Exact(exact) => {
                            provider.hosts.iter().any(|pattern| pattern.matches(exact))
                        }
                        HostPattern::Below(_) => false,
                    }
            };
            if !hosts.iter().all(is_within) {
                item.refuse(
                    format!("`{id}` has other hosts"),
                    Some("leave `provider` out and give `hosts` and `inject`".to_owned()),
                );
                return None;
            }
            hosts
        }
    };
    if hosts.is_empty() {
        item.refuse(
            format!("`{id}` has no hosts of its own"),
            Some("give yours as `hosts`".to_owned()),
        );
        return None;
    }
    Some(Target {
        provider: Some(provider),
        hosts,
        slots: provider.slots.clone(),
    })
}

fn of_hosts(section: &Section<'_>) -> Option<Target> {
    let (Some(hosts_item), Some(inject_item)) = (section.item("hosts"), section.item("inject"))
    else {
        section.refuse(
            section.span(),
            "it is not said where this secret may go",
            Some("give `provider`, or `hosts` and `inject`".to_owned()),
        );
        return None;
    };
    let hosts = hosts(&hosts_item)?;
    if hosts.is_empty() {
        hosts_item.refuse("a secret without a host can go nowhere", None);
        return None;
    }
    let slots = vec![inject::parse(&inject_item)?];
    Some(Target {
        provider: None,
        hosts,
        slots,
    })
}

fn hosts(item: &Item<'_, '_>) -> Option<Vec<HostPattern>> {
    item.texts()?
        .into_iter()
        .map(|text| match HostPattern::parse(text.value) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                item.refuse(error.to_string(), None);
                None
            }
        })
        .collect()
}

fn ports(section: &Section<'_>) -> Option<Vec<u16>> {
    let Some(item) = section.item("ports") else {
        return Some(Vec::new());
    };
    let ports: Vec<u16> = item
        .each()?
        .into_iter()
        .map(|item| {
            item.integer(1..=65535)
                .and_then(|port| u16::try_from(port.value).ok())
        })
        .collect::<Option<_>>()?;
    if ports.is_empty() {
        item.refuse("no port is left", None);
        return None;
    }
    Some(ports)
}

fn projects(section: &Section<'_>, home: &Home) -> Option<Vec<PathBuf>> {
    let Some(item) = section.item("projects") else {
        return Some(Vec::new());
    };
    let projects = item
        .texts()?
        .into_iter()
        .map(|text| path(&item, text.value, home))
        .collect::<Option<Vec<_>>>()?;
    if projects.is_empty() {
        item.refuse("no project is left", None);
        return None;
    }
    Some(projects)
}

fn source(section: &Section<'_>, name: &str, home: &Home) -> Option<Source> {
    let Some(item) = section.item("source") else {
        section.refuse(
            section.span(),
            "it is not said where this secret comes from",
            Some("such as `source = { env = \"NAME\" }`".to_owned()),
        );
        return None;
    };
    let table = item.section(SOURCES);
    let mut kinds = table.items();
    let Some(kind) = kinds.next() else {
        item.refuse("`source` is empty", None);
        return None;
    };
    if let Some(second) = kinds.next() {
        second.refuse("a secret has one source", None);
        return None;
    }
    match kind.key().text.as_str() {
        "env" => {
            let variable = kind.text()?.value;
            if variable.is_empty() || variable.contains(['=', '\0']) {
                kind.refuse("this is no name of a variable", None);
                return None;
            }
            Some(Source::Env(variable.to_owned()))
        }
        "file" => path(&kind, kind.text()?.value, home).map(Source::File),
        "command" => command(&kind, home),
        "store" => Some(Source::Store(name.to_owned())).filter(|_| {
            let is_on = kind.boolean().is_some_and(|on| on.value);
            if !is_on {
                kind.refuse("`store = true` is the only way to write it", None);
            }
            is_on
        }),
        known if SOURCES.contains(&known) => {
            kind.not_supported_yet();
            None
        }
        // An unknown key: the section has said so.
        _ => None,
    }
}

fn command(item: &Item<'_, '_>, home: &Home) -> Option<Source> {
    let argv: Vec<String> = item
        .texts()?
        .into_iter()
        .map(|text| text.value.to_owned())
        .collect();
    let Some(program) = argv.first().filter(|program| !program.is_empty()) else {
        item.refuse("there is no program", None);
        return None;
    };
    if argv.iter().any(|argument| argument.contains('\0')) {
        item.refuse("an argument cannot hold a NUL", None);
        return None;
    }
    let mut argv = argv.clone();
    if program.starts_with("~/") {
        argv[0] = path(item, program, home)?
            .into_os_string()
            .into_string()
            .ok()?;
    }
    Some(Source::Command(argv))
}

/// A path from the root or from the owner's home.
fn path(item: &Item<'_, '_>, text: &str, home: &Home) -> Option<PathBuf> {
    let path = match (text.strip_prefix("~/"), &home.0) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_), None) => {
            item.refuse("there is no home folder for `~`", None);
            return None;
        }
        (None, _) => Path::new(text).to_owned(),
    };
    let is_plain = path.is_absolute()
        && !text.contains('\0')
        && !path
            .components()
            .any(|part| part == std::path::Component::ParentDir);
    if is_plain {
        // Without `.` and doubled slashes, as a project's own path is.
        Some(path.components().collect())
    } else {
        item.refuse("a path begins with `/` or `~/` and has no `..`", None);
        None
    }
}

fn variables(item: &Item<'_, '_>) -> Option<Vec<String>> {
    let texts = item.texts()?;
    if let Some(wrong) = texts.iter().find(|text| !is_variable(text.value)) {
        item.refuse(
            format!(
                "`{}` cannot hold a placeholder",
                wrong.value.escape_default()
            ),
            Some("a variable of a program's own, in capitals, such as `ORDERS_KEY`".to_owned()),
        );
        return None;
    }
    Some(texts.iter().map(|text| text.value.to_owned()).collect())
}

/// Whether a variable may hold a placeholder: not one that says how programs are found, loaded or connected.
fn is_variable(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_ours = ["LD_", "DYLD_", "VALETKEY_", "XDG_", "LC_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let is_systems = name.ends_with("_PROXY")
        || name.ends_with("PATH")
        || matches!(
            name,
            "HOME"
                | "USER"
                | "SHELL"
                | "PWD"
                | "LANG"
                | "TERM"
                | "TMPDIR"
                | "IFS"
                | "ENV"
                | "BASH_ENV"
        );
    name.bytes().all(is_good)
        && name
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit())
        && !is_ours
        && !is_systems
}

const KEYS: &[&str] = &[
    "provider",
    "hosts",
    "inject",
    "source",
    "ports",
    "plaintext",
    "projects",
    "variables",
    "limits",
    "capture",
];

const SOURCES: &[&str] = &[
    "env",
    "file",
    "command",
    "store",
    "keyring",
    "vault",
    "aws",
    "gcp",
    "azure",
    "onepassword",
    "sops",
    "age",
];

#[cfg(test)]
mod tests;
