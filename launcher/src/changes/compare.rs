//! What a run left otherwise than the workspace is now.
//!
//! Only what some layer knows of is looked at. The workspace is read beneath its own descriptor, and nothing is followed.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::change::{Change, Conflict, Entry, Kind, Refused};
use super::layers::{self, Found, Layer, Place, Stack};
use super::record::{Moment, Record, State};
use super::tree::{Folder, Tree, is_within_reach, kind, seen};
use super::{Error, obeyed};

/// Both sides, opened.
#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) workspace: Tree,
    pub(crate) layers: Vec<Layer>,
    pub(crate) top: Stat,
}

impl Sides {
    /// Opens the layers, and the workspace if it is still the folder that the run saw.
    pub(crate) fn open(record: &Record) -> Result<Self, Error> {
        let path = &record.workspace;
        let wrong = |why: &str| Error::Workspace {
            path: path.clone(),
            why: why.to_owned(),
        };
        let workspace = Tree::of_the_owner(path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::LOOP.raw_os_error() => {
                wrong("a part of this path has become a symbolic link")
            }
            Some(code) if code == Errno::NOTDIR.raw_os_error() => {
                wrong("something else than a folder has taken its place since the run began")
            }
            Some(code) if code == Errno::NOENT.raw_os_error() => wrong("it is gone"),
            _ => Error::machine("cannot open the workspace", path, error),
        })?;
        let top = rustix::fs::fstat(workspace.top())
            .map_err(|errno| Error::machine("cannot look at the workspace", path, errno))?;
        if (top.st_dev, top.st_ino) != record.identity() {
            return Err(wrong(
                "another folder has taken its place since the run began",
            ));
        }
        let layers = layers::open(record)?;
        // A copy holds what is mounted in the workspace as well.
        let workspace = if layers.iter().any(Layer::is_copied) {
            workspace.with_mounts()
        } else {
            workspace
        };
        Ok(Self {
            workspace,
            layers,
            top,
        })
    }
}

/// Compares the two sides. The changes are sorted by their paths, so that a folder comes before what is in it.
pub(crate) fn changes(record: &Record, sides: &Sides) -> Result<Vec<Change>, Error> {
    let mut comparison = Comparison {
        sides,
        record,
        // Then folders have changed by what we did in them.
        was_touched_by_us: !matches!(record.state, State::Kept),
        is_another: false,
        changes: Vec::new(),
        left: Vec::new(),
    };
    let top = Moment::of(&sides.top);
    comparison.left.push(Left::Compare {
        path: PathBuf::new(),
        place: Place::top(&sides.layers),
        is_there: true,
        is_another: false,
        changed: top,
    });
    while let Some(left) = comparison.left.pop() {
        let path = left.path().to_owned();
        comparison.look(left).map_err(|error| {
            Error::machine("cannot compare", &record.workspace.join(&path), error)
        })?;
        if comparison.changes.len() > MOST {
            return Err(Error::TooMany { most: MOST });
        }
    }
    comparison.changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(comparison.changes)
}

struct Comparison<'a> {
    sides: &'a Sides,
    record: &'a Record,
    was_touched_by_us: bool,
    /// Whether the folder that is looked at is another than the run saw.
    is_another: bool,
    changes: Vec<Change>,
    left: Vec<Left>,
}

/// What is still to be looked at.
enum Left {
    /// A folder that the run left.
    Compare {
        path: PathBuf,
        place: Place,
        /// Whether the workspace has a folder there.
        is_there: bool,
        /// Whether that, or one above it, is another than the run saw.
        is_another: bool,
        /// When the workspace's folder, or the nearest above it that is there, changed.
        changed: Moment,
    },
    /// A folder of the workspace that the run removed, and whether it is another than the run saw.
    Removed(PathBuf, bool),
}

impl Left {
    fn path(&self) -> &Path {
        match self {
            Self::Compare { path, .. } | Self::Removed(path, _) => path,
        }
    }
}

