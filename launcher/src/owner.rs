//! Who the sandbox's user is on the host, and how files of the host become that user's.
//!
//! Started by an ordinary user, the sandbox is that user. Started by root, it is never host user 0: it is a user number
//! that nobody has ([`FIRST`] and the 65,535 after it), and folders that belong to the host's root, or to whoever owns
//! the workspace, are shown through an id-mapped mount, so that they belong to that number inside only.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::child_files::{attributes, tree_flags};
use crate::error::Error;
use crate::plan::INNER;
use crate::sys::{self, MountAttributes};
use crate::zygote;
use rustix::mount as mnt;
use serde::{Deserialize, Serialize};

/// The first of the user numbers for sandboxes started by root: above what systemd, containers and `subuid` ranges
/// use, below the numbers that do not fit a signed integer.
pub(crate) const FIRST: u32 = 0x7f00_0000;

/// The sandbox's user.
#[derive(Debug)]
pub(crate) struct Owner {
    user: u32,
    group: u32,
    root: Option<Maps>,
}

type Maps = HashMap<(u32, u32), OwnedFd>;

impl Owner {
    /// The user for one more sandbox of this process.
    pub(crate) fn new() -> Self {
        let (user, group) = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        if user == 0 {
            if let Some((user, maps)) = free().pop() {
                return Self {
                    user,
                    group: user,
                    root: Some(maps),
                };
            }
            if let Some(user) = unused_number() {
                return Self {
                    user,
                    group: user,
                    root: Some(HashMap::new()),
                };
            }
        }
        Self {
            user,
            group,
            root: None,
        }
    }

    /// Whether the supervisor is the host's root.
    pub(crate) fn is_started_by_root(&self) -> bool {
        self.root.is_some()
    }

    /// A process in these new namespaces, where the sandbox's user is the only one.
    pub(crate) fn wanted(&self, namespaces: u64) -> Wanted {
        Wanted {
            namespaces,
            user: (INNER, self.user),
            group: (INNER, self.group),
            started_by_root: self.is_started_by_root(),
        }
    }

    /// Gives the user namespace of process `pid` its one user.
    pub(crate) fn map(&self, pid: u32) -> Result<(), Error> {
        self.wanted(0).map(pid).map_err(|source| Error::Machine {
            part: "writing the maps of the new user namespace".into(),
            advice: crate::advice::user_namespace(),
            source,
        })
    }

    /// Lets the command open a pipe anew by its name, such as `/dev/stdout`: root's pipes are root's.
    pub(crate) fn give(&self, pipe: &OwnedFd) {
        if self.is_started_by_root() {
            let user = rustix::process::Uid::from_raw(self.user);
            // Without the right to, the name cannot be opened; what is open works all the same.
            let _ = rustix::fs::fchown(pipe, Some(user), None);
        }
    }

    /// A detached, private copy of the mounts at `place`. With `owned_by`, files of that host user and group belong to
    /// the sandbox's user in it.
    ///
    /// For root only; an ordinary user's child does this itself.
    pub(crate) fn tree(
        &mut self,
        place: &OwnedFd,
        recursive: bool,
        set: u64,
        owned_by: Option<(u32, u32)>,
    ) -> std::io::Result<OwnedFd> {
        let tree = mnt::open_tree(place, c"", tree_flags(recursive))?;
        let namespace = match owned_by {
            Some(ids) => Some(self.mapping(ids)?.try_clone()?),
            None => None,
        };
        let change = MountAttributes {
            set: set | namespace.as_ref().map_or(0, |_| ID_MAPPED),
            user_namespace: namespace.as_ref().map_or(0, |fd| fd.as_raw_fd() as u64),
            // Otherwise what is mounted in the sandbox would appear on the host.
            propagation: libc::MS_PRIVATE,
            ..attributes(0)
        };
        sys::mount_setattr(tree.as_fd(), change, recursive)?;
        Ok(tree)
    }

    /// A user namespace in which host user and group `ids` are the sandbox's.
    fn mapping(&mut self, ids: (u32, u32)) -> std::io::Result<&OwnedFd> {
        let (user, group) = (self.user, self.group);
        let maps = self.root.get_or_insert_with(HashMap::new);
        match maps.entry(ids) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let namespace = namespace_with((ids.0, user), (ids.1, group))?;
                Ok(entry.insert(namespace))
            }
        }
    }
}

