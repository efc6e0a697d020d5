//! Reads a file of the owner's, if nobody else could have written it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::Error;

/// Who may read a file of the owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The owner alone: the file says where secrets are.
    OwnerOnly,
    /// Everybody; but only the owner may write it.
    Everybody,
}

/// The text of a file; none if it is not there.
///
/// Everything is asked of the opened file, so that nobody can put another in its place in between. A symbolic link is
/// refused: who can make one decides what is read.
pub(crate) fn read(path: &Path, readers: Readers) -> Result<Option<String>, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(refuse(path, "it is a symbolic link")),
        Err(error) => return Err(cannot(path, error.into())),
    };
    let metadata = file.metadata().map_err(|error| cannot(path, error))?;
    if !metadata.is_file() {
        return Err(refuse(path, "it is not a regular file"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse(path, "it belongs to another user"));
    }
    match readers {
        Readers::OwnerOnly if metadata.mode() & 0o077 != 0 => {
            return Err(refuse(path, "others can open it; run `chmod 600` on it"));
        }
        Readers::Everybody if metadata.mode() & 0o022 != 0 => {
            return Err(refuse(path, "others can write it; run `chmod go-w` on it"));
        }
        Readers::OwnerOnly | Readers::Everybody => {}
    }
    if metadata.nlink() > 1 {
        return Err(refuse(path, "it has a second name (a hard link)"));
    }
    let mut text = String::new();
    file.take(MOST + 1)
        .read_to_string(&mut text)
        .map_err(|error| cannot(path, error))?;
    if text.len() as u64 > MOST {
        return Err(refuse(path, "it is larger than 1 MiB"));
    }
    Ok(Some(text))
}

fn refuse(path: &Path, why: &'static str) -> Error {
    Error::OwnerFile {
        path: path.to_owned(),
        why,
    }
}

fn cannot(path: &Path, source: io::Error) -> Error {
    Error::OwnerFileUnreadable {
        path: path.to_owned(),
        source,
    }
}

/// The largest file that is read.
const MOST: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;

    fn file(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.toml");
        std::fs::write(&path, "text").unwrap();
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_private_file_is_read() {
        let (_folder, path) = file(0o600);
        assert_eq!(read(&path, Readers::OwnerOnly).unwrap().unwrap(), "text");
    }

    #[test]
    fn a_file_that_others_can_open_is_refused() {
        for mode in [0o640, 0o604, 0o660] {
            let (_folder, path) = file(mode);
            assert!(read(&path, Readers::OwnerOnly).is_err());
        }
    }

    #[test]
    fn settings_may_be_read_by_others_but_not_written() {
        let (_folder, path) = file(0o644);
        assert!(read(&path, Readers::Everybody).unwrap().is_some());
        let (_folder, path) = file(0o664);
        assert!(read(&path, Readers::Everybody).is_err());
    }

    #[test]
    fn a_link_is_refused() {
        let (folder, path) = file(0o600);
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link, Readers::OwnerOnly).is_err());
        let hard = folder.path().join("hard");
        std::fs::hard_link(&path, &hard).unwrap();
        assert!(read(&path, Readers::OwnerOnly).is_err());
    }

    #[test]
    fn a_file_that_is_not_there_is_no_error() {
        let (folder, _) = file(0o600);
        assert!(
            read(&folder.path().join("none"), Readers::OwnerOnly)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_folder_or_a_pipe_is_refused() {
        let (folder, _) = file(0o600);
        assert!(read(folder.path(), Readers::OwnerOnly).is_err());
        let pipe = folder.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(read(&pipe, Readers::OwnerOnly).is_err());
    }
}