impl Comparison<'_> {
    fn look(&mut self, left: Left) -> io::Result<()> {
        match left {
            Left::Compare {
                path,
                place,
                is_there,
                is_another,
                changed,
            } => {
                self.is_another = is_another;
                self.folder(&path, &place, is_there, changed)
            }
            Left::Removed(path, is_another) => {
                self.is_another = is_another;
                self.removed(&path)
            }
        }
    }

    fn folder(
        &mut self,
        path: &Path,
        place: &Place,
        is_there: bool,
        changed: Moment,
    ) -> io::Result<()> {
        let stack = place.open(&self.sides.layers, path)?;
        let workspace = if is_there {
            match self.sides.workspace.folder(path) {
                Ok(folder) => Some(folder),
                Err(error) => return self.unopened(path, error),
            }
        } else {
            None
        };
        let mut names = stack.names()?;
        if let (false, Some(workspace)) = (stack.shows_workspace, &workspace) {
            names.extend(workspace.names()?);
        }
        for name in names {
            let path = path.join(&name);
            self.entry(&stack, workspace.as_ref(), &name, path, changed)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        stack: &Stack,
        workspace: Option<&Folder>,
        name: &OsStr,
        path: PathBuf,
        changed: Moment,
    ) -> io::Result<()> {
        let was = match workspace {
            Some(folder) => folder.stat(name)?,
            None => None,
        };
        let found = stack.find(name)?;
        let (layer, stat, place, origin) = match found {
            Found::Untouched => return Ok(()),
            Found::Absent => {
                if let (Some(folder), Some(was)) = (workspace, was) {
                    self.deleted(folder, name, path, &was)?;
                }
                return Ok(());
            }
            Found::Leaf {
                layer,
                stat,
                is_from_workspace,
            } => (layer, stat, None, is_from_workspace),
            Found::Folder { layer, stat, place } => (layer, stat, Some(place), false),
        };
        let now = stack.folder(layer)?.entry(name, &stat)?;
        let entry = match (workspace, &was) {
            (Some(folder), Some(was)) => Some(folder.entry(name, was)?),
            _ => None,
        };
        let both_folders =
            now.kind == Kind::Folder && entry.as_ref().is_some_and(|was| was.kind == Kind::Folder);
        let is_alike = match (&entry, workspace) {
            (Some(was), Some(folder)) => is_alike(was, &now, || {
                have_same_bytes(
                    (&self.sides.workspace, folder),
                    (&self.sides.layers[layer].tree, stack.folder(layer)?),
                    name,
                )
            })?,
            _ => false,
        };
        if !is_alike {
            let conflict = match &was {
                // A folder that stays is not lost, and its own time tells of what is in it.
                Some(_) if both_folders => None,
                Some(was) => self.conflict(was),
                None => (origin && !self.was_touched_by_us && changed >= self.record.began)
                    .then_some(Conflict::Removed),
            };
            let refused = refusal(&path, &now);
            self.changes.push(Change {
                obeyed: obeyed::by(&path),
                path: path.clone(),
                was: entry.clone(),
                now: Some(now),
                conflict,
                refused,
                layer: Some(layer),
                seen: was.as_ref().map(seen),
            });
        }
        let was_folder = was.as_ref().filter(|was| kind(was) == Kind::Folder);
        let is_another = self.is_another
            || !self.was_touched_by_us
                && was_folder.is_some_and(|was| self.record.is_another(&path, was));
        match place {
            Some(_) if !is_within_reach(&path) => {
                self.mark_too_deep(path);
            }
            Some(place) => self.left.push(Left::Compare {
                path,
                place,
                is_there: was_folder.is_some(),
                is_another,
                changed: was_folder.map_or(changed, Moment::of),
            }),
            // Something else took the folder's place: all that was in it is removed.
            None if was_folder.is_some() => self.left.push(Left::Removed(path, is_another)),
            None => {}
        }
        Ok(())
    }

    /// Everything in a folder of the workspace that the run removed.
    fn removed(&mut self, path: &Path) -> io::Result<()> {
        let folder = match self.sides.workspace.folder(path) {
            Ok(folder) => folder,
            Err(error) => return self.unopened(path, error),
        };
        for name in folder.names()? {
            if let Some(was) = folder.stat(&name)? {
                self.deleted(&folder, &name, path.join(&name), &was)?;
            }
        }
        Ok(())
    }

    fn deleted(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        path: PathBuf,
        was: &Stat,
    ) -> io::Result<()> {
        let is_deep = !is_within_reach(&path);
        self.changes.push(Change {
            obeyed: obeyed::by(&path),
            path: path.clone(),
            was: Some(folder.entry(name, was)?),
            now: None,
            conflict: self.conflict(was),
            refused: is_deep.then_some(Refused::TooDeep),
            layer: None,
            seen: Some(seen(was)),
        });
        if kind(was) == Kind::Folder && !is_deep {
            self.left.push(Left::Removed(path, self.is_another));
        }
        Ok(())
    }

    fn conflict(&self, was: &Stat) -> Option<Conflict> {
        // What we removed from a folder changed it, too.
        let is_by_us = self.was_touched_by_us && kind(was) == Kind::Folder;
        let is_changed = self.is_another || self.record.is_changed(was);
        (!is_by_us && is_changed).then_some(Conflict::Changed)
    }

    /// A folder of the workspace that cannot be looked into stands in the way of what is to be done there.
    fn unopened(&mut self, path: &Path, error: io::Error) -> io::Result<()> {
        let conflict = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS | Errno::PERM) => Conflict::Unreadable,
            Some(Errno::XDEV) => Conflict::Mounted,
            // It went away or became something else while we look.
            Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Conflict::Changed,
            _ => return Err(error),
        };
        let known = self.changes.iter_mut().find(|change| change.path == path);
        match known {
            Some(change) => change.conflict = Some(conflict),
            None => self.changes.push(Change {
                path: path.to_owned(),
                was: Some(Entry::FOLDER),
                now: Some(Entry::FOLDER),
                obeyed: None,
                conflict: Some(conflict),
                refused: None,
                layer: None,
                seen: None,
            }),
        }
        Ok(())
    }

    fn mark_too_deep(&mut self, path: PathBuf) {
        match self.changes.last_mut().filter(|last| last.path == path) {
            Some(change) => change.refused = Some(Refused::TooDeep),
            None => self.changes.push(Change {
                path,
                was: Some(Entry::FOLDER),
                now: Some(Entry::FOLDER),
                obeyed: None,
                conflict: None,
                refused: Some(Refused::TooDeep),
                layer: None,
                seen: None,
            }),
        }
    }
}

