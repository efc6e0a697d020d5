//! Sandboxes: namespaces, mounts, limits and the command that runs in them.
//!
//! [`prepare`] checks a [`Spec`] against the host, [`Prepared::start`] builds the sandbox, [`Started::release`] lets the
//! command run and [`Started::wait`] tells how it ended. A sandbox that cannot be built as declared is not started.

mod answer;
pub mod changes;
mod error;
mod signal;
mod spec;
mod weaken;

#[cfg(target_os = "linux")]
mod advice;
#[cfg(target_os = "linux")]
mod alarm;
#[cfg(target_os = "linux")]
mod bpf;
#[cfg(target_os = "linux")]
mod calls_allowed;
#[cfg(target_os = "linux")]
mod calls_refused;
#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod cgroup_place;
#[cfg(target_os = "linux")]
mod channel;
#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod child_command;
#[cfg(target_os = "linux")]
mod child_files;
#[cfg(target_os = "linux")]
mod child_network;
#[cfg(target_os = "linux")]
mod child_terminal;
#[cfg(target_os = "linux")]
mod copied;
#[cfg(target_os = "linux")]
mod covers;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(target_os = "linux")]
mod etc;
#[cfg(target_os = "linux")]
mod facilities;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod fallback;
#[cfg(target_os = "linux")]
mod gitconfig;
#[cfg(target_os = "linux")]
mod gitindex;
#[cfg(target_os = "linux")]
mod given;
#[cfg(target_os = "linux")]
mod glob;
#[cfg(target_os = "linux")]
mod hide;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod later;
#[cfg(target_os = "linux")]
mod layout;
#[cfg(target_os = "linux")]
mod listing;
#[cfg(target_os = "linux")]
mod message;
#[cfg(target_os = "linux")]
mod mount_table;
#[cfg(target_os = "linux")]
mod names;
#[cfg(target_os = "linux")]
mod netlink;
#[cfg(target_os = "linux")]
mod nft;
#[cfg(target_os = "linux")]
mod owner;
#[cfg(target_os = "linux")]
mod pace;
#[cfg(target_os = "linux")]
mod paths;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod prepare;
#[cfg(target_os = "linux")]
mod quiet;
#[cfg(target_os = "linux")]
mod search;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod start;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod system;
#[cfg(target_os = "linux")]
mod tail;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod toolchains;
#[cfg(target_os = "linux")]
mod turn;
#[cfg(target_os = "linux")]
mod uncovered;
#[cfg(target_os = "linux")]
mod usage;
#[cfg(target_os = "linux")]
mod wait;
#[cfg(target_os = "linux")]
mod warm;
#[cfg(target_os = "linux")]
mod watch;
#[cfg(target_os = "linux")]
mod within_reach;
#[cfg(target_os = "linux")]
mod workspace;
#[cfg(target_os = "linux")]
mod written;
#[cfg(target_os = "linux")]
mod zygote;

#[cfg(not(target_os = "linux"))]
mod elsewhere;

pub use answer::{Brokered, Check, Doors, Finished, Stream, Taken};
pub use error::Error;
pub use signal::{GRACE, Signal};
pub use spec::{
    CaBundle, Isolation, Limits, MAX_LAYERS_BELOW, MadeUp, NetworkMode, Spec, Stdin, View,
    WindowSize, Workspace, WorkspaceMode,
};

#[cfg(feature = "weaken")]
pub use weaken::Layer;
pub use weaken::Weaken;

#[cfg(target_os = "linux")]
pub use changes::remove_folder;
#[cfg(target_os = "linux")]
pub use doctor::{WITHOUT_NAMESPACES, doctor, isolation_here, limits_kept_by};
#[cfg(target_os = "linux")]
pub use listing::{HiddenFile, Listing, ShownPlace};
#[cfg(target_os = "linux")]
pub use prepare::{Prepared, prepare};
#[cfg(target_os = "linux")]
pub use start::{Killer, Started};
#[cfg(target_os = "linux")]
pub use sys::ignore_background_reads;
#[cfg(target_os = "linux")]
pub use terminal::Terminal;
#[cfg(target_os = "linux")]
pub use warm::Warm;
#[cfg(target_os = "linux")]
pub use zygote::{begin, expect};

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{
    Killer, Prepared, Started, Terminal, WITHOUT_NAMESPACES, begin, doctor, expect,
    ignore_background_reads, isolation_here, limits_kept_by, prepare, remove_folder,
};
