//! Which entries of a folder are hidden from the sandbox.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::gitconfig;
use crate::glob::Glob;
use crate::hide::{Suspicion, suspicion};
use crate::layout::refused;

/// What a search of a folder found.
pub(crate) struct Search<'a> {
    globs: &'a [Glob],
    top: &'a Path,
    /// What is hidden, relative to the folder, and whether it is a folder.
    pub(crate) hidden: Vec<(PathBuf, bool)>,
    /// Configurations of repositories, relative to the folder, as they are shown.
    pub(crate) git_configs: Vec<(PathBuf, Vec<u8>)>,
    seen: usize,
}

/// What was found, to be compared with what is found later.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    hidden: Vec<(PathBuf, bool)>,
    git_configs: Vec<(PathBuf, Vec<u8>)>,
}

impl Search<'_> {
    /// What was found.
    pub(crate) fn into_found(self) -> Found {
        let (mut hidden, mut git_configs) = (self.hidden, self.git_configs);
        hidden.sort();
        git_configs.sort();
        Found {
            hidden,
            git_configs,
        }
    }
}

impl<'a> Search<'a> {
    /// Searches the folder `place`, which stands at `top`.
    pub(crate) fn run(top: &'a Path, place: &OwnedFd, globs: &'a [Glob]) -> Result<Self, Error> {
        let mut search = Self {
            globs,
            top,
            hidden: Vec::new(),
            git_configs: Vec::new(),
            seen: 0,
        };
        search.folder(place, Path::new(""), 0)?;
        Ok(search)
    }

