//! What a run changed in its workspace: shown, taken over, or thrown away, long after the run.
//!
//! A run writes to layers in its own folder and never to the workspace. A [`Record`] beside the layers says which
//! workspace they belong to and since when, so that what its owner changed meanwhile is never written over.

mod change;
mod error;
mod record;
mod text;

#[cfg(target_os = "linux")]
mod apply;
#[cfg(target_os = "linux")]
mod commit;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod discard;
#[cfg(target_os = "linux")]
mod dying;
#[cfg(target_os = "linux")]
mod kept;
#[cfg(target_os = "linux")]
mod layers;
#[cfg(target_os = "linux")]
mod merge;
#[cfg(target_os = "linux")]
mod obeyed;
#[cfg(target_os = "linux")]
mod remove;
#[cfg(target_os = "linux")]
mod select;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod touched;
#[cfg(target_os = "linux")]
mod tree;

pub use change::{Change, Conflict, Entry, Kind, Refused};
pub use error::Error;
pub use record::{Hold, Moment, Record, State};
pub use text::{escaped, unescaped};

#[cfg(all(target_os = "linux", feature = "weaken"))]
pub use dying::die_at;
#[cfg(target_os = "linux")]
pub use kept::{Applied, Kept, Summary, summary};
#[cfg(target_os = "linux")]
pub(crate) use layers::mark_copy;
#[cfg(target_os = "linux")]
pub use merge::merge;
#[cfg(target_os = "linux")]
pub(crate) use remove::remove;
#[cfg(target_os = "linux")]
pub use remove::remove_folder;
#[cfg(target_os = "linux")]
pub use touched::{Touched, unhide};
#[cfg(target_os = "linux")]
pub(crate) use tree::{Folder, Tree, is_within_reach};