impl Entry {
    const FOLDER: Self = Self {
        kind: Kind::Folder,
        mode: 0o755,
        size: 0,
        target: None,
    };
}

/// Whether taking it over would change nothing.
fn is_alike(
    was: &Entry,
    now: &Entry,
    have_same_bytes: impl FnOnce() -> io::Result<bool>,
) -> io::Result<bool> {
    if was.kind != now.kind {
        return Ok(false);
    }
    let same_mode = was.mode & 0o777 == now.mode & 0o777;
    Ok(match now.kind {
        Kind::Folder => same_mode,
        Kind::Link => was.target == now.target,
        Kind::File => same_mode && was.size == now.size && have_same_bytes()?,
        Kind::Special => false,
    })
}

/// Compares two files of one size.
fn have_same_bytes(was: (&Tree, &Folder), now: (&Tree, &Folder), name: &OsStr) -> io::Result<bool> {
    let Ok(mut was) = was.0.file(was.1, name) else {
        // What we cannot read is not known to be the same.
        return Ok(false);
    };
    let mut now = now.0.file(now.1, name)?;
    let (mut some, mut other) = (vec![0_u8; CHUNK], vec![0_u8; CHUNK]);
    loop {
        let length = read_full(&mut was, &mut some)?;
        if read_full(&mut now, &mut other)? != length || some[..length] != other[..length] {
            return Ok(false);
        }
        if length < CHUNK {
            return Ok(true);
        }
    }
}

fn read_full(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn refusal(path: &Path, now: &Entry) -> Option<Refused> {
    let name = path.file_name().unwrap_or_default();
    if name.as_encoded_bytes().starts_with(RESERVED.as_bytes()) {
        return Some(Refused::Reserved);
    }
    match (now.kind, &now.target) {
        (Kind::Special, _) => Some(Refused::Special),
        (Kind::Link, Some(target)) if leads_out(path, target) => Some(Refused::LeadsOut),
        (Kind::Link | Kind::File | Kind::Folder, _) => None,
    }
}

/// Whether a link at `path` may lead out of the workspace.
///
/// `..` behind a name counts as leading out: the name may itself be a link, and then nobody can tell from the text.
fn leads_out(path: &Path, target: &Path) -> bool {
    let mut above = path.components().count().saturating_sub(1);
    let mut is_downwards = false;
    for part in target.components() {
        match part {
            Component::Normal(_) => is_downwards = true,
            Component::CurDir => {}
            Component::ParentDir if above > 0 && !is_downwards => above -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

/// How names begin that exist while changes are taken over.
pub(crate) const RESERVED: &str = ".valetkey-apply-";
const CHUNK: usize = 64 << 10;
const MOST: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_within_the_workspace_does_not_lead_out() {
        for (path, target) in [
            ("a", "b"),
            ("a/b/c", "../../d"),
            ("a/b", "./x/./y"),
            ("a/b", ".."),
        ] {
            assert!(!leads_out(Path::new(path), Path::new(target)), "{target}");
        }
    }

    #[test]
    fn a_link_that_may_lead_out_does() {
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a/b", "../../x"),
            ("a/b/c", "d/../x"),
            ("a", "x/../../y"),
        ] {
            assert!(leads_out(Path::new(path), Path::new(target)), "{target}");
        }
    }
}
