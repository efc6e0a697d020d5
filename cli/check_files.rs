//! `valetkey check --files`: what a run of this project would see of this machine's files, and what not.

use std::path::{Path, PathBuf};

use launcher::Listing;
use serde_json::json;

use crate::engine;
use crate::failure::Failure;
use crate::folders::{self, Folders};
use crate::output::{self, count, data, sanitised, say};
use crate::project::Project;
use crate::sandbox;

/// Lists it, from what the launcher prepares for a run.
pub(crate) fn check_files(
    policy: Option<&Path>,
    folders: &Folders,
    as_json: bool,
) -> Result<u8, Failure> {
    let project = Project::open(policy)?;
    let mask = engine::open_broker(folders)?
        .secret_files()
        .map_err(engine::broker_failure)?;
    let unbuilt = sandbox::unbuilt(folders, &project, mask)?;
    let prepared = unbuilt
        .prepared
        .map_err(|error| sandbox::cannot_build(&project, error))?;
    let told = Told {
        listing: prepared.listing(&unbuilt.view),
        notes: prepared.notes().to_vec(),
        project: &project,
    };
    if as_json {
        told.as_json()?;
    } else {
        told.in_words()?;
    }
    Ok(0)
}

struct Told<'a> {
    listing: Listing,
    notes: Vec<String>,
    project: &'a Project,
}

impl Told<'_> {
    fn as_json(&self) -> Result<(), Failure> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let listing = &self.listing;
        output::json(&json!({
            "project": text(&self.project.folder),
            "shown": listing.shown.iter().map(|place| json!({
                "path": text(&place.path),
                "what": place.what,
                "access": place.access,
            })).collect::<Vec<_>>(),
            "hidden": listing.hidden.iter().map(|hidden| json!({
                "path": text(&hidden.path),
                "by": hidden.by,
            })).collect::<Vec<_>>(),
            "not_there": absent(listing)?.iter().map(|path| text(path)).collect::<Vec<_>>(),
            "readable_from_git": listing.tracked_by_git().iter().map(|path| text(path)).collect::<Vec<_>>(),
            "readable_by_another_name": listing.linked_elsewhere().iter().map(|(hidden, name)| json!({
                "path": text(hidden),
                "name": text(name),
            })).collect::<Vec<_>>(),
            "notes": self.notes,
        }));
        Ok(())
    }

    fn in_words(&self) -> Result<(), Failure> {
        let listing = &self.listing;
        let is_source = |what: &str| what == "workspace";
        let (source, others): (Vec<_>, Vec<_>) = listing
            .shown
            .iter()
            .partition(|place| is_source(place.what));
        if source.is_empty() {
            data("your source tree: not there");
        }
        for place in source {
            data(format_args!(
                "your source tree: {}  ({})",
                place.access,
                shown(&place.path)
            ));
        }
        for hidden in listing.hidden.iter().take(MOST) {
            data(format_args!(
                "{}: hidden  ({})",
                self.in_short(&hidden.path),
                sanitised(&hidden.by)
            ));
        }
        more(listing.hidden.len(), "hidden file");
        for path in absent(listing)? {
            data(format_args!("{}: not there", tilde(&path)?));
        }
        for place in others.iter().filter(|place| place.access != "a device") {
            data(format_args!(
                "{}: {}  ({})",
                shown(&place.path),
                place.access,
                place.what
            ));
        }
        data("everything else of this machine's files: not there");
        let tracked = listing.tracked_by_git();
        for path in tracked.iter().take(MOST) {
            say(format_args!(
                "warning: {} is hidden, but git keeps what is in it, and a run can read that from .git; change the secret, and \
                 take the file out of the repository with its history",
                self.in_short(path)
            ));
        }
        more(tracked.len(), "such file");
        let linked = listing.linked_elsewhere();
        for (hidden, name) in linked.iter().take(MOST) {
            say(format_args!(
                "warning: {} is hidden, but {} is the same file by another name; hide that, too, or make it a copy",
                self.in_short(hidden),
                self.in_short(name)
            ));
        }
        more(linked.len(), "such file");
        for note in &self.notes {
            say(format_args!("note: {note}"));
        }
        Ok(())
    }

    /// A path of the project as it is written there.
    fn in_short(&self, path: &Path) -> String {
        shown(path.strip_prefix(&self.project.folder).unwrap_or(path))
    }
}

/// What the owner has and may fear for, and a run does not see.
fn absent(listing: &Listing) -> Result<Vec<PathBuf>, Failure> {
    let home = folders::home()?;
    Ok(FEARED_FOR
        .iter()
        .map(|name| home.join(name))
        .filter(|path| path.symlink_metadata().is_ok() && !listing.is_visible(path))
        .collect())
}

fn tilde(path: &Path) -> Result<String, Failure> {
    Ok(match path.strip_prefix(folders::home()?) {
        Ok(below) => format!("~/{}", shown(below)),
        Err(_) => shown(path),
    })
}

fn more(all: usize, noun: &str) {
    if let Some(more) = all.checked_sub(MOST).filter(|more| *more > 0) {
        say(format_args!(
            "and {} more; --json lists all",
            count(more as u64, noun)
        ));
    }
}

/// A name that somebody else may have chosen, on one line.
fn shown(path: &Path) -> String {
    sanitised(&path.to_string_lossy())
}

const FEARED_FOR: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".config",
    ".docker",
    ".gnupg",
    ".kube",
    ".local",
    ".mozilla",
    ".netrc",
    ".git-credentials",
    ".gitconfig",
    ".npmrc",
    ".pypirc",
    ".bash_history",
    ".zsh_history",
    ".password-store",
    ".claude",
    ".codex",
    "Documents",
    "Desktop",
    "Downloads",
];
/// So many are listed for people.
const MOST: usize = 50;
