//! The file that one process writes: created once, locked for life, only ever appended to.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::{Durability, Error};

use super::medium::{Laying, Medium};

/// A segment that this process writes.
pub(crate) struct Segment {
    medium: Box<dyn Medium>,
    /// How many bytes are whole lines that the writer has answered for.
    length: u64,
    /// Whether bytes beyond `length` may stand in the file and have to go first.
    torn: bool,
    /// Whether a sync failed. What the kernel dropped then cannot be known, so nothing more is promised.
    poisoned: bool,
    durability: Durability,
}

impl Segment {
    /// Creates the file. It must not exist, and no link is followed.
    ///
    /// It gets its name only once it is locked: otherwise another process, tidying up, could find it between the two
    /// and take it for one whose writer is gone.
    pub(crate) fn create(
        folder: &Path,
        name: &str,
        durability: Durability,
        laying: &Laying,
    ) -> io::Result<Self> {
        let path = path(folder, name);
        let nameless = folder.with_file_name(format!("{name}.new"));
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::WRONLY | OFlags::NOFOLLOW;
        let file = open(&nameless, flags)?;
        // A link, unlike a rename, does not replace what is there.
        let named = std::fs::hard_link(&nameless, &path);
        let removed = std::fs::remove_file(&nameless);
        named.and(removed)?;
        if durability == Durability::Disk {
            // The name must survive as well as the lines.
            File::open(folder)?.sync_all()?;
        }
        Ok(Self {
            medium: laying(file),
            length: 0,
            torn: false,
            poisoned: false,
            durability,
        })
    }

    /// Appends whole lines. When this returns, they are as durable as the setting says; on an error none of them stands.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::other("an earlier sync of the audit log failed"));
        }
        if self.torn {
            self.medium.cut(self.length)?;
            self.torn = false;
        }
        if let Err(error) = self.medium.append(lines) {
            self.torn = self.medium.cut(self.length).is_err();
            return Err(error);
        }
        if self.durability == Durability::Disk
            && let Err(error) = self.medium.sync()
        {
            self.poisoned = true;
            return Err(error);
        }
        self.length += lines.len() as u64;
        Ok(())
    }
}

/// The file of a segment.
pub(crate) fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}

/// Opens the file of a segment whose writer is gone; none while the writer lives.
pub(crate) fn open_abandoned(folder: &Path, name: &str) -> io::Result<Option<File>> {
    match open(&path(folder, name), OFlags::RDWR | OFlags::NOFOLLOW) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the writer of a segment is gone. Of a segment that is not there nobody can tell, so it is not.
pub(crate) fn is_abandoned(folder: &Path, name: &str) -> Result<bool, Error> {
    match open_abandoned(folder, name) {
        Ok(file) => Ok(file.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::AuditSegment(error)),
    }
}

/// Opens a segment to read it. A link or a pipe in its place is an error, not something to wait for.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    regular(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Opens and locks a file.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = regular(File::from(rustix::fs::open(
        path,
        flags,
        Mode::from_raw_mode(0o600),
    )?))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("not a regular file"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::medium::file;
    use super::*;

    #[test]
    fn a_second_writer_of_one_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = Segment::create(folder.path(), "a", Durability::Process, &file()).unwrap();
        assert!(Segment::create(folder.path(), "a", Durability::Process, &file()).is_err());
        assert!(open_abandoned(folder.path(), "a").unwrap().is_none());
        drop(first);
        assert!(open_abandoned(folder.path(), "a").unwrap().is_some());
    }

    #[test]
    fn a_link_in_the_place_of_a_segment_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, path(folder.path(), "a")).unwrap();
        assert!(Segment::create(folder.path(), "a", Durability::Process, &file()).is_err());
        assert!(open_to_read(&path(folder.path(), "a")).is_err());
        assert!(open_to_read(&target).is_ok());
    }

    #[test]
    fn a_pipe_in_the_place_of_a_segment_does_not_hang() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = path(folder.path(), "a");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(open_to_read(&pipe).is_err());
        assert!(open_abandoned(folder.path(), "a").is_err());
    }
}
