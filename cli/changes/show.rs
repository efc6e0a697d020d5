//! The list of changes, for people and for programs.

use jiff::Timestamp;
use launcher::changes::{Change, Entry, Kept, Kind, Moment, Record, State, escaped};
use serde_json::{Value, json};

use crate::output::{self, bytes, count, data, sanitised, say};

/// Lists the changes: what is removed first, and always all of it.
pub(crate) fn show(kept: &Kept, run: &str, as_json: bool) {
    let record = kept.record();
    let summary = kept.summary();
    if as_json {
        output::json(&json!({
            "run": run,
            "workspace": escaped(&record.workspace),
            "state": state(&record.state),
            "added": summary.added,
            "changed": summary.changed,
            "deleted": summary.deleted,
            "changes": kept.changes().iter().map(told).collect::<Vec<_>>(),
        }));
        return;
    }
    if !matches!(record.state, State::Kept) {
        say(became(record));
    }
    if kept.changes().is_empty() {
        if !is_over(&record.state) {
            data("the workspace is as the run left it: nothing is left to take over");
        }
        return;
    }
    let (deleted, others): (Vec<_>, Vec<_>) = kept
        .changes()
        .iter()
        .partition(|change| change.is_deletion() || change.word() == "replaced");
    for change in deleted.iter().chain(&others) {
        data(line(change));
    }
    let conflicts = kept
        .changes()
        .iter()
        .filter(|change| change.conflict.is_some())
        .count();
    let mut text = format!(
        "{} deleted, {} changed, {} added",
        summary.deleted, summary.changed, summary.added
    );
    if conflicts > 0 {
        text.push_str(&format!(", {}", count(conflicts as u64, "conflict")));
    }
    say(format_args!(
        "{text} in {}; look closer with `valetkey changes diff {run}`, then `apply` or `discard`",
        record.workspace.display()
    ));
}

/// One change for programs.
pub(crate) fn told(change: &Change) -> Value {
    let side = |entry: &Option<Entry>| {
        entry.as_ref().map(|entry| {
            json!({
                "kind": kind(entry.kind),
                "mode": format!("{:04o}", entry.mode),
                "size": entry.size,
                "target": entry.target.as_deref().map(escaped),
            })
        })
    };
    json!({
        "path": escaped(&change.path),
        "change": change.word(),
        "was": side(&change.was),
        "now": side(&change.now),
        "runs_later": change.obeyed,
        "conflict": change.conflict.map(|conflict| conflict.name()),
        "refused": change.refused.map(|refused| refused.name()),
        "loses_bits": change.loses_bits(),
    })
}

/// What became of the changes, for programs.
pub(crate) fn state(state: &State) -> &'static str {
    match state {
        State::Kept => "kept",
        State::Applying { .. } => "applying",
        State::PartlyApplied { .. } => "partly-applied",
        State::Applied { .. } => "applied",
        State::Discarded { .. } => "discarded",
    }
}

/// What became of the changes, in a sentence.
pub(crate) fn became(record: &Record) -> String {
    match &record.state {
        State::Kept => "nothing was taken over yet".to_owned(),
        State::Applying { since, .. } => format!(
            "taking over began {} and did not come to its end; `valetkey changes apply` does the rest",
            time(*since)
        ),
        State::PartlyApplied { at } => format!("some were taken over {}; this is left", time(*at)),
        State::Applied { at, count: number } => {
            format!("{} taken over {}", count(*number, "change"), time(*at))
        }
        State::Discarded { at } => {
            format!("the changes were thrown away {}", time(*at))
        }
    }
}

/// Why a change is not taken over.
pub(crate) fn refusal(change: &Change) -> String {
    let why = change.refused.map_or("", |refused| refused.reason());
    format!("{}: {why}", shown(&change.path))
}

fn line(change: &Change) -> String {
    let mut text = format!("{:8} {}", change.word(), path(change));
    let mut facts = Vec::new();
    match (&change.was, &change.now) {
        (Some(was), Some(now)) if was.kind != now.kind => {
            facts.push(format!("a {} becomes a {}", kind(was.kind), kind(now.kind)));
        }
        (Some(was), Some(now)) => {
            if now.kind == Kind::File {
                facts.push(match was.size == now.size {
                    true => bytes(now.size),
                    false => format!("{}, was {}", bytes(now.size), bytes(was.size)),
                });
            }
            if was.mode & 0o777 != now.mode & 0o777 {
                facts.push(format!("mode {:04o}, was {:04o}", now.mode, was.mode));
            }
        }
        (None, Some(now)) if now.kind == Kind::File => {
            facts.push(format!("{}, mode {:04o}", bytes(now.size), now.mode));
        }
        (Some(was), None) if was.kind == Kind::File => facts.push(bytes(was.size)),
        (_, _) => {}
    }
    if change.loses_bits() {
        facts.push("its set-id and sticky bits are not taken over".to_owned());
    }
    if !facts.is_empty() {
        text.push_str(&format!("  ({})", facts.join("; ")));
    }
    if let Some(who) = change.obeyed {
        text.push_str(&format!("  ! {who}"));
    }
    if let Some(conflict) = change.conflict {
        text.push_str(&format!("  CONFLICT: {}", conflict.reason()));
    }
    if let Some(refused) = change.refused {
        text.push_str(&format!("  not taken over: {}", refused.reason()));
    }
    text
}

fn path(change: &Change) -> String {
    let mut text = shown(&change.path);
    let entry = change.now.as_ref().or(change.was.as_ref());
    match entry.map(|entry| (entry.kind, &entry.target)) {
        Some((Kind::Folder, _)) => text.push('/'),
        Some((Kind::Link, Some(target))) => text.push_str(&format!(" -> {}", shown(target))),
        _ => {}
    }
    text
}

/// A name that the run chose: on one line, and without a command to the terminal, also where this is read from a file.
fn shown(path: &std::path::Path) -> String {
    sanitised(&escaped(path))
}

fn is_over(state: &State) -> bool {
    matches!(state, State::Applied { .. } | State::Discarded { .. })
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Folder => "folder",
        Kind::Link => "link",
        Kind::Special => "special file",
    }
}

fn time(moment: Moment) -> String {
    let time = Timestamp::try_from(moment.time());
    time.map_or_else(
        |_| "at an unknown time".to_owned(),
        |time| format!("at {}", time.strftime("%Y-%m-%dT%H:%M:%SZ")),
    )
}
