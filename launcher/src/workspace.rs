//! How the workspace is shown, and what in it is hidden.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::gitconfig;
use crate::glob::Glob;
use crate::hide::{Suspicion, suspicion};
use crate::layout::{Access, Layout, Ownership, is_dir, open, refused, relative};
use crate::plan::Op;
use crate::spec::{Workspace, WorkspaceMode};

/// Shows the workspace and covers what it hides; returns the hidden paths, relative to it.
///
/// The owner's `home` must not lie in it: a policy in the home that asks for nothing needs nobody's yes.
pub(crate) fn show(
    layout: &mut Layout,
    workspace: &Workspace,
    home: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let host = &workspace.host;
    let (place, stat) = open(WHAT, host)?;
    if !is_dir(&stat) {
        return Err(refused(WHAT, host, "it is not a folder"));
    }
    refuse_system_folders(host)?;
    if home.starts_with(host) {
        let why =
            "your home lies in it, which no run may see; work in a folder of the project's own";
        return Err(refused(WHAT, host, why));
    }
    let globs = parse_globs(&workspace.hide)?;
    match &workspace.mode {
        WorkspaceMode::Overlay { upper, work } => overlay(layout, host, upper, work)?,
        WorkspaceMode::ReadOnly => {
            layout.show(WHAT, host, Access::ReadOnly, Ownership::ReaderIfPossible)?
        }
        WorkspaceMode::ReadWrite => {
            layout.show(WHAT, host, Access::Writable, Ownership::Sandbox)?
        }
    }
    let found = Search::run(host, place, &globs)?;
    for (path, is_dir) in &found.hidden {
        layout.cover(&host.join(path), *is_dir)?;
    }
    for (path, bytes) in found.git_configs {
        layout.file(&host.join(path), bytes)?;
    }
    for path in &workspace.protect {
        if path
            .components()
            .any(|part| !matches!(part, Component::Normal(_)))
        {
            return Err(refused(
                "protected file",
                path,
                "give a path below the workspace",
            ));
        }
        layout.protect(&host.join(path))?;
    }
    Ok(found.hidden.into_iter().map(|(path, _)| path).collect())
}

/// Covers credentials in a host path that the policy's `read` names.
pub(crate) fn cover_credentials(layout: &mut Layout, host: &Path) -> Result<(), Error> {
    let (place, stat) = open("path to read", host)?;
    if !is_dir(&stat) {
        return Ok(());
    }
    let found = Search::run(host, place, &[])?;
    for (path, is_dir) in &found.hidden {
        layout.cover(&host.join(path), *is_dir)?;
    }
    for (path, bytes) in found.git_configs {
        layout.file(&host.join(path), bytes)?;
    }
    Ok(())
}

fn overlay(layout: &mut Layout, host: &Path, upper: &Path, work: &Path) -> Result<(), Error> {
    if let Some(below) = mounts_below(host).first() {
        return Err(refused(
            WHAT,
            host,
            &format!(
                "another file system is mounted in it, at `{}`, which an overlay cannot show; unmount it, or set \
                 `workspace.mode` to \"read-only\" or \"read-write\"",
                below.display()
            ),
        ));
    }
    let (Some(layers), true) = (upper.parent(), upper.parent() == work.parent()) else {
        return Err(Error::Fault("upper and work must lie in one folder".into()));
    };
    if layers.starts_with(host) {
        return Err(refused(
            WHAT,
            host,
            &format!(
                "the layer for its changes would lie in the folder itself, at `{}`; work in a project folder rather \
                 than the home, or choose another state folder (`--state-dir`)",
                layers.display()
            ),
        ));
    }
    let names = [simple_name(upper)?, simple_name(work)?];
    clear_work(work).map_err(|source| Error::Machine {
        part: format!("clearing `{}`", work.display()),
        advice: "remove it by hand".into(),
        source,
    })?;
    let (below, beside) = (Path::new("/.sandbox/lower"), Path::new("/.sandbox/layers"));
    layout.place(WHAT, host, below)?;
    layout.place("layer folder", layers, beside)?;
    layout.dir(host, 0o755)?;
    layout.push(Op::Overlay {
        at: relative(host)?,
        lower: relative(below)?,
        upper: relative(&beside.join(names[0]))?,
        work: relative(&beside.join(names[1]))?,
    });
    // The overlay holds both itself.
    for at in [below, beside] {
        layout.push(Op::Unmount { at: relative(at)? });
    }
    layout.note_shown(host);
    Ok(())
}

/// A `volatile` overlay leaves a mark in its work folder that keeps it from being used again.
pub(crate) fn clear_work(work: &Path) -> std::io::Result<()> {
    let left = work.join("work");
    if left.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        remove_folder(&left)?;
    }
    Ok(())
}

/// Removes a folder with what is in it, whatever its permissions.
pub(crate) fn remove_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // The kernel makes these folders without any permission.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_folder(&entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir(folder)
}

/// Names are put into mount options, where some characters mean something.
fn simple_name(path: &Path) -> Result<&OsStr, Error> {
    path.file_name()
        .filter(|name| {
            name.as_bytes()
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        })
        .ok_or_else(|| Error::Fault("layer folders need plain names".into()))
}

fn refuse_system_folders(host: &Path) -> Result<(), Error> {
    let is_system = host == Path::new("/")
        || [
            "/usr",
            "/etc",
            "/dev",
            "/proc",
            "/sys",
            "/boot",
            "/run",
            "/bin",
            "/sbin",
            "/lib",
            "/lib64",
            "/.sandbox",
        ]
        .iter()
        .any(|system| host.starts_with(system))
        || ["/tmp", "/var", "/home", "/opt", "/nix"]
            .iter()
            .any(|system| host == Path::new(system));
    if is_system {
        return Err(refused(
            WHAT,
            host,
            "this is a system folder; work in a folder of your own",
        ));
    }
    Ok(())
}

