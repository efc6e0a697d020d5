//! Sandboxes: namespaces, mounts, limits and the command that runs in them.

mod error;
mod spec;
mod start;

pub use error::Error;
pub use spec::{
    CaBundle, Limits, MadeUp, NetworkMode, Spec, Stdin, View, Workspace, WorkspaceMode,
};
pub use start::{Check, Doors, Finished, Killer, Prepared, Started, Stream, doctor, prepare};
