//! `valetkey changes`: what a run changed in the workspace, shown, taken over, or thrown away.

mod diff;
mod find;
mod show;

use std::path::{Component, Path, PathBuf};

use launcher::changes::{Change, Error, Kept, Record};
use sdk::report::Changes as Counts;

use crate::args;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, count, data, say};
use crate::problem::Problem;

/// Does what was asked about the changes of a run.
pub(crate) fn changes(
    asked: args::Changes,
    folders: &Folders,
    as_json: bool,
) -> Result<u8, Failure> {
    match asked {
        args::Changes::Show { run } => {
            let run = find::run(folders, &run)?;
            show::show(&open(&run)?, &find::name(&run), as_json);
            Ok(0)
        }
        args::Changes::Diff { run, paths } => {
            let run = find::run(folders, &run)?;
            let kept = open(&run)?;
            let paths = below_workspace(kept.record(), &paths)?;
            diff::diff(&kept, &paths, as_json)?;
            Ok(0)
        }
        args::Changes::Apply { run, paths } => apply(&find::run(folders, &run)?, &paths, as_json),
        args::Changes::Discard { run } => discard(&find::run(folders, &run)?, as_json),
    }
}

/// How many paths the run in this folder left otherwise than they are in the workspace; `None` where that cannot be said.
pub(crate) fn counts(run: &Path) -> Option<Counts> {
    let summary = Kept::open(run).ok()?.summary();
    Some(Counts {
        added: summary.added,
        changed: summary.changed,
        deleted: summary.deleted,
    })
}

/// What the run in this folder changed, in one line for the end of a run; `None` where it left the workspace as it was.
pub(crate) fn in_short(run: &Path, counts: Option<Counts>) -> Option<String> {
    let name = find::name(run);
    let Some(summary) = counts else {
        // What it wrote is there all the same.
        return Some(format!(
            "your files are as they were; what it wrote: valetkey changes show {name}"
        ));
    };
    let parts = [
        (summary.deleted, "deleted"),
        (summary.changed, "changed"),
        (summary.added, "added"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{number} {word}"))
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "your files are as they were; it left {}: valetkey changes show {name}, then `apply` or `discard`",
            told.join(", ")
        )
    })
}

fn open(run: &Path) -> Result<Kept, Failure> {
    Kept::open(run).map_err(|error| failure(run, error))
}

fn apply(run: &Path, paths: &[PathBuf], as_json: bool) -> Result<u8, Failure> {
    let record = Record::load(run).map_err(|error| failure(run, error))?;
    let paths = below_workspace(&record, paths)?;
    let applied = Kept::apply(run, &paths).map_err(|error| failure(run, error))?;
    let refused: Vec<&Change> = applied
        .left
        .iter()
        .filter(|change| change.refused.is_some())
        .collect();
    if as_json {
        output::json(&serde_json::json!({
            "run": find::name(run),
            "applied": applied.count,
            "left": applied.left.iter().map(show::told).collect::<Vec<_>>(),
        }));
    } else {
        data(format_args!(
            "took over {} into {}",
            count(applied.count, "change"),
            record.workspace.display()
        ));
        for change in &refused {
            say(format_args!("left: {}", show::refusal(change)));
        }
        if !applied.left.is_empty() {
            say(format_args!(
                "{} left; see `valetkey changes show {}`",
                count(applied.left.len() as u64, "change"),
                find::name(run)
            ));
        }
    }
    // Who asked for something that is not taken over did not get it.
    let is_missed = !paths.is_empty() && refused.iter().any(|change| paths.contains(&change.path));
    Ok(if is_missed { sdk::exit::DENIED } else { 0 })
}

fn discard(run: &Path, as_json: bool) -> Result<u8, Failure> {
    Kept::discard(run).map_err(|error| failure(run, error))?;
    let record = Record::load(run).map_err(|error| failure(run, error))?;
    if as_json {
        output::json(&serde_json::json!({
            "run": find::name(run),
            "state": show::state(&record.state),
        }));
    } else {
        data(show::became(&record));
    }
    Ok(0)
}

/// Paths as they were typed, relative to the workspace: from the folder one is in, if that lies in the workspace, else
/// from the workspace.
fn below_workspace(record: &Record, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let workspace = &record.workspace;
    let here = std::env::current_dir()
        .and_then(|here| here.canonicalize())
        .ok()
        .filter(|here| here.starts_with(workspace))
        .unwrap_or_else(|| workspace.clone());
    paths
        .iter()
        .map(|path| {
            let mut plain = PathBuf::new();
            for part in here.join(path).components() {
                match part {
                    Component::CurDir => {}
                    Component::ParentDir => {
                        plain.pop();
                    }
                    Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                        plain.push(part);
                    }
                }
            }
            let below = plain.strip_prefix(workspace).map(Path::to_owned);
            below.map_err(|_| {
                Failure::negative(format!(
                    "`{}` does not lie in the workspace `{}`",
                    path.display(),
                    workspace.display()
                ))
            })
        })
        .collect()
}

/// How an error about changes is told: by who has to act.
fn failure(run: &Path, error: Error) -> Failure {
    let name = find::name(run);
    match error {
        Error::Conflicts(conflicts) => {
            let problems = conflicts
                .iter()
                .filter_map(|change| {
                    let conflict = change.conflict?;
                    Some(Problem::new(
                        "change-conflict",
                        format!("{}: {}", change.path.display(), conflict.reason()),
                        None,
                    ))
                })
                .collect();
            Failure::negative("changes of the run and of yours meet; nothing was taken over")
                .named("changes-conflict")
                .with_problems(problems)
                .hint(format!(
                    "see `valetkey changes diff {name}`; name the paths to take over, or move yours away first"
                ))
        }
        Error::Unchanged { .. } | Error::Needs { .. } => {
            Failure::negative(error.to_string()).named("changes-unmet")
        }
        Error::NotKept => Failure::negative(error.to_string()).named("changes-not-kept"),
        Error::InUse => Failure::ours(error.to_string())
            .named("changes-in-use")
            .hint("wait for the run to end, or end it with `valetkey runs revoke`"),
        Error::Workspace { .. } | Error::TooMany { .. } => Failure::ours(error.to_string())
            .named("changes-unusable")
            .hint(format!(
                "what the run wrote is kept; `valetkey changes discard {name}` throws it away"
            )),
        Error::Stopped { .. } => Failure::ours("not everything was taken over")
            .named("changes-stopped")
            .because(error)
            .hint("what is there is whole; do the same again when the cause is gone"),
        error => Failure::ours("the changes cannot be used").because(error),
    }
}
