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
    /// More paths were changed than are looked at.
    #[error("the run changed more than {most} paths; what it wrote can only be thrown away")]
    TooMany {
        /// As many are looked at.
        most: usize,
    },
    /// Taking them over would lose something of the owner's. Nothing was taken over.
    #[error("{} cannot be taken over without losing something of yours; nothing was changed", many(.0.len()))]
    Conflicts(Vec<super::Change>),
    /// Nothing was changed at a path that was asked for.
    #[error("the run changed nothing at `{}`", path.display())]
    Unchanged {
        /// The path, relative to the workspace.
        path: PathBuf,
    },
    /// A change cannot be taken over without another one.
    #[error("`{}` cannot be taken over without `{}`, which the run made a folder", path.display(), first.display())]
    Needs {
        /// What was asked for.
        path: PathBuf,
        /// What it needs.
        first: PathBuf,
    },
    /// Something came between while changes were taken over. It can be done again.
    #[error("taking over stopped at `{}` after {done} of {all}", path.display())]
    Stopped {
        /// Where.
        path: PathBuf,
        /// So many were taken over.
        done: usize,
        /// Of so many.
        all: usize,
        /// What came between.
        #[source]
        source: io::Error,
    },
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

fn many(count: usize) -> String {
    if count == 1 {
        "1 change".to_owned()
    } else {
        format!("{count} changes")
    }
}
