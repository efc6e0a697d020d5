//! The prepared list of what the sandbox's first process does, in order.
//!
//! It is data alone: the first process is born of the zygote, and gets it with the descriptors that belong to it. The
//! supervisor keeps its copy to tell which entry failed.

use std::ffi::CString;

use rustix::process::Resource;
use serde::{Deserialize, Serialize};

use crate::landlock::Rules;
use crate::spec::WindowSize;
use crate::sys::Instruction;
use crate::weaken::Weaken;

/// Everything the child needs, in the parts that it gets.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What can be begun with while the rest is still worked out.
    pub(crate) first: First,
    /// What the sandbox stands with.
    pub(crate) rest: Rest,
    /// What it is then told to run.
    pub(crate) command: Command,
}

/// The part of a plan that every view has alike.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct First {
    /// A host folder to build the new root on; it is covered in the child's mount namespace only.
    pub(crate) stage: CString,
    /// Whether the supervisor is the host's root, so that the child has to change its user itself.
    pub(crate) started_by_root: bool,
    /// The network.
    pub(crate) network: Network,
    /// What a test has switched off.
    pub(crate) weaken: Weaken,
    /// System folders, devices, `/proc`, scratch folders.
    pub(crate) files: Files,
}

/// The part of a plan that says what this sandbox is for.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Rest {
    /// The workspace, tool chains and made-up files.
    pub(crate) files: Files,
    /// Landlock's rules, where the kernel has it.
    pub(crate) landlock: Option<Rules>,
    /// The terminal that the command gets in the place of its standard streams, if any.
    pub(crate) terminal: Option<WindowSize>,
}

/// A part of the file system.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Files {
    /// Trees of the host that [`Op::Show`] places; both parts' count as one list.
    pub(crate) sources: Vec<Source>,
    /// The file system, made from the top down. Paths are relative to the new root; those that begin with `.sandbox/`
    /// to a folder beside it, which goes when the sandbox stands.
    pub(crate) ops: Vec<Op>,
}

impl Plan {
    /// A source, by its number in both parts.
    pub(crate) fn source(&self, index: usize) -> Option<&Source> {
        let (first, rest) = (&self.first.files.sources, &self.rest.files.sources);
        first.iter().chain(rest).nth(index)
    }

    /// A step, by its number in both parts.
    pub(crate) fn op(&self, index: usize) -> Option<&Op> {
        let (first, rest) = (&self.first.files.ops, &self.rest.files.ops);
        first.iter().chain(rest).nth(index)
    }
}

/// A tree of the host.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Source {
    /// Made by the supervisor, ready to be placed: the next of the descriptors that come with the plan.
    Tree,
    /// Opened by the child, who has the right to in its own mount namespace only.
    Path {
        /// Where it is; no part of it was a symbolic link.
        path: CString,
        /// What was found there. Something else now means that somebody exchanged it, and the start fails.
        device: u64,
        /// See `device`.
        inode: u64,
        /// Whether the mounts below it come along.
        recursive: bool,
        /// `MOUNT_ATTR_*`.
        attributes: u64,
    },
}

/// One step of building the file system.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Op {
    /// Makes a folder, if there is none.
    Dir { at: CString, mode: u32 },
    /// Makes a file.
    File {
        at: CString,
        mode: u32,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Makes a file that holds what a source does, which is an open file, followed by `bytes`.
    Join {
        at: CString,
        first: Option<usize>,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Makes a file that holds what a file of the host does, if the sandbox's user may read that.
    Copy { from: CString, at: CString },
    /// Makes a symbolic link.
    Link { at: CString, target: CString },
    /// Places a tree of the host.
    Show { source: usize, at: CString },
    /// Places something that stands in the new root a second time, with `attributes`.
    ShowAgain {
        from: CString,
        at: CString,
        attributes: u64,
        if_missing: IfMissing,
    },
    /// Mounts the memory file system that holds `/tmp` and the home, and tells the supervisor.
    Scratch {
        at: CString,
        size: CString,
        inodes: CString,
    },
    /// Mounts the overlay of the workspace.
    Overlay {
        at: CString,
        /// The folder that the other paths start from: the kernel takes 255 bytes for all lower layers together.
        from: CString,
        lower: CString,
        upper: CString,
        work: CString,
    },
    /// Mounts a `devpts` of its own.
    Terminals { at: CString },
    /// Mounts a `proc` of the new process namespace.
    Processes { at: CString, users: UserNamespaces },
}

/// Whether user namespaces can be made in the sandbox, by what the kernel counts.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum UserNamespaces {
    /// None, whatever the system call filter lets through.
    None,
    /// As many as on the host: only where a test has switched the limit off.
    AsOnHost,
}

