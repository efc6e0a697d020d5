//! What was changed in a copy of the workspace, written down as an overlay's upper layer, so that it is shown and
//! applied in the same way.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps};

use super::copy::{Copied, Mark};

/// Writes the differences between `copy` and what was copied into `upper`. Nothing runs in the copy any more.
pub(crate) fn write(copy: &Path, copied: &Copied, upper: &Path) -> io::Result<()> {
    let layer = Layer {
        copy,
        copied,
        upper,
    };
    layer.folder(Path::new(""))?;
    layer.deleted()
}

struct Layer<'a> {
    copy: &'a Path,
    copied: &'a Copied,
    upper: &'a Path,
}

impl Layer<'_> {
    fn folder(&self, path: &Path) -> io::Result<()> {
        let place = self.copy.join(path);
        let entries = list_own(&place)?;
        for entry in entries {
            self.entry(&path.join(entry.file_name()))?;
        }
        Ok(())
    }

    fn entry(&self, path: &Path) -> io::Result<()> {
        if self.copied.kept.contains(path) {
            return Ok(());
        }
        let found = rustix::fs::lstat(self.copy.join(path))?;
        let mark = Mark::of(&found);
        let before = self.copied.entries.get(path);
        if mark.kind == FileType::Directory {
            if before.is_none_or(|before| *before != mark) {
                self.parents(path)?;
                self.make_folder(path)?;
            }
            return self.folder(path);
        }
        if before == Some(&mark) {
            return Ok(());
        }
        // In the place of a folder with something hidden in it, which must stay.
        if self.copied.kept.iter().any(|kept| kept.starts_with(path)) {
            return Ok(());
        }
        self.parents(path)?;
        let (from, to) = (self.copy.join(path), self.upper.join(path));
        match mark.kind {
            FileType::Symlink => std::os::unix::fs::symlink(fs::read_link(from)?, to),
            FileType::RegularFile => {
                let mut bytes = open_own(&from)?;
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
                        last_access: time(found.st_atime as i64, found.st_atime_nsec as i64),
                        last_modification: time(found.st_mtime as i64, found.st_mtime_nsec as i64),
                    },
                )?;
                Ok(())
            }
            // Pipes and the like have nothing in them.
            _ => Ok(()),
        }
    }

    /// Marks what is gone. A folder with something hidden in it stays, for the hidden thing does.
    fn deleted(&self) -> io::Result<()> {
        let mut above: Option<PathBuf> = None;
        for path in self.copied.entries.keys() {
            let is_within = above.as_ref().is_some_and(|above| path.starts_with(above));
            if path.as_os_str().is_empty() || is_within || self.copied.kept.contains(path) {
                continue;
            }
            match fs::symlink_metadata(self.copy.join(path)) {
                Ok(_) => continue,
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
            if self.copied.kept.iter().any(|kept| kept.starts_with(path)) {
                continue;
            }
            above = Some(path.clone());
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

    /// Makes the folders above something, as they are in the copy.
    fn parents(&self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.pop();
        for folder in above.into_iter().rev() {
            self.make_folder(folder)?;
        }
        Ok(())
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let place = self.upper.join(path);
        match DirBuilder::new().mode(0o700).create(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(&place)?.is_dir() {
                    Ok(())
                } else {
                    Err(io::ErrorKind::NotADirectory.into())
                }
            }
            Err(error) => Err(error),
            Ok(()) => {
                let mode = fs::symlink_metadata(self.copy.join(path))
                    .map_or(0o755, |found| found.permissions().mode());
                // It is filled yet.
                fs::set_permissions(&place, fs::Permissions::from_mode(mode & 0o1777 | 0o700))
            }
        }
    }
}

/// What is in a folder whose maker may have taken its own right to look.
pub(super) fn list_own(place: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fs::symlink_metadata(place)?.permissions();
            fs::set_permissions(place, fs::Permissions::from_mode(0o700))?;
            let entries = fs::read_dir(place);
            let again = entries.and_then(|entries| entries.collect());
            fs::set_permissions(place, mode)?;
            again
        }
        entries => entries?.collect(),
    }
}

/// A file whose maker may have taken its own right to read.
pub(super) fn open_own(path: &Path) -> io::Result<fs::File> {
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fs::symlink_metadata(path)?.permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            let opened = fs::File::open(path);
            fs::set_permissions(path, mode)?;
            opened
        }
        opened => opened,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
