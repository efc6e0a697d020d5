//! How the sandbox's file system is laid out: which host trees stand where, and what covers them.

use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::child_files::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::error::Error;
use crate::given::MAX_SOURCES;
use crate::owner::Owner;
use crate::paths::lies_in;
pub(crate) use crate::paths::{c_string, is_dir, refused, relative};
use crate::plan::{Files, IfMissing, Op, Source};
use crate::weaken::{Layer, Weaken};

/// How a host tree is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Not writable.
    ReadOnly,
    /// Writable as far as the host's owner of the files is the sandbox's user.
    Writable,
    /// One device file.
    Device,
}

/// Whose the files of a tree are inside, when root started the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Nobody's the sandbox knows, as with system folders.
    Host,
    /// The sandbox's user's, if the file system can; enough for reading.
    ReaderIfPossible,
    /// The sandbox's user's, or the start fails.
    Sandbox,
}

/// A layout under construction.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) owner: Owner,
    files: Files,
    /// Those of the sources that were made here, in their order.
    trees: Vec<OwnedFd>,
    /// How many sources there are in parts that were taken.
    before: usize,
    pub(crate) notes: Vec<String>,
    pub(crate) weaken: Weaken,
    dirs: HashSet<OsString>,
    shown: Vec<PathBuf>,
    /// What of the host is shown, and what in it is covered: for [`crate::Prepared::listing`].
    pub(crate) listed: Vec<(&'static str, PathBuf, Access)>,
    pub(crate) covered: Vec<PathBuf>,
    /// What must not appear otherwise than it is shown: hidden, made up or kept from being written.
    pub(crate) kept_back: Vec<PathBuf>,
    /// The masks that are there, by their real paths.
    pub(crate) masks: Vec<PathBuf>,
    made: usize,
    /// What the kernel said when an overlay was tried.
    pub(crate) overlay_refused: Option<String>,
}