impl Drop for Owner {
    /// The number and what was made for it can be the next sandbox's: all processes of this one are gone.
    fn drop(&mut self) {
        if let Some(maps) = self.root.take() {
            let mut free = free();
            if free.len() < MOST_KEPT && maps.len() <= MOST_MAPS {
                free.push((self.user, maps));
            }
        }
    }
}

/// The user numbers that were used and are free again, with the namespaces made for them.
fn free() -> MutexGuard<'static, Vec<(u32, Maps)>> {
    static FREE: Mutex<Vec<(u32, Maps)>> = Mutex::new(Vec::new());
    // It is whole after each operation, so a panic elsewhere does not spoil it.
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A user number for a sandbox started by root, one a sandbox as far as possible: limits that the kernel counts by user
/// are then its own.
///
/// `None` for the root of a user namespace that has no other users: it is an ordinary user of the host.
fn unused_number() -> Option<u32> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id()
        .wrapping_mul(16)
        .wrapping_add(STARTED.fetch_add(1, Ordering::Relaxed));
    let wanted = FIRST + (number & 0xffff);
    // What our own user namespace knows does not change.
    static KNOWN: OnceLock<[Vec<(u32, u32)>; 2]> = OnceLock::new();
    let [users, groups] = KNOWN.get_or_init(|| [extents("uid_map"), extents("gid_map")]);
    let is_known = |number: u32| {
        let has = |extents: &[(u32, u32)]| {
            extents
                .iter()
                .any(|(first, count)| number >= *first && number - first < *count)
        };
        has(users) && has(groups)
    };
    if is_known(wanted) {
        return Some(wanted);
    }
    // In a container that has its own users: the last of them, which images do not use.
    let (first, count) = users.iter().copied().max_by_key(|(first, _)| *first)?;
    let last = first.checked_add(count.checked_sub(1)?)?;
    let number = last - (number % 256).min(count.saturating_sub(1) / 2);
    (number != 0 && is_known(number)).then_some(number)
}

/// The ranges of users or groups that our user namespace knows: first and count.
fn extents(name: &str) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            let (first, _, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some((first.ok()?, count.ok()?))
        })
        .collect()
}

/// A user namespace with these maps. It needs a process for a moment.
fn namespace_with(users: (u32, u32), groups: (u32, u32)) -> std::io::Result<OwnedFd> {
    let wanted = Wanted {
        namespaces: libc::CLONE_NEWUSER as u64,
        user: users,
        group: groups,
        started_by_root: true,
    };
    let mut newborn = zygote::ask(wanted, None).map_err(std::io::Error::other)?;
    let pid = newborn.born().map_err(std::io::Error::other)?.pid;
    Ok(std::fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// The namespaces of a process, and the one user that its user namespace has: the number inside, and the host's.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Wanted {
    /// `CLONE_NEW*`.
    pub(crate) namespaces: u64,
    /// The user.
    pub(crate) user: (u32, u32),
    /// The group.
    pub(crate) group: (u32, u32),
    /// Whether the supervisor is the host's root.
    pub(crate) started_by_root: bool,
}

impl Wanted {
    /// Gives the user namespace of process `pid` its one user.
    pub(crate) fn map(&self, pid: u32) -> std::io::Result<()> {
        let write = |name: &str, text: &str| {
            // One write: the kernel takes a map in one piece and once.
            std::fs::OpenOptions::new()
                .write(true)
                .open(format!("/proc/{pid}/{name}"))?
                .write_all(text.as_bytes())
        };
        if !self.started_by_root {
            // The kernel asks for this before an ordinary user may map a group.
            write("setgroups", "deny")?;
        }
        write("uid_map", &format!("{} {} 1", self.user.0, self.user.1))?;
        write("gid_map", &format!("{} {} 1", self.group.0, self.group.1))
    }
}

const MOST_KEPT: usize = 64;
const MOST_MAPS: usize = 4;
const ID_MAPPED: u64 = mnt::MountAttrFlags::MOUNT_ATTR_IDMAP.bits() as u64;
