//! What earlier steps changed, laid into a copy of the workspace before the next one works on it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::layer;
use crate::changes::{self, Folder, Tree, is_within_reach};

/// Lays a layer into `copy`, as an overlay would show it above. Nobody else is at either of them.
pub(super) fn lay(layer: &Path, copy: &Path) -> io::Result<()> {
    let tree = Tree::of_ours(&layer.canonicalize()?)?;
    // It can be filled whatever its mode is to be.
    drop(layer::open(copy)?);
    let mut folders: Vec<(PathBuf, Stat)> = Vec::new();
    let mut left: Vec<(PathBuf, Option<Stat>)> = vec![(PathBuf::new(), None)];
    while let Some((path, found)) = left.pop() {
        // Permissions that were taken away are widened for as long as this is open.
        let folder = tree.folder(&path)?;
        if let Some(found) = found {
            make_folder(&copy.join(&path), is_opaque(&folder)?)?;
            folders.push((path.clone(), found));
        }
        for name in folder.names()? {
            let path = path.join(&name);
            let Some(found) = folder.stat(&name)? else {
                continue;
            };
            if !is_within_reach(&path) {
                return Err(io::Error::other("an earlier step nested folders too deep"));
            }
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                left.push((path, Some(found)));
            } else {
                lay_other(&tree, &folder, &name, &copy.join(path), &found)?;
            }
        }
    }
    // A folder before what is in it: it may be closed then.
    for (path, found) in folders.iter().rev() {
        settle(&copy.join(path), found)?;
    }
    Ok(())
}

fn make_folder(to: &Path, is_opaque: bool) -> io::Result<()> {
    // No link is ever followed: what is no folder gives way to one.
    let is_folder = fs::symlink_metadata(to).is_ok_and(|there| there.is_dir());
    if !is_folder || is_opaque {
        remove(to)?;
        fs::create_dir(to)?;
    }
    // It is filled yet.
    fs::set_permissions(to, fs::Permissions::from_mode(0o700))
}

fn lay_other(
    tree: &Tree,
    folder: &Folder,
    name: &OsStr,
    to: &Path,
    found: &Stat,
) -> io::Result<()> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::CharacterDevice if found.st_rdev == 0 => remove(to),
        FileType::Symlink => {
            remove(to)?;
            let target = rustix::fs::readlinkat(folder.fd(), name, Vec::new())?;
            std::os::unix::fs::symlink(OsString::from_vec(target.into_bytes()), to)
        }
        FileType::RegularFile => {
            remove(to)?;
            io::copy(&mut tree.file(folder, name)?, &mut File::create_new(to)?)?;
            settle(to, found)
        }
        // Pipes and the like have nothing in them.
        _ => Ok(()),
    }
}

fn settle(to: &Path, found: &Stat) -> io::Result<()> {
    fs::set_permissions(to, fs::Permissions::from_mode(found.st_mode & 0o1777))?;
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(found.st_atime, found.st_atime_nsec as i64),
        last_modification: time(found.st_mtime, found.st_mtime_nsec as i64),
    };
    Ok(rustix::fs::utimensat(CWD, to, &times, AtFlags::empty())?)
}

/// Whether a folder hides what lies below it.
fn is_opaque(folder: &Folder) -> io::Result<bool> {
    let mut value = [0_u8; 8];
    match rustix::fs::fgetxattr(folder.fd(), OPAQUE, &mut value) {
        Ok(length) => Ok(value.get(..length) == Some(b"y")),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
    changes::remove(folder.as_fd(), path.file_name().unwrap_or(OsStr::new("")))
}

const OPAQUE: &str = "user.overlay.opaque";
