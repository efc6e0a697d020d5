//! Opening what lies in a folder without ever being led out of it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::change::{Entry, Kind, Seen};

/// The top of a tree: the workspace, or a layer.
#[derive(Debug)]
pub(crate) struct Tree {
    top: OwnedFd,
    resolve: ResolveFlags,
    is_ours: bool,
}

/// An open folder of a tree. Permissions that had to be widened to look into it come back when it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    place: OwnedFd,
    // The innermost last, so that each can still be reached when its turn comes.
    widened: Vec<(OwnedFd, Mode)>,
}

impl Tree {
    /// Opens the folder at `path`, no part of which may be a symbolic link. Permissions in it are left as they are.
    pub(crate) fn of_the_owner(path: &Path) -> io::Result<Self> {
        Self::open(path, false)
    }

    /// Opens a folder whose contents are ours, whatever permissions a run left on them.
    pub(crate) fn of_ours(path: &Path) -> io::Result<Self> {
        Self::open(path, true)
    }

    fn open(path: &Path, is_ours: bool) -> io::Result<Self> {
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let top = rustix::fs::openat2(CWD, path, DIRECTORY, Mode::empty(), resolve)?;
        Ok(Self {
            top,
            resolve: resolve | ResolveFlags::BENEATH | ResolveFlags::NO_XDEV,
            is_ours,
        })
    }

    /// The same tree with what is mounted in it.
    pub(crate) fn with_mounts(mut self) -> Self {
        self.resolve.remove(ResolveFlags::NO_XDEV);
        self
    }

    /// The top itself.
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Opens a folder by its path from the top; the empty path is the top.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<Folder> {
        let whole = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        match self.open_at(self.top.as_fd(), whole.as_os_str(), DIRECTORY) {
            Ok(place) if !self.is_ours || is_open_to_us(&place) => Ok(Folder {
                place,
                widened: Vec::new(),
            }),
            Err(error) if !self.is_ours || error != Errno::ACCESS => Err(error.into()),
            Ok(_) | Err(_) => self.folder_widened(path),
        }
    }

    /// The same, part by part, where a run took permissions away.
    fn folder_widened(&self, path: &Path) -> io::Result<Folder> {
        let mut widened = Vec::new();
        let mut place = self.open_at(self.top.as_fd(), OsStr::new("."), DIRECTORY)?;
        for part in path.components() {
            let Component::Normal(name) = part else {
                return Err(Errno::INVAL.into());
            };
            let found = self.open_at(place.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode & 0o7777);
            if !mode.contains(Mode::RWXU) {
                // Of an `O_PATH` descriptor only the path in /proc can be asked for this.
                rustix::fs::chmod(in_proc(found.as_fd()), mode | Mode::RWXU)?;
                widened.push((found, mode));
            }
            place = self.open_at(place.as_fd(), name, DIRECTORY)?;
        }
        Ok(Folder { place, widened })
    }

    fn open_at(&self, at: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        rustix::fs::openat2(at, name, flags, Mode::empty(), self.resolve)
    }

    /// Opens a regular file of a folder of this tree for reading.
    pub(crate) fn file(&self, folder: &Folder, name: &OsStr) -> io::Result<std::fs::File> {
        // Not blocking: what was a file when it was looked at may be a FIFO now.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = || self.open_at(folder.place.as_fd(), name, flags);
        let file = match open() {
            Err(Errno::ACCESS) if self.is_ours => {
                let found = self.open_at(folder.fd(), name, OFlags::PATH | OFlags::NOFOLLOW)?;
                let mode = Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode & 0o7777);
                rustix::fs::chmod(in_proc(found.as_fd()), mode | Mode::RUSR)?;
                let opened = open();
                rustix::fs::chmod(in_proc(found.as_fd()), mode)?;
                opened?
            }
            opened => opened?,
        };
        if !is_regular(&rustix::fs::fstat(&file)?) {
            return Err(Errno::INVAL.into());
        }
        Ok(file.into())
    }
}

impl Folder {
    /// The descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }

    /// The names in it.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.place)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// What is called so in it; links are not followed.
    pub(crate) fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.place, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The same as an entry of a change.
    pub(crate) fn entry(&self, name: &OsStr, stat: &Stat) -> io::Result<Entry> {
        let kind = kind(stat);
        let target = match kind {
            Kind::Link => {
                let target = rustix::fs::readlinkat(&self.place, name, Vec::new())?;
                Some(PathBuf::from(OsString::from_vec(target.into_bytes())))
            }
            Kind::File | Kind::Folder | Kind::Special => None,
        };
        Ok(Entry {
            kind,
            mode: stat.st_mode & 0o7777,
            size: match kind {
                Kind::File => u64::try_from(stat.st_size).unwrap_or(0),
                Kind::Folder | Kind::Link | Kind::Special => 0,
            },
            target,
        })
    }

    /// An extended attribute of what is called so in it.
    pub(crate) fn attribute(&self, name: &OsStr, attribute: &str) -> io::Result<Option<Vec<u8>>> {
        let mut path = in_proc(self.fd());
        path.push(name);
        let mut value = [0_u8; 256];
        match rustix::fs::lgetxattr(path, attribute, &mut value) {
            Ok(length) => Ok(Some(value[..length.min(value.len())].to_vec())),
            Err(Errno::NODATA | Errno::NOTSUP | Errno::ACCESS) => Ok(None),
            // Longer than any that matters here; it is there.
            Err(Errno::RANGE) => Ok(Some(Vec::new())),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        while let Some((place, mode)) = self.widened.pop() {
            let _ = rustix::fs::chmod(in_proc(place.as_fd()), mode);
        }
    }
}

/// Which very thing this is.
pub(crate) fn seen(stat: &Stat) -> Seen {
    Seen {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        owner: (stat.st_uid, stat.st_gid),
        written: (
            stat.st_mtime,
            i64::try_from(stat.st_mtime_nsec).unwrap_or(i64::MAX),
        ),
    }
}

/// What kind of thing this is.
pub(crate) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        _ => Kind::Special,
    }
}

fn is_regular(stat: &Stat) -> bool {
    kind(stat) == Kind::File
}

/// Whether we may list the folder and reach what is in it.
fn is_open_to_us(place: &OwnedFd) -> bool {
    rustix::fs::fstat(place)
        .is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU))
}

/// The path of what is open, for calls that take none of its kind.
pub(crate) fn in_proc(place: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()))
}

/// Whether a path has a form that is opened: not too many parts, not too long.
pub(crate) fn is_within_reach(path: &Path) -> bool {
    path.as_os_str().as_bytes().len() <= LONGEST && path.components().count() <= DEEPEST
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW);
const LONGEST: usize = 3500;
const DEEPEST: usize = 250;
