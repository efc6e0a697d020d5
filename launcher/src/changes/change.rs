//! What one change is: a path of the workspace, what was there and what the run left there.

use std::path::PathBuf;

/// One path that the run left otherwise than it is in the workspace now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path, relative to the workspace.
    pub path: PathBuf,
    /// What the workspace has there; `None` for something new.
    pub was: Option<Entry>,
    /// What the run left there; `None` for something removed.
    pub now: Option<Entry>,
    /// Who on this machine runs or obeys it later, such as "git runs it"; `None` for what nobody does.
    pub obeyed: Option<&'static str>,
    /// Why taking it over would lose something of the owner's.
    pub conflict: Option<Conflict>,
    /// Why it is not taken over.
    pub refused: Option<Refused>,
    /// Where the run's side lies: the number of the layer.
    pub(crate) layer: Option<usize>,
    /// What exactly lay in the workspace when this was found.
    pub(crate) seen: Option<Seen>,
}

/// What there is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What kind of thing.
    pub kind: Kind,
    /// Its permissions, the set-id bits and the sticky bit with them.
    pub mode: u32,
    /// A file's size in bytes.
    pub size: u64,
    /// Where a symbolic link leads.
    pub target: Option<PathBuf>,
}

/// A kind of thing in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// Why taking a change over would lose something of the owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It changed in the workspace since the run began.
    Changed,
    /// It may have been removed from the workspace since the run began: the run saw it, and its folder changed.
    Removed,
    /// What is there cannot be looked at.
    Unreadable,
    /// Another file system is mounted there.
    Mounted,
}

/// Why a change is not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A FIFO, a socket or a device: it would lead to a process, not hold a file.
    Special,
    /// A symbolic link that leads out of the workspace. It is taken over when it is asked for by its name.
    LeadsOut,
    /// It lies too deep in folders.
    TooDeep,
    /// Its name is one that we use while changes are taken over.
    Reserved,
}

/// Which very thing lay somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) owner: (u32, u32),
    /// When its contents changed: taking it out of its place does not change this.
    pub(crate) written: (i64, i64),
}

impl Change {
    /// How it is called in a list.
    pub fn word(&self) -> &'static str {
        match (&self.was, &self.now) {
            (None, _) => "added",
            (Some(_), None) => "deleted",
            (Some(was), Some(now)) if was.kind != now.kind => "replaced",
            (Some(_), Some(_)) => "changed",
        }
    }

    /// Whether something is removed: a deletion, or a folder that something else takes the place of.
    pub fn is_deletion(&self) -> bool {
        self.now.is_none()
    }

    /// Whether bits of its permissions are left out when it is taken over: set-user-id, set-group-id, sticky.
    pub fn loses_bits(&self) -> bool {
        self.now
            .as_ref()
            .is_some_and(|now| now.kind == Kind::File && now.mode & 0o7000 != 0)
    }
}

impl Conflict {
    /// The conflict in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Changed => "it changed in your workspace since the run began",
            Self::Removed => "it may have been removed from your workspace since the run began",
            Self::Unreadable => "what your workspace has there cannot be looked at",
            Self::Mounted => "another file system is mounted there",
        }
    }

    /// A stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Unreadable => "unreadable",
            Self::Mounted => "mounted",
        }
    }
}

impl Refused {
    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Special => "FIFOs, sockets and devices are not taken over",
            Self::LeadsOut => "a symbolic link out of the workspace is taken over only by its name",
            Self::TooDeep => "it lies too deep in folders",
            Self::Reserved => "its name is kept for taking changes over",
        }
    }

    /// A stable name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Special => "special-file",
            Self::LeadsOut => "leads-out",
            Self::TooDeep => "too-deep",
            Self::Reserved => "reserved-name",
        }
    }
}