    fn folder(&mut self, parent: &OwnedFd, path: &Path, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(self.refused(path, "folders are nested too deeply"));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let opened = rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty())
            .and_then(|folder| Ok((Dir::read_from(&folder)?, folder)));
        let (entries, folder) = match opened {
            Ok(opened) => opened,
            // It went away or became something else just now.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            // Its owner, who the sandbox's user may be, could give the permission back and look in.
            Err(Errno::ACCESS | Errno::PERM) if depth > 0 => {
                return self.hide(path, FileType::Directory);
            }
            Err(errno) => return Err(self.unsearched(path, errno)),
        };
        for entry in entries {
            let entry = entry.map_err(|errno| self.unsearched(path, errno))?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            self.seen += 1;
            if self.seen > MAX_ENTRIES {
                let why =
                    "it holds too many files to look for credentials in; choose a smaller folder";
                return Err(self.refused(Path::new(""), why));
            }
            self.entry(&folder, path, bytes, entry.file_type(), depth)?;
        }
        Ok(())
    }

    /// Judges what is called `name` in `folder`, which stands at `above`.
    fn entry(
        &mut self,
        folder: &OwnedFd,
        above: &Path,
        name: &[u8],
        kind: FileType,
        depth: usize,
    ) -> Result<(), Error> {
        let path = || above.join(OsStr::from_bytes(name));
        let kind = match kind {
            FileType::Unknown => kind_of(folder, &path()),
            kind => kind,
        };
        let is_dir = kind == FileType::Directory;
        // The whole path counts: of `~/.docker`, which a policy may ask for, `config.json` is hidden too.
        let whole = || self.top.join(path());
        let by_policy = self.globs.iter().any(|glob| glob.matches_in(above, name));
        // A read-only mount does not keep anybody from connecting: these lead to processes of the host.
        let leads_out = matches!(kind, FileType::Socket | FileType::Fifo);
        let is_hidden = by_policy
            || leads_out
            || match suspicion(name, is_dir, whole) {
                Suspicion::Hidden => true,
                Suspicion::IfItHolds(words) => match kind {
                    FileType::RegularFile => holds(folder, &path(), words),
                    FileType::Symlink => target_holds(&whole(), words),
                    _ => false,
                },
                Suspicion::None => false,
            };
        if is_hidden {
            return self.hide(&path(), kind);
        }
        match kind {
            FileType::Directory if name == b"objects" && is_object_store(&whole()) => Ok(()),
            FileType::Directory => self.folder(folder, &path(), depth + 1),
            FileType::RegularFile
                if GIT_CONFIGS.contains(&name) && is_git_config(folder, &whole()) =>
            {
                let bytes = read(folder, &path(), LARGEST_CONFIG).unwrap_or_default();
                self.git_configs
                    .push((path(), gitconfig::sanitised(&bytes)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hides an entry; of a symbolic link, what it leads to.
    fn hide(&mut self, path: &Path, kind: FileType) -> Result<(), Error> {
        if self.hidden.len() == MAX_HIDDEN {
            let why =
                "it holds more hidden files than a sandbox can cover; hide the folders above them";
            return Err(self.refused(Path::new(""), why));
        }
        if kind != FileType::Symlink {
            self.hidden
                .push((path.to_owned(), kind == FileType::Directory));
            return Ok(());
        }
        // A link out of the folder leads nowhere inside, or to what is shown there anyway.
        let Ok(real) = self.top.join(path).canonicalize() else {
            return Ok(());
        };
        if let Ok(inside) = real.strip_prefix(self.top)
            && !inside.as_os_str().is_empty()
        {
            self.hidden.push((inside.to_owned(), real.is_dir()));
        }
        Ok(())
    }

    fn refused(&self, path: &Path, why: &str) -> Error {
        refused(WHAT, &self.top.join(path), why)
    }

    /// What was not looked at may hold credentials, so the sandbox is not built.
    fn unsearched(&self, path: &Path, error: Errno) -> Error {
        Error::Machine {
            part: format!(
                "looking for credentials in `{}`",
                self.top.join(path).display()
            ),
            advice: "see that the folder can be listed".into(),
            source: error.into(),
        }
    }
}

fn kind_of(folder: &OwnedFd, path: &Path) -> FileType {
    let name = path.file_name().unwrap_or_default();
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}

fn holds(folder: &OwnedFd, path: &Path, words: &[&[u8]]) -> bool {
    // A key that cannot be read here is hidden: the kernel's answer may be another one inside.
    read(folder, path, LOOKED_AT).is_none_or(|bytes| has_word(bytes, words))
}

/// As [`holds`], of what a link leads to.
fn target_holds(link: &Path, words: &[&[u8]]) -> bool {
    let Ok(real) = link.canonicalize() else {
        return false;
    };
    real.is_file()
        && read_at(rustix::fs::CWD.as_fd(), real.as_os_str(), LOOKED_AT)
            .is_none_or(|bytes| has_word(bytes, words))
}

/// Whether one of the words, which are in lower case, is there in any case.
fn has_word(mut bytes: Vec<u8>, words: &[&[u8]]) -> bool {
    bytes.make_ascii_lowercase();
    words
        .iter()
        .any(|word| bytes.windows(word.len()).any(|window| window == *word))
}

fn read(folder: &OwnedFd, path: &Path, most: u64) -> Option<Vec<u8>> {
    read_at(folder.as_fd(), path.file_name()?, most)
}

fn read_at(folder: std::os::fd::BorrowedFd<'_>, name: &OsStr, most: u64) -> Option<Vec<u8>> {
    use std::io::Read;
    // Not blocking: a FIFO of that name must not hold the start up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(most)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

fn is_object_store(path: &Path) -> bool {
    path.ends_with(".git/objects") || path.ends_with(".git/lfs/objects")
}

/// Whether something called so is the configuration of a repository, of its submodules or of its work trees.
fn is_git_config(folder: &OwnedFd, path: &Path) -> bool {
    // A branch may be called `config` too.
    let is_in_git = path.iter().any(|part| part == ".git")
        && !path.iter().any(|part| part == "refs" || part == "logs");
    // A bare repository may be called anything.
    is_in_git
        || ["HEAD", "objects", "refs"]
            .iter()
            .all(|beside| rustix::fs::statat(folder, *beside, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

const GIT_CONFIGS: [&[u8]; 2] = [b"config", b"config.worktree"];
const WHAT: &str = "folder to show";
const MAX_DEPTH: usize = 200;
const MAX_ENTRIES: usize = 4_000_000;
const MAX_HIDDEN: usize = 10_000;
const LARGEST_CONFIG: u64 = 1 << 20;
const LOOKED_AT: u64 = 64 << 10;
