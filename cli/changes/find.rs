//! Which run is meant: by its name, by the beginning of it, or the last one of this folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use launcher::changes::{Error, Record};

use crate::failure::Failure;
use crate::folders::Folders;

/// The folder of the run that is meant.
pub(crate) fn run(folders: &Folders, asked: &str) -> Result<PathBuf, Failure> {
    let all = all(folders)?;
    if asked == "last" {
        return last(&all);
    }
    let begins = |run: &&PathBuf| {
        let name = name(run);
        // The part behind `run_` is what people tell apart.
        name.starts_with(asked)
            || name
                .strip_prefix("run_")
                .is_some_and(|rest| rest.starts_with(asked))
    };
    let found: Vec<&PathBuf> = match all.iter().find(|run| name(run) == asked) {
        Some(exact) => vec![exact],
        None if asked.is_empty() => Vec::new(),
        None => all.iter().filter(begins).collect(),
    };
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(
            Failure::negative(format!("no run `{asked}` kept changes"))
                .hint("`valetkey runs list` lists the runs; changes are kept with workspace mode \"overlay\""),
        ),
        several => {
            let names: Vec<String> = several.iter().take(MOST).map(|run| name(run)).collect();
            Err(
                Failure::negative(format!("`{asked}` may be any of {} runs", several.len()))
                    .hint(format!("write more of the name: {}", names.join(", "))),
            )
        }
    }
}

/// The name of the run that has this folder.
pub(crate) fn name(run: &Path) -> String {
    run.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The last run over the workspace that we are in. Of another project's, nobody means to take anything over from here.
fn last(all: &[PathBuf]) -> Result<PathBuf, Failure> {
    let here = std::env::current_dir()
        .and_then(|here| here.canonicalize())
        .map_err(|error| Failure::ours("cannot tell which folder this is").because(error))?;
    let is_of_here = |run: &&PathBuf| match Record::load(run) {
        Ok(record) => here.starts_with(&record.workspace) || record.workspace.starts_with(&here),
        Err(_) => false,
    };
    all.iter().rev().find(is_of_here).cloned().ok_or_else(|| {
        let failure = Failure::negative("no run kept changes of this folder");
        match all.last() {
            Some(other) => failure.hint(format!(
                "the last run that kept changes elsewhere is {}",
                name(other)
            )),
            None => failure.hint("start one with `valetkey run -- COMMAND`"),
        }
    })
}

/// The folders of all runs that kept changes, the oldest first: their names sort by time.
fn all(folders: &Folders) -> Result<Vec<PathBuf>, Failure> {
    let runs = folders.state.join("runs");
    let unlisted = |error: io::Error| {
        Failure::ours(format!("cannot list the runs in `{}`", runs.display())).because(error)
    };
    let entries = match fs::read_dir(&runs) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unlisted(error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let run = entry.map_err(unlisted)?.path();
        if !matches!(Record::load(&run), Err(Error::NotKept)) {
            all.push(run);
        }
    }
    all.sort();
    Ok(all)
}

/// So many names are told.
const MOST: usize = 5;
