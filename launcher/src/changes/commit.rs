//! Putting a piece in its place, at once, and only if what is there is what was compared.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::change::{Change, Kind, Seen};
use super::compare::Sides;
use super::record::Record;
use super::remove;
use super::stage::{Parent, permissions};
use super::tree::{Folder, kind, seen};

/// What a piece needs to be put in its place.
pub(crate) struct Place<'a> {
    pub(crate) sides: &'a Sides,
    pub(crate) parent: &'a Parent,
    pub(crate) change: &'a Change,
    /// A name of ours in the same folder.
    pub(crate) ours: &'a OsStr,
    /// Which says what has changed since the run began.
    pub(crate) record: &'a Record,
}

impl Place<'_> {
    /// Puts what was made under our name in its place; what was there goes.
    pub(crate) fn put(&self) -> io::Result<()> {
        let Some(was) = self.change.seen else {
            return self.rename(self.ours, self.name(), RenameFlags::NOREPLACE);
        };
        match self.rename(self.ours, self.name(), RenameFlags::EXCHANGE) {
            Ok(()) => {}
            Err(error) if is_unknown(&error) => return self.put_without_exchange(was),
            Err(error) => return Err(error),
        }
        // Now what was there is under our name, where nobody else changes it.
        if let Err(error) = self.is_as_compared(was) {
            self.rename(self.ours, self.name(), RenameFlags::EXCHANGE)?;
            return Err(error);
        }
        remove::remove(self.folder().fd(), self.ours)
    }

    /// For file systems that cannot exchange two names.
    fn put_without_exchange(&self, was: Seen) -> io::Result<()> {
        let there = self.folder().stat(self.name())?;
        if there.is_none_or(|there| seen(&there) != was) {
            return Err(changed());
        }
        if there.is_some_and(|there| kind(&there) == Kind::Folder) {
            return Err(io::Error::other(
                "this file system cannot put something else in the place of a folder at once; remove the folder first",
            ));
        }
        let (folder, name) = (self.folder().fd(), self.name());
        Ok(rustix::fs::renameat(folder, self.ours, folder, name)?)
    }

    /// Removes what is there.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let Some(was) = self.change.seen else {
            return Ok(());
        };
        self.rename(self.name(), self.ours, RenameFlags::NOREPLACE)?;
        if let Err(error) = self.is_as_compared(was) {
            self.rename(self.ours, self.name(), RenameFlags::NOREPLACE)?;
            return Err(error);
        }
        remove::remove(self.folder().fd(), self.ours)
    }

    /// Gives a folder that stays its permissions; its own special bits stay.
    pub(crate) fn permit(&self) -> io::Result<()> {
        let folder = self.sides.workspace.folder(&self.change.path)?;
        let stat = rustix::fs::fstat(folder.fd())?;
        let is_same = self
            .change
            .seen
            .is_some_and(|was| (was.device, was.inode) == (stat.st_dev, stat.st_ino));
        let Some(now) = self.change.now.as_ref().filter(|_| is_same) else {
            return Err(changed());
        };
        Ok(rustix::fs::fchmod(
            folder.fd(),
            permissions(now, stat.st_mode & 0o7000),
        )?)
    }

    /// Whether what was taken out of its place is what was compared; of a folder, all that is in it.
    fn is_as_compared(&self, was: Seen) -> io::Result<()> {
        let Some(there) = self.folder().stat(self.ours)? else {
            return Err(changed());
        };
        if seen(&there) != was {
            return Err(changed());
        }
        if kind(&there) == Kind::Folder {
            let path = super::stage::parent(&self.change.path).join(self.ours);
            self.is_old(&path)?;
        }
        Ok(())
    }

    /// Whether nothing in a folder changed since the run began.
    fn is_old(&self, path: &Path) -> io::Result<()> {
        let mut left = vec![path.to_owned()];
        while let Some(path) = left.pop() {
            let folder = self.sides.workspace.folder(&path)?;
            for name in folder.names()? {
                let Some(stat) = folder.stat(&name)? else {
                    continue;
                };
                let is_folder = kind(&stat) == Kind::Folder;
                if self.record.is_changed(&stat) && !is_folder {
                    return Err(changed());
                }
                if is_folder {
                    left.push(path.join(&name));
                }
            }
        }
        Ok(())
    }

    fn rename(&self, from: &OsStr, to: &OsStr, flags: RenameFlags) -> io::Result<()> {
        let folder = self.folder().fd();
        match rustix::fs::renameat_with(folder, from, folder, to, flags) {
            Err(errno) if is_unknown(&errno.into()) && flags == RenameFlags::NOREPLACE => {
                if self.folder().stat(to)?.is_some() {
                    return Err(changed());
                }
                Ok(rustix::fs::renameat(folder, from, folder, to)?)
            }
            Err(Errno::EXIST | Errno::NOENT) => Err(changed()),
            done => Ok(done?),
        }
    }

    fn folder(&self) -> &Folder {
        self.parent.folder()
    }

    fn name(&self) -> &OsStr {
        self.change.path.file_name().unwrap_or_default()
    }
}

fn is_unknown(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn changed() -> io::Error {
    io::Error::other("it changed in the workspace just now; nothing of it was overwritten")
}
