//! What was changed in a copy of the workspace, written down as an overlay's upper layer, so that it is shown and
//! applied in the same way.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::ops::Bound;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, Stat, Timespec, Timestamps};

use super::copy::{Copied, Mark};
use crate::changes::{self, Folder, Tree, is_within_reach};

/// Writes the differences between `copy` and what was copied into `upper`. Nothing runs in the copy any more.
///
/// What is nested too deep to be taken over is written as the folder that it begins with, so that it is told.
///
/// # Errors
/// If something cannot be read or written; then nothing is in `upper`, as a part would be taken for all of it.
pub(crate) fn write(copy: &Path, copied: &Copied, upper: &Path) -> io::Result<()> {
    let mut layer = Layer {
        tree: open(copy)?,
        copied,
        upper,
        folders: HashMap::new(),
        others: HashSet::new(),
        made: Vec::new(),
    };
    let written = layer
        .changed()
        .and_then(|()| layer.deleted())
        .and_then(|()| layer.settle());
    if written.is_err() {
        let folder = fs::File::open(upper)?;
        for entry in fs::read_dir(upper)? {
            changes::remove(folder.as_fd(), &entry?.file_name())?;
        }
    }
    written
}

/// Opens a copy whose command may have taken all permissions from it.
pub(super) fn open(copy: &Path) -> io::Result<Tree> {
    let copy = copy.canonicalize()?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700))?;
    Tree::of_ours(&copy)
}

struct Layer<'a> {
    tree: Tree,
    copied: &'a Copied,
    upper: &'a Path,
    /// The folders of the copy, with their modes.
    folders: HashMap<PathBuf, u32>,
    /// What else is in it.
    others: HashSet<PathBuf>,
    /// The folders of the layer, a folder before what is in it.
    made: Vec<PathBuf>,
}

impl Layer<'_> {
    fn changed(&mut self) -> io::Result<()> {
        let mut left = vec![PathBuf::new()];
        while let Some(path) = left.pop() {
            // Permissions that were taken away are widened for as long as this is open.
            let folder = self.tree.folder(&path)?;
            for name in folder.names()? {
                let path = path.join(&name);
                let Some(found) = folder.stat(&name)? else {
                    continue;
                };
                if self.copied.kept.contains(&path) {
                    self.others.insert(path);
                } else if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                    self.folder(&path, &found)?;
                    if is_within_reach(&path) {
                        left.push(path);
                    }
                } else {
                    self.other(&folder, &name, &path, &found)?;
                    self.others.insert(path);
                }
            }
        }
        Ok(())
    }

    fn folder(&mut self, path: &Path, found: &Stat) -> io::Result<()> {
        self.folders.insert(path.to_owned(), found.st_mode);
        let before = self.copied.entries.get(path);
        if before == Some(&Mark::of(found)) && is_within_reach(path) {
            return Ok(());
        }
        self.parents(path)?;
        self.make_folder(path)
    }

    fn other(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        path: &Path,
        found: &Stat,
    ) -> io::Result<()> {
        let mark = Mark::of(found);
        // In the place of a folder with something hidden in it, that must stay.
        if self.copied.entries.get(path) == Some(&mark) || self.holds_kept(path) {
            return Ok(());
        }
        self.parents(path)?;
        let to = self.upper.join(path);
        match mark.kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(folder.fd(), name, Vec::new())?;
                std::os::unix::fs::symlink(OsString::from_vec(target.into_bytes()), to)
            }
            FileType::RegularFile => {
                let mut bytes = self.tree.file(folder, name)?;
                let mut made = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .open(&to)?;
                io::copy(&mut bytes, &mut made)?;
                made.set_permissions(fs::Permissions::from_mode(found.st_mode & 0o1777))?;
                let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
                rustix::fs::futimens(
                    &made,
                    &Timestamps {
                        last_access: time(found.st_atime, found.st_atime_nsec as i64),
                        last_modification: time(found.st_mtime, found.st_mtime_nsec as i64),
                    },
                )?;
                Ok(())
            }
            // Pipes and the like have nothing in them.
            _ => Ok(()),
        }
    }

    /// Marks what is gone. A folder with something hidden in it stays, for the hidden thing does.
    fn deleted(&mut self) -> io::Result<()> {
        let mut above: Option<&Path> = None;
        for path in self.copied.entries.keys() {
            let is_within = above.is_some_and(|above| path.starts_with(above));
            let is_there = self.folders.contains_key(path) || self.others.contains(path);
            // What is deeper was not looked for.
            let is_untold = path.as_os_str().is_empty() || !is_within_reach(path);
            if is_within || is_there || is_untold || self.copied.kept.contains(path) {
                continue;
            }
            if self.holds_kept(path) {
                continue;
            }
            above = Some(path);
            // Something else stands where a folder above was: it takes the place of all.
            let place = self.upper.join(path);
            if self.parents(path).is_err() || fs::symlink_metadata(&place).is_ok() {
                continue;
            }
            rustix::fs::mknodat(
                CWD,
                &place,
                FileType::CharacterDevice,
                Mode::empty(),
                rustix::fs::makedev(0, 0),
            )?;
        }
        Ok(())
    }

    /// Whether something that stays is in it.
    fn holds_kept(&self, path: &Path) -> bool {
        // Paths are ordered by their parts: what is in a folder follows it.
        let from = (Bound::Included(path), Bound::Unbounded);
        let mut from = self.copied.kept.range::<Path, _>(from);
        from.next().is_some_and(|kept| kept.starts_with(path))
    }

    /// Makes the folders above something, if they are folders in the copy.
    fn parents(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.pop();
        if above.iter().any(|path| !self.folders.contains_key(*path)) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        for folder in above.into_iter().rev() {
            self.make_folder(folder)?;
        }
        Ok(())
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        // It is filled yet, so it gets its own mode last.
        match DirBuilder::new().mode(0o700).create(self.upper.join(path)) {
            Ok(()) => self.made.push(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn settle(&self) -> io::Result<()> {
        for path in self.made.iter().rev() {
            let mode = self.folders.get(path).map_or(0o755, |mode| mode & 0o1777);
            fs::set_permissions(self.upper.join(path), fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    }
}
