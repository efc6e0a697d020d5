//! Why changes were not shown, taken over or thrown away.

use std::io;
use std::path::{Path, PathBuf};

/// Why changes were not shown, taken over or thrown away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run is still going on, or another command is at its changes.
    #[error(
        "the changes of this run are in use: it is still going on, or another command is at them"
    )]
    InUse,
    /// The run had no workspace whose changes are kept.
    #[error("this run kept no changes: its workspace was not an overlay")]
    NotKept,
    /// The workspace is no longer the folder that the run saw.
    #[error("the workspace `{}`: {why}", path.display())]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// What became of it.
        why: String,
    },
    /// What is written down about the run cannot be read.
    #[error("`{}` does not say what a run's record says: {why}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The machine did not do it.
    #[error("{what} `{}`", path.display())]
    Machine {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// The machine did not do it.
    pub(crate) fn machine(what: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Machine {
            what,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
