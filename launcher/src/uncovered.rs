//! Whether something that a sandbox hides was saved anew outside it: then the kernel has taken away what covered the old one.
//!
//! A cover is a mount over a file. Whoever renames another file over that one, as editors, git and secret managers save, or
//! removes it, takes the mount with it in every sandbox, and a new file of that name is seen. An overlay is not affected.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use rustix::io::Errno;

use crate::layout::Layout;
use crate::spec::{View, WorkspaceMode};

/// The names that are watched.
#[derive(Debug)]
pub(crate) struct Uncovered {
    events: OwnedFd,
    /// By the kernel's number of their folder: which path is shown again if something new gets the name.
    names: HashMap<i32, BTreeMap<OsString, PathBuf>>,
}

impl Uncovered {
    /// Watches what the layout covers or keeps from being written, before that is done; nothing if there is nothing.
    ///
    /// If that cannot be had, the layout notes it.
    pub(crate) fn watch(layout: &mut Layout, view: &View) -> Option<Self> {
        let overlay = (view.workspace.as_ref())
            .filter(|workspace| matches!(workspace.mode, WorkspaceMode::Overlay { .. }))
            .map(|workspace| workspace.host.as_path());
        let is_beside = |path: &&PathBuf| !overlay.is_some_and(|overlay| path.starts_with(overlay));
        let tops: Vec<&Path> = layout
            .listed
            .iter()
            .map(|(_, top, _)| top.as_path())
            .collect();
        let top_of = |path: &Path| {
            let above = tops
                .iter()
                .filter(|top| path.starts_with(top) && path != **top);
            above.max_by_key(|top| top.as_os_str().len()).copied()
        };
        let paths: Vec<(PathBuf, PathBuf)> = (layout.kept_back.iter())
            .filter(is_beside)
            .filter_map(|path| Some((top_of(path)?.to_owned(), path.clone())))
            .collect();
        if paths.is_empty() {
            return None;
        }
        match Self::of(&paths) {
            Ok(watched) => Some(watched),
            Err(errno) => {
                layout.notes.push(format!(
                    "if a hidden file is saved anew outside while the command runs, it can be seen: changes cannot be \
                     watched here ({})",
                    std::io::Error::from(errno)
                ));
                None
            }
        }
    }

    fn of(paths: &[(PathBuf, PathBuf)]) -> Result<Self, Errno> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mut watched = Self {
            events: inotify::init(flags)?,
            names: HashMap::new(),
        };
        for (top, path) in paths {
            // A folder above may be replaced as well.
            let below = path.ancestors().take_while(|part| part != top);
            for (parent, name) in below.filter_map(|part| Some((part.parent()?, part.file_name()?)))
            {
                match inotify::add_watch(&watched.events, parent, NEW) {
                    Ok(number) => {
                        let names = watched.names.entry(number).or_default();
                        names.entry(name.to_owned()).or_insert_with(|| path.clone());
                    }
                    // Gone by now: the sandbox does not have it either.
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(watched)
    }

    /// Readable when there may be something to see.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// What is shown again, if anything is.
    pub(crate) fn seen(&self) -> Option<PathBuf> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.events, &mut space);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            if event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW) {
                // It may have been any.
                return self
                    .names
                    .values()
                    .flat_map(BTreeMap::values)
                    .next()
                    .cloned();
            }
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            let names = self.names.get(&event.wd());
            if let (Some(names), Some(name)) = (names, name)
                && let Some(path) = names.get(name)
            {
                return Some(path.clone());
            }
        }
    }
}

const NEW: inotify::WatchFlags = inotify::WatchFlags::CREATE
    .union(inotify::WatchFlags::MOVED_TO)
    .union(inotify::WatchFlags::ONLYDIR)
    .union(inotify::WatchFlags::DONT_FOLLOW);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_hidden_name_that_is_given_anew_is_seen_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().to_owned();
        let (path, beside) = (top.join("conf/key"), top.join("conf/other"));
        fs::create_dir(top.join("conf")).unwrap();
        fs::write(&path, "old").unwrap();
        let watched = Uncovered::of(&[(top.clone(), path.clone())]).unwrap();
        fs::write(&beside, "").unwrap();
        fs::write(&path, "in place").unwrap();
        fs::rename(&beside, top.join("other")).unwrap();
        assert_eq!(watched.seen(), None);
        fs::rename(top.join("other"), &path).unwrap();
        assert_eq!(watched.seen(), Some(path.clone()));
        fs::remove_file(&path).unwrap();
        assert_eq!(watched.seen(), None);
        fs::write(&path, "").unwrap();
        assert_eq!(watched.seen(), Some(path.clone()));
        fs::rename(top.join("conf"), top.join("away")).unwrap();
        fs::create_dir(top.join("conf")).unwrap();
        assert_eq!(watched.seen(), Some(path));
    }
}
