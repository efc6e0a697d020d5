//! A copy of the workspace to work on, where nothing can be laid over the folder itself.
//!
//! What is hidden is not copied, so it is not there to be found.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use super::lay::lay;
use super::layer;
use crate::changes::is_within_reach;
use crate::error::Error;
use crate::layout::refused;
use crate::search::Search;

/// What was copied, to tell later what was changed.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Each entry of the copy, relative to it, as it was when it was made.
    pub(super) entries: BTreeMap<PathBuf, Mark>,
    /// What has no copy, or one that is not the original: nothing that stands there later is taken over.
    pub(super) kept: BTreeSet<PathBuf>,
    /// Bytes of the copy on disk.
    pub(super) bytes: u64,
}

impl Copied {
    /// Bytes of the copy on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What cannot stay the same when a file is changed or replaced: the kernel sets the last one, programs cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) kind: FileType,
    inode: u64,
    mode: u32,
    changed: (i64, i64),
}

impl Mark {
    /// The mark of something that was found.
    pub(super) fn of(found: &Stat) -> Self {
        let kind = FileType::from_raw_mode(found.st_mode);
        Self {
            kind,
            inode: found.st_ino,
            mode: found.st_mode,
            // A folder changes with every entry; those are looked at one by one.
            changed: if kind == FileType::Directory {
                (0, 0)
            } else {
                (found.st_ctime, found.st_ctime_nsec as i64)
            },
        }
    }
}

/// Copies the folder `place`, which stands at `host`, to the new folder `to`, if it has at most `most` bytes, and lays the
/// layers of earlier steps into it, the newest of which comes first in `below`.
pub(crate) fn copy(
    host: &Path,
    (place, found): (&OwnedFd, &Search<'_>),
    protect: &[PathBuf],
    below: &[PathBuf],
    to: &Path,
    most: Option<u64>,
) -> Result<Copied, Error> {
    let mut copied = Copied::default();
    let hidden: BTreeSet<PathBuf> = found.hidden.iter().map(|(path, _)| path.clone()).collect();
    copied.kept.extend(hidden);
    copied.kept.extend(protect.iter().cloned());
    let configs: BTreeMap<&Path, &[u8]> = found
        .git_configs
        .iter()
        .map(|(path, bytes)| (path.as_path(), bytes.as_slice()))
        .collect();
    copied
        .kept
        .extend(configs.keys().map(|path| (*path).to_owned()));
    let mut copier = Copier {
        host,
        to,
        configs,
        hidden: found
            .hidden
            .iter()
            .map(|(path, _)| path.as_path())
            .collect(),
        copied: &mut copied,
        most,
    };
    rustix::fs::mkdir(to, Mode::from(0o700))
        .map_err(|errno| copier.failed(Path::new(""), errno))?;
    copier.folder(place, Path::new(""))?;
    if below.is_empty() {
        return Ok(copied);
    }
    for layer in below.iter().rev() {
        lay(layer, to).map_err(|error| Error::Machine {
            part: format!(
                "laying `{}` into the copy of the workspace",
                layer.display()
            ),
            advice: "see that the state folder can be written".into(),
            source: error,
        })?;
    }
    // What is there now is what the next step begins with.
    copier.copied.entries.clear();
    copier.copied.bytes = 0;
    copier
        .look()
        .map_err(|errno| copier.failed(Path::new(""), errno))?;
    Ok(copied)
}

struct Copier<'a> {
    host: &'a Path,
    to: &'a Path,
    configs: BTreeMap<&'a Path, &'a [u8]>,
    hidden: BTreeSet<&'a Path>,
    copied: &'a mut Copied,
    most: Option<u64>,
}