fn parse_globs(patterns: &[String]) -> Result<Vec<Glob>, Error> {
    patterns
        .iter()
        .map(|pattern| {
            Glob::parse(pattern).map_err(|why| {
                Error::Request(format!("`sandbox.hide`: pattern `{pattern}`: {why}"))
            })
        })
        .collect()
}

/// Mount points below a folder.
fn mounts_below(host: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|point| point.starts_with(host) && point != host)
        .collect()
}

/// Mount tables write space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut path = text.to_owned();
    for (code, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        path = path.replace(code, character);
    }
    PathBuf::from(path)
}

struct Search<'a> {
    globs: &'a [Glob],
    top: &'a Path,
    hidden: Vec<(PathBuf, bool)>,
    git_configs: Vec<(PathBuf, Vec<u8>)>,
    seen: usize,
}

impl<'a> Search<'a> {
    fn run(top: &'a Path, place: OwnedFd, globs: &'a [Glob]) -> Result<Self, Error> {
        let mut search = Self {
            globs,
            top,
            hidden: Vec::new(),
            git_configs: Vec::new(),
            seen: 0,
        };
        search.folder(&place, Path::new(""), 0)?;
        Ok(search)
    }

    fn folder(&mut self, parent: &OwnedFd, path: &Path, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(refused(
                WHAT,
                &self.top.join(path),
                "folders are nested too deeply",
            ));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let folder = match rustix::fs::openat(parent.as_fd(), name, flags, Mode::empty()) {
            Ok(folder) => folder,
            // What the caller cannot list, an ordinary user's sandbox cannot either; and what was removed or replaced
            // meanwhile is not shown as a folder.
            Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(self.unsearched(path, error)),
        };
        let entries = Dir::read_from(&folder).map_err(|error| self.unsearched(path, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| self.unsearched(path, error))?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            self.seen += 1;
            if self.seen > MAX_ENTRIES {
                return Err(refused(
                    WHAT,
                    self.top,
                    "it holds too many files to look for credentials in; choose a smaller folder",
                ));
            }
            let path = path.join(OsStr::from_bytes(bytes));
            self.entry(&folder, &path, entry.file_type(), depth)?;
        }
        Ok(())
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

    fn entry(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        kind: FileType,
        depth: usize,
    ) -> Result<(), Error> {
        let kind = match kind {
            FileType::Unknown => kind_of(folder, path),
            kind => kind,
        };
        let is_dir = kind == FileType::Directory;
        let by_policy = self.globs.iter().any(|glob| glob.matches(path));
        // A read-only mount does not keep anybody from connecting: these lead to processes of the host.
        let leads_out = matches!(kind, FileType::Socket | FileType::Fifo);
        let is_hidden = by_policy
            || leads_out
            || match suspicion(path, is_dir) {
                Suspicion::Hidden => true,
                Suspicion::IfItHolds(words) => {
                    kind == FileType::RegularFile && holds(folder, path, words)
                }
                Suspicion::None => false,
            };
        if is_hidden {
            return self.hide(path, kind);
        }
        match kind {
            FileType::Directory if is_object_store(path) => Ok(()),
            FileType::Directory => self.folder(folder, path, depth + 1),
            FileType::RegularFile if is_git_config(path) => {
                let bytes = read(folder, path, LARGEST_CONFIG).unwrap_or_default();
                self.git_configs
                    .push((path.to_owned(), gitconfig::sanitised(&bytes)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hides an entry; of a symbolic link, what it leads to.
    fn hide(&mut self, path: &Path, kind: FileType) -> Result<(), Error> {
        if self.hidden.len() == MAX_HIDDEN {
            return Err(refused(
                WHAT,
                self.top,
                "it holds more hidden files than a sandbox can cover; hide the folders above them",
            ));
        }
        if kind != FileType::Symlink {
            self.hidden
                .push((path.to_owned(), kind == FileType::Directory));
            return Ok(());
        }
        // A link out of the workspace leads nowhere inside, or to what is shown there anyway.
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
}

fn kind_of(folder: &OwnedFd, path: &Path) -> FileType {
    let name = path.file_name().unwrap_or_default();
    rustix::fs::statat(folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| {
            FileType::from_raw_mode(stat.st_mode)
        })
}

fn holds(folder: &OwnedFd, path: &Path, words: &[&[u8]]) -> bool {
    // A key that cannot be read here is hidden: the kernel's answer may be another one inside.
    read(folder, path, LOOKED_AT).is_none_or(|bytes| {
        words
            .iter()
            .any(|word| bytes.windows(word.len()).any(|window| window == *word))
    })
}

fn read(folder: &OwnedFd, path: &Path, most: u64) -> Option<Vec<u8>> {
    use std::io::Read;
    // Not blocking: a FIFO of that name must not hold the start up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let name = path.file_name()?;
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

/// The configuration of a repository, of its submodules and of its work trees.
fn is_git_config(path: &Path) -> bool {
    let name = path.file_name();
    let is_named =
        name == Some(OsStr::new("config")) || name == Some(OsStr::new("config.worktree"));
    // A branch may be called `config` too.
    is_named
        && path.iter().any(|part| part == ".git")
        && !path.iter().any(|part| part == "refs" || part == "logs")
}

const WHAT: &str = "workspace";
const MAX_DEPTH: usize = 200;
const MAX_ENTRIES: usize = 4_000_000;
const MAX_HIDDEN: usize = 10_000;
const LARGEST_CONFIG: u64 = 1 << 20;
const LOOKED_AT: u64 = 64 << 10;