impl Layout {
    /// An empty layout in which `masks` are never shown.
    ///
    /// # Errors
    /// If a mask is there and cannot be found out about: then nobody could tell what it covers.
    pub(crate) fn new(owner: Owner, masks: &[PathBuf], weaken: Weaken) -> Result<Self, Error> {
        let mut real = Vec::new();
        let masks = if weaken.is_off(Layer::Masks) {
            &[]
        } else {
            masks
        };
        for mask in masks {
            match mask.canonicalize() {
                Ok(path) => real.push(path),
                // What does not exist cannot be shown; what exists is compared by its real path.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(refused(
                        "path to hide",
                        mask,
                        &format!("it cannot be found: {error}"),
                    ));
                }
            }
        }
        let mut layout = Self {
            owner,
            files: Files::default(),
            trees: Vec::new(),
            before: 0,
            notes: Vec::new(),
            weaken,
            dirs: HashSet::new(),
            shown: Vec::new(),
            listed: Vec::new(),
            covered: Vec::new(),
            kept_back: Vec::new(),
            masks: real,
            made: 0,
            overlay_refused: None,
        };
        layout.dirs.insert("/.sandbox".into());
        layout.made_dir(Path::new("/.sandbox/no-folder"), 0o000);
        layout.files.ops.push(Op::File {
            at: c".sandbox/no-file".into(),
            mode: 0o000,
            bytes: Vec::new(),
        });
        Ok(layout)
    }

    /// Makes a folder of the sandbox's own, with its parents.
    pub(crate) fn dir(&mut self, path: &Path, mode: u32) -> Result<(), Error> {
        if let Some(parent) = path.parent() {
            self.parents(parent)?;
        }
        self.made_dir(path, mode);
        Ok(())
    }

    /// Makes a symbolic link in a folder of the sandbox's own.
    pub(crate) fn link(&mut self, at: &Path, target: &Path) -> Result<(), Error> {
        self.parents(at.parent().unwrap_or(at))?;
        self.files.ops.push(Op::Link {
            at: relative(at)?,
            target: c_string(target)?,
        });
        Ok(())
    }

    /// Shows a host path at the same path. Something that is shown already, through a tree above it, is left alone
    /// when it would be shown alike.
    pub(crate) fn show(
        &mut self,
        what: &'static str,
        host: &Path,
        access: Access,
        ownership: Ownership,
    ) -> Result<(), Error> {
        if access == Access::ReadOnly && self.is_shown(host) {
            return self.refuse_masked(what, host);
        }
        let (place, stat) = open(what, host, self.weaken)?;
        self.refuse_masked(what, host)?;
        self.parents(host.parent().unwrap_or(host))?;
        if !self.is_shown(host) {
            self.mountpoint(host, &stat)?;
        }
        let source = self.source(what, host, &place, &stat, access, ownership, true)?;
        self.files.ops.push(Op::Show {
            source,
            at: relative(host)?,
        });
        self.shown.push(host.to_owned());
        self.listed.push((what, host.to_owned(), access));
        Ok(())
    }

    /// Places an opened host tree at `at` for building only; it is not taken for shown.
    pub(crate) fn place(
        &mut self,
        what: &'static str,
        host: &Path,
        at: &Path,
    ) -> Result<(), Error> {
        let (place, stat) = open(what, host, self.weaken)?;
        self.dir(at, 0o755)?;
        let access = Access::Writable;
        let source = self.source(what, host, &place, &stat, access, Ownership::Sandbox, false)?;
        self.files.ops.push(Op::Show {
            source,
            at: relative(at)?,
        });
        Ok(())
    }

    /// Takes a folder of the sandbox's own for shown: things in it are made, not covered, by what comes later.
    pub(crate) fn note_shown(&mut self, at: &Path) {
        self.shown.push(at.to_owned());
    }

    /// Puts a made-up file at `path`: over what is shown there, or as a new file where the folder is ours.
    pub(crate) fn file(&mut self, path: &Path, bytes: Vec<u8>) -> Result<(), Error> {
        if !self.is_shown(path) {
            self.parents(path.parent().unwrap_or(path))?;
            self.files.ops.push(Op::File {
                at: relative(path)?,
                mode: 0o444,
                bytes,
            });
            return Ok(());
        }
        let from = self.name();
        self.files.ops.push(Op::File {
            at: from.clone(),
            mode: 0o444,
            bytes,
        });
        self.show_made(&from, path)
    }

    /// Makes a file that holds what a file of the host does, followed by `bytes`, to be shown by [`Self::show_made`].
    pub(crate) fn joined(&mut self, host: Option<&Path>, bytes: &[u8]) -> Result<CString, Error> {
        let first = match host {
            Some(host) => {
                let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
                let file = std::fs::OpenOptions::new()
                    .read(true)
                    .custom_flags(flags)
                    .open(host)
                    .map_err(|error| refused("certificate bundle", host, &error.to_string()))?;
                self.trees.push(file.into());
                Some(self.add(Source::Tree)?)
            }
            None => None,
        };
        let at = self.name();
        self.push(Op::Join {
            at: at.clone(),
            first,
            bytes: bytes.to_vec(),
        });
        Ok(at)
    }

    /// Shows a file that was made beside the root at `path`, read-only.
    pub(crate) fn show_made(&mut self, from: &CString, path: &Path) -> Result<(), Error> {
        if !self.is_shown(path) {
            self.parents(path.parent().unwrap_or(path))?;
            self.push(Op::File {
                at: relative(path)?,
                mode: 0o444,
                bytes: Vec::new(),
            });
        }
        self.push(Op::ShowAgain {
            from: from.clone(),
            at: relative(path)?,
            attributes: RDONLY | NOSUID | NODEV | NOEXEC,
            if_missing: IfMissing::Fail,
        });
        Ok(())
    }

    /// A name beside the root.
    fn name(&mut self) -> CString {
        self.made += 1;
        CString::new(format!(".sandbox/file-{}", self.made)).expect("the name holds no NUL")
    }

    fn add(&mut self, source: Source) -> Result<usize, Error> {
        if self.before + self.files.sources.len() == MAX_SOURCES {
            return Err(Error::Request(format!(
                "the view shows more than {MAX_SOURCES} places of the host; name folders above them"
            )));
        }
        self.files.sources.push(source);
        Ok(self.before + self.files.sources.len() - 1)
    }

    /// Makes a file that holds what a file of the host does, in a folder of the sandbox's own.
    pub(crate) fn copy(&mut self, host: &Path, at: &Path) -> Result<(), Error> {
        if self.masks.iter().any(|mask| host.starts_with(mask)) {
            return Ok(());
        }
        self.parents(at.parent().unwrap_or(at))?;
        self.push(Op::Copy {
            from: c_string(host)?,
            at: relative(at)?,
        });
        Ok(())
    }

    /// Takes what there is so far, and the trees that belong to it.
    pub(crate) fn take_part(&mut self) -> (Files, Vec<OwnedFd>) {
        self.before += self.files.sources.len();
        (
            std::mem::take(&mut self.files),
            std::mem::take(&mut self.trees),
        )
    }

    /// Why no overlay can be laid over a folder; `None` where one can.
    pub(crate) fn no_overlay(&self, host: &Path, upper: &Path, work: &Path) -> Option<String> {
        if self.weaken.is_off(Layer::Overlay) {
            return Some("it is switched off".into());
        }
        if let Some(why) = &self.overlay_refused {
            return Some(why.clone());
        }
        crate::copied::obstacle(host, upper, work)
    }

    /// Whether a path lies in a host tree that is shown.
    pub(crate) fn is_shown(&self, path: &Path) -> bool {
        self.shown.iter().any(|tree| lies_in(path, tree))
    }

    /// Appends a prepared step.
    pub(crate) fn push(&mut self, op: Op) {
        self.files.ops.push(op);
    }

    fn refuse_masked(&self, what: &'static str, host: &Path) -> Result<(), Error> {
        match self.masks.iter().find(|mask| host.starts_with(mask)) {
            Some(_) => Err(refused(
                what,
                host,
                "this holds the owner's secrets or settings, which no sandbox may see",
            )),
            None => Ok(()),
        }
    }

    /// Makes the folders above something, where they are ours to make.
    fn parents(&mut self, path: &Path) -> Result<(), Error> {
        let above: Vec<&Path> = path.ancestors().collect();
        for folder in above.into_iter().rev() {
            if folder == Path::new("/")
                || self.dirs.contains(folder.as_os_str())
                || self.is_shown(folder)
            {
                continue;
            }
            self.made_dir(folder, 0o755);
        }
        Ok(())
    }

    fn made_dir(&mut self, path: &Path, mode: u32) {
        if let Ok(at) = relative(path) {
            self.files.ops.push(Op::Dir { at, mode });
            self.dirs.insert(path.into());
        }
    }

    fn mountpoint(&mut self, path: &Path, stat: &Stat) -> Result<(), Error> {
        if is_dir(stat) {
            self.made_dir(path, 0o755);
        } else {
            self.files.ops.push(Op::File {
                at: relative(path)?,
                mode: 0o444,
                bytes: Vec::new(),
            });
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "private; each says one thing")]
    fn source(
        &mut self,
        what: &'static str,
        host: &Path,
        place: &OwnedFd,
        stat: &Stat,
        access: Access,
        ownership: Ownership,
        recursive: bool,
    ) -> Result<usize, Error> {
        let mut attributes = match access {
            Access::ReadOnly => RDONLY | NOSUID | NODEV,
            Access::Writable => NOSUID | NODEV,
            Access::Device => NOSUID | NOEXEC,
        };
        if self.weaken.is_off(Layer::ReadOnly) {
            attributes &= !RDONLY;
        }
        if self.weaken.is_off(Layer::MountFlags) {
            attributes &= !(NOSUID | NODEV | NOEXEC);
        }
        let source = if self.owner.is_started_by_root() {
            let ids = (stat.st_uid, stat.st_gid);
            let tree = match ownership {
                Ownership::Host => self.owner.tree(place, recursive, attributes, None),
                Ownership::Sandbox => self.owner.tree(place, recursive, attributes, Some(ids)),
                Ownership::ReaderIfPossible => self
                    .owner
                    .tree(place, recursive, attributes, Some(ids))
                    .or_else(|_| self.owner.tree(place, recursive, attributes, None)),
            };
            self.trees.push(tree.map_err(|source| Error::Machine {
                part: format!("copying the mount of the {what} `{}`", host.display()),
                advice: crate::advice::tree(ownership == Ownership::Sandbox, &source),
                source,
            })?);
            Source::Tree
        } else {
            Source::Path {
                path: c_string(host)?,
                device: stat.st_dev,
                inode: stat.st_ino,
                recursive,
                attributes,
            }
        };
        self.add(source)
    }
}

/// Opens a host path without following a symbolic link anywhere in it.
pub(crate) fn open(
    what: &'static str,
    host: &Path,
    weaken: Weaken,
) -> Result<(OwnedFd, Stat), Error> {
    let resolve = if weaken.is_off(Layer::Links) {
        ResolveFlags::empty()
    } else {
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
    };
    if !host.is_absolute() || host.components().any(|part| part == Component::ParentDir) {
        return Err(refused(what, host, "give an absolute path without `..`"));
    }
    let opened = rustix::fs::openat2(
        CWD,
        host,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        resolve,
    )
    .and_then(|place| {
        let stat = rustix::fs::fstat(&place)?;
        Ok((place, stat))
    });
    opened.map_err(|errno| match errno {
        Errno::LOOP => refused(
            what,
            host,
            "a part of this path is a symbolic link; give the path it leads to",
        ),
        Errno::NOENT => refused(what, host, "there is nothing at this path"),
        errno => refused(what, host, &std::io::Error::from(errno).to_string()),
    })
}
