//! Who the sandbox's user is on the host, and how files of the host become that user's.
//!
//! Started by an ordinary user, the sandbox is that user. Started by root, it is never host user 0: it is a user number
//! that nobody has ([`FIRST`] and the 65,535 after it), and folders that belong to the host's root, or to whoever owns
//! the workspace, are shown through an id-mapped mount, so that they belong to that number inside only.

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount as mnt;
use rustix::process::Signal;

use crate::child_files::{attributes, tree_flags};
use crate::error::Error;
use crate::plan::INNER;
use crate::sys::{self, MountAttributes, Side};

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
        if user == 0
            && let Some(user) = unused_number()
        {
            return Self {
                user,
                group: user,
                root: Some(HashMap::new()),
            };
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

    /// Gives the user namespace of process `pid` its one user.
    pub(crate) fn map(&self, pid: i32) -> Result<(), Error> {
        let write = |name: &str, text: &str| {
            write_map(pid, name, text).map_err(|source| Error::Machine {
                part: format!("writing `{name}` of the new user namespace"),
                advice: crate::advice::user_namespace(),
                source,
            })
        };
        if !self.is_started_by_root() {
            // The kernel asks for this before an ordinary user may map a group.
            write("setgroups", "deny")?;
        }
        write("uid_map", &format!("{INNER} {} 1", self.user))?;
        write("gid_map", &format!("{INNER} {} 1", self.group))
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
                let namespace = namespace_with(
                    &format!("{} {user} 1", ids.0),
                    &format!("{} {group} 1", ids.1),
                )?;
                Ok(entry.insert(namespace))
            }
        }
    }
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
    let (users, groups) = (extents("uid_map"), extents("gid_map"));
    let is_known = |number: u32| {
        let has = |extents: &[(u32, u32)]| {
            extents
                .iter()
                .any(|(first, count)| number >= *first && number - first < *count)
        };
        has(&users) && has(&groups)
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
fn namespace_with(users: &str, groups: &str) -> std::io::Result<OwnedFd> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone3(libc::CLONE_NEWUSER as u64)? {
        Side::Child => {
            let ours = writer.as_raw_fd() as u32;
            let _ = sys::close_range(ours, ours);
            // Until the supervisor ends this process, or itself.
            let _ = rustix::io::read(&reader, &mut [0_u8; 1]);
            sys::exit(0)
        }
        Side::Parent(pid, pidfd) => {
            let namespace = write_map(pid, "uid_map", users)
                .and_then(|()| write_map(pid, "gid_map", groups))
                .and_then(|()| std::fs::File::open(format!("/proc/{pid}/ns/user")));
            drop(writer);
            if let Some(pidfd) = pidfd {
                let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                let id = rustix::process::WaitId::PidFd(pidfd.as_fd());
                let _ = rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED);
            }
            Ok(namespace?.into())
        }
    }
}

fn write_map(pid: i32, name: &str, text: &str) -> std::io::Result<()> {
    // One write: the kernel takes a map in one piece and once.
    std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/{name}"))?
        .write_all(text.as_bytes())
}

const ID_MAPPED: u64 = mnt::MountAttrFlags::MOUNT_ATTR_IDMAP.bits() as u64;
