//! The changes of one run, opened.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::change::{Change, Kind};
use super::compare::{self, Sides};
use super::record::{Hold, Record, State};
use super::stage::parent;
use super::tree::Tree;
use super::{Error, apply, discard, select};

/// The changes that a run left, compared with the workspace as it is now.
#[derive(Debug)]
pub struct Kept {
    record: Record,
    // None where the layers are gone.
    sides: Option<Sides>,
    changes: Vec<Change>,
}

/// What was taken over.
#[derive(Debug)]
pub struct Applied {
    /// How many changes.
    pub count: u64,
    /// Those that were not taken over: not asked for, or refused.
    pub left: Vec<Change>,
}

/// How many paths a run changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// New ones.
    pub added: u64,
    /// Changed ones.
    pub changed: u64,
    /// Removed ones.
    pub deleted: u64,
}

impl Kept {
    /// Opens the changes of the run in this folder.
    pub fn open(run_folder: &Path) -> Result<Self, Error> {
        Self::of(Record::load(run_folder)?)
    }

    fn of(record: Record) -> Result<Self, Error> {
        let is_over = matches!(
            record.state,
            State::Applied { .. } | State::Discarded { .. }
        );
        if is_over {
            return Ok(Self {
                record,
                sides: None,
                changes: Vec::new(),
            });
        }
        let sides = Sides::open(&record)?;
        let changes = compare::changes(&record, &sides)?;
        Ok(Self {
            record,
            sides: Some(sides),
            changes,
        })
    }

    /// What is written down about them.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The changes, sorted by path: a folder comes before what is in it.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// How many there are.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for change in &self.changes {
            match (&change.was, &change.now) {
                (None, _) => summary.added += 1,
                (Some(_), None) => summary.deleted += 1,
                (Some(_), Some(_)) => summary.changed += 1,
            }
        }
        summary
    }

    /// The contents of a file before and after, at most `most` bytes of each and one more.
    ///
    /// Empty where there is, or was, no file; for a symbolic link, where it leads.
    pub fn contents(&self, change: &Change, most: u64) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let Some(sides) = &self.sides else {
            return Ok((Vec::new(), Vec::new()));
        };
        let read = |tree: &Tree| -> io::Result<Vec<u8>> {
            let folder = tree.folder(parent(&change.path))?;
            let file: File = tree.file(&folder, change.path.file_name().unwrap_or_default())?;
            let mut bytes = Vec::new();
            file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let side = |entry: &Option<super::Entry>, tree: Option<&Tree>| -> io::Result<Vec<u8>> {
            match (entry, tree) {
                (Some(entry), Some(tree)) if entry.kind == Kind::File => read(tree),
                (Some(entry), _) => Ok(entry.target.as_ref().map_or(Vec::new(), |target| {
                    target.as_os_str().as_encoded_bytes().to_vec()
                })),
                (None, _) => Ok(Vec::new()),
            }
        };
        let layer = change.layer.map(|number| &sides.layers[number].tree);
        side(&change.was, Some(&sides.workspace))
            .and_then(|was| Ok((was, side(&change.now, layer)?)))
            .map_err(|error| {
                let path = self.record.workspace.join(&change.path);
                Error::machine("cannot read", &path, error)
            })
    }

    /// Takes over the changes at these paths, relative to the workspace, and below them; without any, all changes.
    ///
    /// # Errors
    /// [`Error::Conflicts`] if one of them would lose something of the owner's; then nothing is taken over.
    pub fn apply(run_folder: &Path, paths: &[PathBuf]) -> Result<Applied, Error> {
        let _hold = Hold::take(run_folder)?;
        let mut kept = Self::open(run_folder)?;
        let chosen = select::choose(&kept.changes, paths)?;
        let left = chosen.left.iter().map(|index| kept.changes[*index].clone());
        let applied = Applied {
            count: chosen.count,
            left: left.collect(),
        };
        if let Some(sides) = &kept.sides {
            apply::apply(&mut kept.record, sides, &kept.changes, &chosen)?;
        }
        Ok(applied)
    }

    /// Throws the changes away. The workspace is not touched, and need not be there any more.
    pub fn discard(run_folder: &Path) -> Result<(), Error> {
        let _hold = Hold::take(run_folder)?;
        let mut record = Record::load(run_folder)?;
        match record.state {
            // Whoever wrote this down may have been ended before the layers were gone.
            State::Applied { .. } | State::Discarded { .. } => discard::remove_layers(&record),
            State::Kept | State::Applying { .. } | State::PartlyApplied { .. } => {
                discard::discard(&mut record)
            }
        }
    }
}

/// How many paths the layers of a run change.
pub fn summary(record: &Record) -> Result<Summary, Error> {
    Ok(Kept::of(record.clone())?.summary())
}
