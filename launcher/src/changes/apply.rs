//! Taking changes over into the workspace: everything is made beside its place first, then put there piece by piece.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::change::{Change, Kind};
use super::commit::Place;
use super::compare::{RESERVED, Sides};
use super::record::{Moment, Record, State};
use super::select::{Chosen, Piece};
use super::stage::{self, Parent, Sync, parent};
use super::{Error, discard, text};

/// Takes over what was chosen and writes down that it was.
///
/// Each piece appears at once: whoever is killed here leaves whole files, and it can be done again.
pub(crate) fn apply(
    record: &mut Record,
    sides: &Sides,
    changes: &[Change],
    chosen: &Chosen,
) -> Result<(), Error> {
    record.linked.extend(several_names(changes));
    let apply = Apply {
        record,
        sides,
        changes,
        prefix: prefix(record),
        sync: match chosen.count {
            0..=FEW => Sync::Each,
            _ => Sync::Together,
        },
    };
    let before = record.state.clone();
    let mut folders: BTreeSet<PathBuf> = chosen
        .pieces
        .iter()
        .map(|piece| parent(&changes[piece.change()].path).to_owned())
        .collect();
    if let State::Applying { folders: left, .. } = &before {
        let left: Vec<PathBuf> = left
            .iter()
            .filter_map(|path| text::unescaped(path))
            .collect();
        for folder in &left {
            apply.clear(folder)?;
        }
        folders.extend(left);
    }
    let mut under_way = record.clone();
    under_way.state = State::Applying {
        since: Moment::now(),
        folders: folders.iter().map(|path| text::escaped(path)).collect(),
    };
    under_way.save_durably()?;
    if let Err(error) = apply.make_all(&chosen.pieces) {
        for folder in &folders {
            apply.clear(folder)?;
        }
        record.save_durably()?;
        return Err(error);
    }
    let put = apply.put_all(&chosen.pieces);
    if put.is_err() {
        for folder in &folders {
            // The error that stopped it is the one to tell.
            let _ = apply.clear(folder);
        }
    }
    apply.sync(&folders)?;
    put?;
    let at = Moment::now();
    if chosen.left.is_empty() {
        record.state = State::Applied {
            at,
            count: chosen.count,
        };
        return discard::drop_layers(record);
    }
    record.state = State::PartlyApplied { at };
    record.save_durably()
}

struct Apply<'a> {
    record: &'a Record,
    sides: &'a Sides,
    changes: &'a [Change],
    prefix: OsString,
    sync: Sync,
}

impl Apply<'_> {
    fn make_all(&self, pieces: &[Piece]) -> Result<(), Error> {
        for (number, piece) in pieces.iter().enumerate() {
            let Piece::Put { change, inside } = piece else {
                continue;
            };
            let change = &self.changes[*change];
            let inside: Vec<&Change> = inside.iter().map(|index| &self.changes[*index]).collect();
            self.parent(change)
                .and_then(|parent| {
                    let name = self.name(number);
                    let folder = parent.folder().fd();
                    stage::make(self.sides, folder, &name, change, &inside, self.sync)
                })
                .map_err(|error| self.failed("cannot make, beside its place,", change, error))?;
        }
        if self.sync == Sync::Together {
            rustix::fs::syncfs(self.sides.workspace.top())
                .map_err(|errno| self.unsynced(errno.into()))?;
        }
        Ok(())
    }

    fn put_all(&self, pieces: &[Piece]) -> Result<(), Error> {
        // Permissions last, the innermost first: one may keep us from what is in the folder.
        let (last, first): (Vec<_>, Vec<_>) = pieces
            .iter()
            .enumerate()
            .partition(|(_, piece)| matches!(piece, Piece::Permit { .. }));
        let in_order = first.iter().chain(last.iter().rev());
        for (done, (number, piece)) in in_order.enumerate() {
            let change = &self.changes[piece.change()];
            self.put(*number, piece, change)
                .map_err(|source| Error::Stopped {
                    path: change.path.clone(),
                    done,
                    all: pieces.len(),
                    source,
                })?;
        }
        Ok(())
    }

    fn put(&self, number: usize, piece: &Piece, change: &Change) -> io::Result<()> {
        let parent = self.parent(change)?;
        let ours = self.name(number);
        let place = Place {
            sides: self.sides,
            parent: &parent,
            change,
            ours: &ours,
            record: self.record,
        };
        match piece {
            Piece::Put { .. } => place.put(),
            Piece::Remove { .. } => place.remove(),
            Piece::Permit { .. } => place.permit(),
        }
    }

    fn parent(&self, change: &Change) -> io::Result<Parent> {
        Parent::open(self.sides, parent(&change.path))
    }

    fn name(&self, number: usize) -> OsString {
        let mut name = self.prefix.clone();
        name.push(number.to_string());
        name
    }

    fn clear(&self, folder: &Path) -> Result<(), Error> {
        stage::clear(self.sides, folder, &self.prefix).map_err(|error| {
            let path = self.record.workspace.join(folder);
            Error::machine("cannot remove what was left over in", &path, error)
        })
    }

    fn sync(&self, folders: &BTreeSet<PathBuf>) -> Result<(), Error> {
        let synced = match self.sync {
            Sync::Each => folders.iter().try_for_each(|path| {
                match self.sides.workspace.folder(path) {
                    Ok(folder) => Ok(rustix::fs::fsync(folder.fd())?),
                    // It was removed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(error),
                }
            }),
            Sync::Together => rustix::fs::syncfs(self.sides.workspace.top()).map_err(Into::into),
        };
        synced.map_err(|error| self.unsynced(error))
    }

    fn unsynced(&self, error: io::Error) -> Error {
        Error::machine("cannot write to the disk:", &self.record.workspace, error)
    }

    fn failed(&self, what: &'static str, change: &Change, error: io::Error) -> Error {
        Error::machine(what, &self.record.workspace.join(&change.path), error)
    }
}

/// Files of the workspace that have several names among the changes.
fn several_names(changes: &[Change]) -> Vec<(u64, u64)> {
    let mut met = BTreeSet::new();
    let files = changes.iter().filter(|change| {
        let was = change.was.as_ref();
        was.is_some_and(|was| was.kind != Kind::Folder)
    });
    files
        .filter_map(|change| change.seen)
        .map(|seen| (seen.device, seen.inode))
        .filter(|file| !met.insert(*file))
        .collect()
}

/// How the names of what we make for this run begin.
fn prefix(record: &Record) -> OsString {
    let run = record.folder().file_name().unwrap_or_default();
    let mut prefix = OsString::from(RESERVED);
    prefix.push(run);
    prefix.push("-");
    prefix
}

/// So few files are written to the disk one by one.
const FEW: u64 = 64;
