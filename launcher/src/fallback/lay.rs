//! What earlier steps changed, laid into a copy of the workspace before the next one works on it.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use rustix::io::Errno;

use super::layer::{list_own, open_own};
use crate::changes;

/// Lays a layer into `copy`, as an overlay would show it above. Nobody else is at either of them.
pub(super) fn lay(layer: &Path, copy: &Path) -> io::Result<()> {
    for entry in list_own(layer)? {
        let (from, to) = (entry.path(), copy.join(entry.file_name()));
        let found = fs::symlink_metadata(&from)?;
        let kind = found.file_type();
        if kind.is_dir() {
            // No link is ever followed: what is no folder gives way to one.
            let is_folder = fs::symlink_metadata(&to).is_ok_and(|there| there.is_dir());
            if !is_folder || is_opaque(&from)? {
                remove(&to)?;
                fs::create_dir(&to)?;
            }
            // It is filled yet.
            fs::set_permissions(&to, fs::Permissions::from_mode(0o700))?;
            lay(&from, &to)?;
            settle(&to, &found)?;
        } else if kind.is_char_device() && found.rdev() == 0 {
            remove(&to)?;
        } else if kind.is_symlink() {
            remove(&to)?;
            std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_file() {
            remove(&to)?;
            io::copy(&mut open_own(&from)?, &mut File::create_new(&to)?)?;
            settle(&to, &found)?;
        }
        // Pipes and the like have nothing in them.
    }
    Ok(())
}

fn settle(to: &Path, found: &Metadata) -> io::Result<()> {
    fs::set_permissions(to, fs::Permissions::from_mode(found.mode() & 0o1777))?;
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    Ok(rustix::fs::utimensat(CWD, to, &times, AtFlags::empty())?)
}

/// Whether a folder hides what lies below it.
fn is_opaque(folder: &Path) -> io::Result<bool> {
    let mut value = [0_u8; 8];
    match rustix::fs::getxattr(folder, OPAQUE, &mut value) {
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