/// What to do where the place for a tree does not exist.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum IfMissing {
    /// The start fails.
    Fail,
    /// There is nothing to cover.
    Skip,
}

/// The network of the sandbox, as messages to the kernel.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Network {
    /// The host's own: only where a test has switched the network namespace off.
    Hosts,
    /// Loopback only.
    None { up: Vec<u8> },
    /// Loopback, everything local, captured.
    Captured {
        up: Vec<u8>,
        routes: Vec<Vec<u8>>,
        capture: Vec<u8>,
        names: Vec<u8>,
        with_v6: bool,
    },
}

/// The command, ready for `execve`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Command {
    /// Where to look for it, in order.
    pub(crate) candidates: Vec<CString>,
    /// Its arguments.
    pub(crate) arguments: Texts,
    /// Its environment.
    pub(crate) environment: Texts,
    /// Where it starts, an absolute path inside.
    pub(crate) workdir: CString,
    /// What `setrlimit` bounds, and the value.
    pub(crate) rlimits: Vec<(Bounded, u64)>,
    /// Which processors it may use, if the `cpus` limit is kept that way.
    pub(crate) processors: Option<usize>,
    /// The system call filter.
    pub(crate) filter: Vec<Instruction>,
}

/// What a process's own limit bounds (setrlimit(2)).
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Bounded {
    /// The size of a core file.
    Core,
    /// The size of a file.
    FileSize,
    /// Open files.
    OpenFiles,
    /// Seconds of processor time.
    CpuTime,
    /// Processes of the user in the user namespace.
    Processes,
    /// Private memory.
    Data,
    /// How high a real-time priority may be.
    RealTime,
    /// How far below 0 the nice value may be.
    Nice,
}

impl Bounded {
    /// The kernel's name of it.
    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::Core => Resource::Core,
            Self::FileSize => Resource::Fsize,
            Self::OpenFiles => Resource::Nofile,
            Self::CpuTime => Resource::Cpu,
            Self::Processes => Resource::Nproc,
            Self::Data => Resource::Data,
            Self::RealTime => Resource::Rtprio,
            Self::Nice => Resource::Nice,
        }
    }
}

/// Texts that no message shows: a run's token may be among them.
#[derive(Deserialize, Serialize)]
pub(crate) struct Texts(pub(crate) Vec<CString>);

impl std::fmt::Debug for Texts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} texts", self.0.len())
    }
}

impl Op {
    /// What the step does, for a message.
    pub(crate) fn describe(&self) -> String {
        let path = |at: &CString| format!("`/{}`", at.to_string_lossy());
        match self {
            Self::Dir { at, .. } => format!("making the folder {}", path(at)),
            Self::File { at, .. } => format!("making the file {}", path(at)),
            Self::Join { at, .. } => format!("making the file {}", path(at)),
            Self::Copy { from, .. } => format!("copying `{}`", from.to_string_lossy()),
            Self::Link { at, .. } => format!("making the link {}", path(at)),
            Self::Show { at, .. } => format!("showing {}", path(at)),
            Self::ShowAgain { at, .. } => format!("covering {}", path(at)),
            Self::Scratch { .. } => "mounting a memory file system for /tmp and the home".into(),
            Self::Overlay { at, .. } => format!("mounting the workspace overlay at {}", path(at)),
            Self::Terminals { .. } => "mounting devpts at `/dev/pts`".into(),
            Self::Processes { .. } => "mounting proc at `/proc`".into(),
        }
    }
}

/// The user and group that the command runs as, inside. Never 0: programs do not take themselves for root.
pub(crate) const INNER: u32 = 1000;
