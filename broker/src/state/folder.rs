//! What lies in the state folder, and that nobody else can look into it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use zeroize::Zeroizing;

use crate::{Error, random};

/// A state folder that is there, is ours, and is closed to others.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a state folder, and makes it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let folder = Self {
            path: path.to_owned(),
        };
        private_folder(path).map_err(|source| folder.error(path, source))?;
        let audit = folder.audit();
        private_folder(&audit).map_err(|source| folder.error(&audit, source))?;
        Ok(folder)
    }

    /// Where the folder is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the audit log is.
    pub(crate) fn audit(&self) -> PathBuf {
        self.path.join("audit")
    }

    /// The database. It is made here, because SQLite would make it readable for others.
    pub(crate) fn database(&self) -> Result<PathBuf, Error> {
        let path = self.path.join("broker.db");
        private_file(&path, OFlags::RDWR | OFlags::CREATE)
            .map_err(|source| self.error(&path, source))?;
        Ok(path)
    }

    /// Waits until no other process sets this folder up. The lock goes when the value is dropped, or its process dies.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let path = self.path.join("lock");
        let lock = || {
            let file = private_file(&path, OFlags::RDWR | OFlags::CREATE)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        lock().map_err(|source| self.error(&path, source))
    }

    /// The key of the folder; made if it may be. To be called with the [lock](Self::lock) held.
    ///
    /// A key that is gone is not replaced where something may be sealed with it.
    pub(crate) fn key(&self, may_create: bool) -> Result<Zeroizing<[u8; 32]>, Error> {
        let path = self.path.join("key");
        let open = || match private_file(&path, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_create => {
                self.create(&path, &Zeroizing::new(random_key()?)[..])?;
                private_file(&path, OFlags::RDONLY)
            }
            other => other,
        };
        let read = || {
            let mut key = Zeroizing::new([0; 32]);
            let mut file = open()?;
            file.read_exact(&mut key[..])?;
            Ok(key)
        };
        read().map_err(|source| self.error(&path, source))
    }

    /// Writes a small private file so that it is there whole or not at all, and never replaces one.
    pub(crate) fn write_once(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        match self.create(&path, bytes) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(path),
            Err(source) => Err(self.error(&path, source)),
        }
    }

    /// Opens a private file to change it; none if it is not there.
    pub(crate) fn open_to_change(&self, name: &str) -> Result<Option<File>, Error> {
        let path = self.path.join(name);
        match private_file(&path, OFlags::RDWR) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.error(&path, source)),
        }
    }

    /// The error of a file in this folder.
    pub(crate) fn failed(&self, name: &str, source: io::Error) -> Error {
        self.error(&self.path.join(name), source)
    }

    /// The bytes of a small private file; none if it is not there.
    pub(crate) fn read_small(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let path = self.path.join(name);
        let read = || -> io::Result<_> {
            let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
            private_file(&path, OFlags::RDONLY)?
                .take(4096)
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.error(&path, source)),
        }
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(name);
        let write = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
            let mut file = private_file(&temporary, flags)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            // A link, unlike a rename, does not replace what is there.
            std::fs::hard_link(&temporary, path)
        };
        let written = write();
        let removed = std::fs::remove_file(&temporary);
        written.and(removed)?;
        File::open(&self.path)?.sync_all()
    }

    fn error(&self, path: &Path, source: io::Error) -> Error {
        Error::State {
            path: path.to_owned(),
            source,
        }
    }
}

/// Opens a file of ours, following no link.
fn private_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    check_private(&metadata)?;
    Ok(file)
}

/// Makes a folder for its owner only, or checks that it is one.
fn private_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).recursive(true).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_dir() {
        return Err(io::Error::other("it is not a folder"));
    }
    check_private(&metadata)
}

fn check_private(metadata: &std::fs::Metadata) -> io::Result<()> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(
            "others can open it; take their rights away with `chmod go= PATH`",
        ));
    }
    Ok(())
}

fn random_key() -> io::Result<[u8; 32]> {
    random::bytes().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(parent: &tempfile::TempDir) -> PathBuf {
        parent.path().join("deep/state")
    }

    #[test]
    fn a_new_folder_is_closed_to_others() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(&folder(&parent)).unwrap();
        for path in [folder.path.clone(), folder.audit()] {
            assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
        let database = folder.database().unwrap();
        assert_eq!(std::fs::metadata(database).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_folder_that_others_can_open_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        Folder::open(&folder(&parent)).unwrap();
        std::fs::set_permissions(folder(&parent), PermissionsExt::from_mode(0o750)).unwrap();
        assert!(Folder::open(&folder(&parent)).is_err());
    }

    #[test]
    fn the_key_stays_the_same() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(&folder(&parent)).unwrap();
        let key = folder.key(true).unwrap();
        assert_eq!(*folder.key(true).unwrap(), *key);
    }

    #[test]
    fn a_key_that_is_gone_is_not_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(&folder(&parent)).unwrap();
        assert!(folder.key(false).is_err());
    }

    #[test]
    fn a_link_in_the_place_of_the_key_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::open(&folder(&parent)).unwrap();
        let elsewhere = parent.path().join("elsewhere");
        std::fs::write(&elsewhere, [7; 32]).unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, folder.path.join("key")).unwrap();
        assert!(folder.key(true).is_err());
    }
}
