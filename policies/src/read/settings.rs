//! What a file says in `[budget]`, `[sandbox]` and `[limits]`.

use super::later;
use crate::amount::Amount;
use crate::grammar;
use crate::reader::{Item, Section};
use crate::sandbox::{NetworkMode, WorkspaceMode};
use crate::settings::{Placed, Settings};

/// Reads the settings of a file.
pub(super) fn read(file: &Section<'_>) -> Settings {
    let mut settings = Settings::default();
    if let Some(budget) = file.section("budget", grammar::BUDGET) {
        read_amounts(&budget, &Amount::BUDGET, &mut settings);
        later::read_budget(&budget);
    }
    if let Some(limits) = file.section("limits", grammar::LIMITS) {
        read_amounts(&limits, &Amount::LIMITS, &mut settings);
    }
    if let Some(sandbox) = file.section("sandbox", grammar::SANDBOX) {
        read_sandbox(&sandbox, &mut settings);
    }
    settings
}

fn read_amounts(section: &Section<'_>, amounts: &[Amount], settings: &mut Settings) {
    for amount in amounts {
        if let Some(item) = section.item(amount.key())
            && let Some(value) = amount.read(&item)
        {
            settings
                .amounts
                .insert(*amount, placed(value, section, &item));
        }
    }
}

fn read_sandbox(section: &Section<'_>, settings: &mut Settings) {
    if let Some(workspace) = section.section("workspace", grammar::WORKSPACE) {
        if let Some(item) = workspace.item("path") {
            settings.workspace_path = read_path(&item).map(|path| placed(path, section, &item));
        }
        if let Some(item) = workspace.item("mode") {
            let modes = WorkspaceMode::ALL.map(|mode| (mode.as_str(), mode));
            settings.workspace_mode =
                read_choice(&item, &modes).map(|mode| placed(mode, section, &item));
        }
    }
    settings.network = read_network(section);
    for item in list(section, "read") {
        if let Some(path) = read_path(&item) {
            settings.read.insert(path, placed((), section, &item));
        }
    }
    for item in list(section, "hide") {
        settings.hide.extend(read_hide(&item));
    }
    if let Some(env) = section.map("env") {
        for item in env.items() {
            let name = &item.key().text;
            let is_name = !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !is_name {
                item.refuse("the key is not the name of a variable", None);
            }
            if let Some(value) = item.text() {
                if value.value.contains('\0') {
                    item.refuse("a variable's value cannot have a NUL", None);
                }
                let value = placed(value.value.to_owned(), section, &item);
                settings.env.insert(name.clone(), value);
            }
        }
    }
}

/// Reads the `network` of a sandbox or a step.
pub(super) fn read_network(section: &Section<'_>) -> Option<Placed<NetworkMode>> {
    let item = section.item("network")?;
    let modes = [NetworkMode::ProxyOnly, NetworkMode::None].map(|mode| (mode.as_str(), mode));
    read_choice(&item, &modes).map(|mode| placed(mode, section, &item))
}

fn list<'s, 'a>(section: &'s Section<'a>, key: &str) -> Vec<Item<'s, 'a>> {
    let items = section.item(key).and_then(|item| item.each());
    items.unwrap_or_default()
}

fn read_path(item: &Item<'_, '_>) -> Option<String> {
    let text = item.text()?.value;
    if text.is_empty() || text.len() > 4096 || text.contains(char::is_control) {
        item.refuse("this is not a path", None);
        return None;
    }
    Some(text.to_owned())
}

/// A pattern that hides nothing must not look as if it did, so what other tools would understand is refused.
fn read_hide(item: &Item<'_, '_>) -> Option<String> {
    let pattern = read_path(item)?;
    let hint =
        "a pattern is a path from the workspace with `*` and `**`, such as `secrets/**` or `*.pem`";
    let foreign = pattern.find(['{', '}', '[', ']', '!', '\\', '?', '~']);
    let what = if let Some(at) = foreign {
        let sign = pattern[at..].chars().next().unwrap_or_default();
        format!("`{sign}` means nothing in a pattern of files to hide")
    } else if pattern.split('/').any(|part| part == "..") {
        "a pattern of files to hide cannot lead out of the workspace".to_owned()
    } else if matches!(pattern.trim_matches('/'), "" | "**" | ".") {
        "this would hide the whole workspace".to_owned()
    } else {
        return Some(pattern);
    };
    item.refuse(what, Some(hint.to_owned()));
    None
}

fn read_choice<T: Copy>(item: &Item<'_, '_>, choices: &[(&str, T)]) -> Option<T> {
    let text = item.text()?.value;
    let found = choices.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        let names: Vec<_> = choices
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        let key = &item.key().text;
        let hint = Some(format!("write {}", names.join(" or ")));
        item.refuse(format!("`{key}` cannot be this"), hint);
    }
    found.map(|(_, choice)| *choice)
}

fn placed<T>(value: T, section: &Section<'_>, item: &Item<'_, '_>) -> Placed<T> {
    Placed {
        value,
        source: section.source().clone(),
        span: item.node().span.clone(),
    }
}
