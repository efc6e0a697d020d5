//! Making what is to be put into the workspace, beside its place and under a name of ours.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::change::{Change, Entry, Kind};
use super::compare::Sides;
use super::tree::Folder;

/// A folder of the workspace that is written to.
#[derive(Debug)]
pub(crate) struct Parent {
    folder: Folder,
    // Its owner keeps others and himself from writing to it; we do as the owner asked us to.
    protected: Option<Mode>,
}

impl Parent {
    /// Opens it, with the right to write.
    pub(crate) fn open(sides: &Sides, path: &Path) -> io::Result<Self> {
        let folder = sides.workspace.folder(path)?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(folder.fd())?.st_mode & 0o7777);
        let needed = Mode::WUSR | Mode::XUSR;
        let is_protected = !mode.contains(needed) && !rustix::process::geteuid().is_root();
        // Where we may not change that, the first write tells.
        let is_widened = is_protected && rustix::fs::fchmod(folder.fd(), mode | needed).is_ok();
        Ok(Self {
            folder,
            protected: is_widened.then_some(mode),
        })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        if let Some(mode) = self.protected {
            let _ = rustix::fs::fchmod(self.folder.fd(), mode);
        }
    }
}

/// What is made is written to the disk at once, unless all of it is later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Each file.
    Each,
    /// The whole file system, when everything is there.
    Together,
}

/// Makes `change` as `name` in `folder`; a folder with the changes that are in it.
pub(crate) fn make(
    sides: &Sides,
    folder: impl AsFd,
    name: &OsStr,
    change: &Change,
    inside: &[&Change],
    sync: Sync,
) -> io::Result<()> {
    let folder = folder.as_fd();
    let Some((now, layer)) = change.now.as_ref().zip(change.layer) else {
        return Err(io::Error::other("there is nothing to put there"));
    };
    match now.kind {
        Kind::File => {
            let source = sides.layers[layer].tree.folder(parent(&change.path))?;
            let from = sides.layers[layer]
                .tree
                .file(&source, change.path.file_name().unwrap_or_default())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let to = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
            let mut to = File::from(to);
            io::copy(&mut &from, &mut to)?;
            own(sides, &to, change)?;
            rustix::fs::fchmod(&to, permissions(now, 0))?;
            if sync == Sync::Each {
                to.sync_all()?;
            }
            Ok(())
        }
        Kind::Link => {
            let target = now.target.as_deref().unwrap_or(Path::new(""));
            rustix::fs::symlinkat(target, folder, name)?;
            if let Some((user, group)) = owner(sides, change) {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(folder, name, Some(user), Some(group), flags)?;
            }
            Ok(())
        }
        Kind::Folder => {
            rustix::fs::mkdirat(folder, name, Mode::RWXU)?;
            let made = open_made(folder, name)?;
            own(sides, &made, change)?;
            fill(sides, &made, &change.path, inside, sync)?;
            let inherited = rustix::fs::fstat(&made)?.st_mode & 0o2000;
            rustix::fs::fchmod(&made, permissions(now, inherited))?;
            Ok(())
        }
        Kind::Special => Err(io::Error::other("it is no file, folder or link")),
    }
}

/// Puts into a new folder what is in it.
fn fill(
    sides: &Sides,
    folder: &OwnedFd,
    path: &Path,
    inside: &[&Change],
    sync: Sync,
) -> io::Result<()> {
    let mut rest = inside;
    while let Some((first, after)) = rest.split_first() {
        // They are sorted, so what is in it follows it.
        let length = after
            .iter()
            .take_while(|change| change.path.starts_with(&first.path))
            .count();
        let (in_first, others) = after.split_at(length);
        rest = others;
        if first.now.is_none() || parent(&first.path) != path {
            continue;
        }
        let name = first.path.file_name().unwrap_or_default();
        make(sides, folder, name, first, in_first, sync)?;
    }
    Ok(())
}

/// Gives it to whom it belongs in the workspace, where root does this for somebody.
fn own(sides: &Sides, made: impl AsFd, change: &Change) -> io::Result<()> {
    match owner(sides, change) {
        Some((user, group)) => Ok(rustix::fs::fchown(made, Some(user), Some(group))?),
        None => Ok(()),
    }
}

/// Whose it is to be: the owner of what it takes the place of, or of the workspace.
fn owner(sides: &Sides, change: &Change) -> Option<(Uid, Gid)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let before = change.was.as_ref().zip(change.now.as_ref());
    let same = before.filter(|(was, now)| was.kind == now.kind);
    let (user, group) = same
        .and_then(|_| change.seen.map(|seen| seen.owner))
        .unwrap_or((sides.top.st_uid, sides.top.st_gid));
    Some((Uid::from_raw(user), Gid::from_raw(group)))
}

/// Permissions without the bits that give a program, or a folder, more than its user has.
pub(crate) fn permissions(entry: &Entry, kept: u32) -> Mode {
    Mode::from_raw_mode(entry.mode & 0o777 | kept)
}

/// The folder that we have just made.
fn open_made(folder: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve)
}

/// The folder that a path lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Removes what an earlier try left in a folder of the workspace.
pub(crate) fn clear(sides: &Sides, path: &Path, prefix: &OsStr) -> io::Result<()> {
    let parent = match Parent::open(sides, path) {
        Ok(parent) => parent,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let left: Vec<OsString> = parent
        .folder()
        .names()?
        .into_iter()
        .filter(|name| {
            name.as_encoded_bytes()
                .starts_with(prefix.as_encoded_bytes())
        })
        .collect();
    for name in left {
        super::remove::remove(parent.folder().fd(), &name)?;
    }
    Ok(())
}