impl Copier<'_> {
    fn folder(&mut self, parent: &OwnedFd, path: &Path) -> Result<(), Error> {
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(parent, name, flags, Mode::empty()).and_then(|folder| {
            Ok((
                Dir::read_from(&folder)?,
                rustix::fs::fstat(&folder)?,
                folder,
            ))
        });
        let (entries, found, folder) = opened.map_err(|errno| self.failed(path, errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| self.failed(path, errno))?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            let below = path.join(OsStr::from_bytes(bytes));
            if self.hidden.contains(below.as_path()) {
                continue;
            }
            let made = self.entry(&folder, &below);
            match made {
                Ok(()) => {}
                // It went away just now.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed(&below, errno)),
            }
            if self.is_folder(&below) {
                self.folder(&folder, &below)?;
            }
        }
        // Last: a folder that may not be written could not be filled.
        self.settle(path, &found)
            .map_err(|errno| self.failed(path, errno))
    }

    fn is_folder(&self, path: &Path) -> bool {
        let mark = self.copied.entries.get(path);
        mark.is_some_and(|mark| mark.kind == FileType::Directory)
    }

    /// Makes one entry; a folder empty.
    fn entry(&mut self, folder: &OwnedFd, path: &Path) -> Result<(), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let to = self.to.join(path);
        let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => rustix::fs::mkdir(&to, Mode::from(0o700))?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
                rustix::fs::symlink(&target, &to)?;
            }
            FileType::RegularFile => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mut copy: File = rustix::fs::open(&to, flags, Mode::from(0o600))?.into();
                let written = if let Some(text) = self.configs.get(path) {
                    std::io::Write::write_all(&mut copy, text)
                } else {
                    let flags =
                        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    match rustix::fs::openat(folder, name, flags, Mode::empty()) {
                        // What the owner cannot read, the command could not either.
                        Err(Errno::ACCESS | Errno::PERM) => Ok(()),
                        opened => self.bytes(File::from(opened?), &mut copy),
                    }
                };
                written.map_err(|error| {
                    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
                })?;
                self.settle(path, &found)?;
            }
            // Devices, pipes and sockets lead out.
            _ => {
                self.copied.kept.insert(path.to_owned());
                return Ok(());
            }
        }
        let made = rustix::fs::lstat(&to)?;
        self.copied.bytes += made.st_blocks as u64 * 512;
        if self.most.is_some_and(|most| self.copied.bytes > most) {
            return Err(Errno::DQUOT);
        }
        self.copied.entries.insert(path.to_owned(), Mark::of(&made));
        Ok(())
    }

    /// Copies what is in a file, unless it is more than there is room for: a hole takes room only in the copy.
    fn bytes(&self, from: File, to: &mut File) -> std::io::Result<()> {
        let Some(most) = self.most else {
            return std::io::copy(&mut &from, to).map(|_| ());
        };
        let room = most.saturating_sub(self.copied.bytes);
        if from.metadata()?.len() > room {
            return Err(Errno::DQUOT.into());
        }
        // It may grow meanwhile.
        std::io::copy(&mut from.take(room.saturating_add(1)), to).map(|_| ())
    }

    /// Marks everything that is in the copy.
    fn look(&mut self) -> Result<(), Errno> {
        let number = |error: std::io::Error| {
            Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
        };
        let tree = layer::open(self.to).map_err(number)?;
        let mut left = vec![PathBuf::new()];
        while let Some(path) = left.pop() {
            let folder = tree.folder(&path).map_err(number)?;
            for name in folder.names().map_err(number)? {
                let path = path.join(&name);
                let Some(made) = folder.stat(&name).map_err(number)? else {
                    continue;
                };
                self.copied.bytes += made.st_blocks as u64 * 512;
                if self.most.is_some_and(|most| self.copied.bytes > most) {
                    return Err(Errno::DQUOT);
                }
                let mark = Mark::of(&made);
                self.copied.entries.insert(path.clone(), mark);
                if mark.kind == FileType::Directory && is_within_reach(&path) {
                    left.push(path);
                }
            }
        }
        Ok(())
    }

    /// Gives the copy the mode and the times of the original, and marks it.
    fn settle(&mut self, path: &Path, found: &Stat) -> Result<(), Errno> {
        let to = self.to.join(path);
        let mode = Mode::from_raw_mode(found.st_mode & 0o1777);
        rustix::fs::chmod(&to, mode)?;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: found.st_atime,
                tv_nsec: found.st_atime_nsec as i64,
            },
            last_modification: Timespec {
                tv_sec: found.st_mtime,
                tv_nsec: found.st_mtime_nsec as i64,
            },
        };
        rustix::fs::utimensat(CWD, &to, &times, AtFlags::empty())?;
        let made = rustix::fs::lstat(&to)?;
        self.copied.entries.insert(path.to_owned(), Mark::of(&made));
        Ok(())
    }

    fn failed(&self, path: &Path, errno: Errno) -> Error {
        if errno == Errno::DQUOT && self.most.is_some() {
            let why = "it is larger than `limits.disk`, and has to be copied for the sandbox";
            return refused("workspace", self.host, why);
        }
        let why = std::io::Error::from(errno);
        refused(
            "workspace",
            &self.host.join(path),
            &format!("it cannot be copied for the sandbox: {why}"),
        )
    }
}
