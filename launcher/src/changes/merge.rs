//! Making one layer of several that lie above one another, so that a run of many steps stays within what the kernel takes.
//!
//! What an older layer shows is moved into the newer one, name by name. No single move changes what both show together,
//! so being killed in between changes nothing either, but that folders which their step closed to their owner may be left
//! open to them; what is hidden stays behind, and goes with the older layer.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, Stat, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::change::Kind;
use super::dying::point;
use super::layers::{self, OPAQUE, ORIGIN, is_opaque, is_whiteout};
use super::record::Record;
use super::tree::{Folder, Tree, in_proc, is_within_reach, kind};
use super::{Error, remove};

/// Makes one layer of the `count` oldest of a run: the newest of them, which keeps its name. Nothing may be mounted over
/// any of them, and nobody else may be at the changes of the run.
///
/// # Errors
/// What the layers show together is the same as before, and the record tells which there are.
pub fn merge(record: &mut Record, count: usize) -> Result<(), Error> {
    let count = count.min(record.layers.len());
    let opened = layers::open(record)?;
    let folders = record.layer_folders();
    let Some((newest, older)) = opened.get(..count).and_then(<[_]>::split_last) else {
        return Ok(());
    };
    let into = &folders[older.len()];
    // The nearest first: then everything is moved but once.
    for (number, layer) in older.iter().enumerate().rev() {
        let folder = &folders[number];
        let cannot = |error| Error::machine("cannot merge the layer", folder, error);
        if layer.is_copied() {
            layers::mark_copy(into).map_err(cannot)?;
            point();
        }
        let pair = Pair {
            older: &layer.tree,
            newer: &newest.tree,
        };
        pair.folder(Path::new("")).map_err(cannot)?;
        // It shows nothing any more.
        let name = record.layers.remove(number);
        record.save()?;
        point();
        File::open(record.layers_folder())
            .and_then(|all| remove(all.as_fd(), OsStr::new(&name)))
            .map_err(|error| Error::machine("cannot remove the layer", folder, error))?;
        point();
    }
    Ok(())
}

/// Two layers, of which one lies right above the other.
struct Pair<'a> {
    older: &'a Tree,
    newer: &'a Tree,
}

impl Pair<'_> {
    /// Moves what the older one shows in a folder that both have, and in which the newer one hides nothing as a whole.
    fn folder(&self, path: &Path) -> io::Result<()> {
        if !is_within_reach(path) {
            return Err(io::Error::other(
                "both layers have folders that lie too deep",
            ));
        }
        let mut both = Vec::new();
        {
            let older = self.older.folder(path)?;
            let newer = self.newer.folder(path)?;
            let before = rustix::fs::fstat(newer.fd())?;
            // What was taken away from the older one may now lie in a folder that lies above no other.
            expect_whiteouts(&newer)?;
            for name in older.names()? {
                let Some(below) = older.stat(&name)? else {
                    continue;
                };
                let Some(above) = newer.stat(&name)? else {
                    move_up(&older, &newer, &name, &below)?;
                    continue;
                };
                let hides = is_whiteout(&newer, &name, &above)?
                    || kind(&above) != Kind::Folder
                    || is_opaque(&newer, &name)?;
                if hides {
                    continue;
                }
                if is_whiteout(&older, &name, &below)? || kind(&below) != Kind::Folder {
                    // It hid what lies below, which must not come to light.
                    hide_below(&self.newer.folder(&path.join(&name))?)?;
                } else {
                    both.push((name.clone(), is_opaque(&older, &name)?));
                }
            }
            restore_times(&newer, &before)?;
        }
        for (name, hid_below) in both {
            let path = path.join(name);
            self.folder(&path)?;
            // Only now: until here it would have hidden what the older one shows.
            if hid_below {
                hide_below(&self.newer.folder(&path)?)?;
            }
        }
        Ok(())
    }
}

/// Moves what the newer layer does not have.
fn move_up(from: &Folder, to: &Folder, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let moved = || {
        let moved = rustix::fs::renameat(from.fd(), name, to.fd(), name);
        point();
        moved
    };
    match moved() {
        // To move a folder is to write to it, as its `..` changes.
        Err(Errno::ACCESS) if kind(stat) == Kind::Folder => {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(from.fd(), name, flags, Mode::empty())?;
            let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
            rustix::fs::chmod(in_proc(folder.as_fd()), mode | Mode::RWXU)?;
            let done = moved();
            rustix::fs::chmod(in_proc(folder.as_fd()), mode)?;
            Ok(done?)
        }
        done => Ok(done?),
    }
}

/// Has a folder hide what lies below it.
fn hide_below(folder: &Folder) -> io::Result<()> {
    set(folder, OPAQUE, b"y")
}

/// Has the kernel expect, in a folder that lies above none, things that stand for nothing: it looks for them where a
/// folder says that it came from below.
fn expect_whiteouts(folder: &Folder) -> io::Result<()> {
    if folder.attribute(OsStr::new("."), ORIGIN)?.is_some() {
        return Ok(());
    }
    match set(folder, ORIGIN, b"") {
        // Then no overlay is laid over it, and only copies are made.
        Err(error) if error.raw_os_error() == Some(Errno::NOTSUP.raw_os_error()) => Ok(()),
        done => done,
    }
}

fn set(folder: &Folder, attribute: &str, value: &[u8]) -> io::Result<()> {
    rustix::fs::fsetxattr(folder.fd(), attribute, value, XattrFlags::empty())?;
    point();
    Ok(())
}

/// Gives a folder the times that its step left.
fn restore_times(folder: &Folder, stat: &Stat) -> io::Result<()> {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    };
    Ok(rustix::fs::futimens(folder.fd(), &times)?)
}
