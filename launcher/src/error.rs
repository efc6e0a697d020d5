//! Why a sandbox was not built.

use std::io;
use std::path::PathBuf;

/// Why a sandbox was not built. Nothing of the command ran.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The view or the command cannot be as the policy or the caller asked.
    #[error("{what} `{}`: {why}", path.display())]
    View {
        /// Which part of the view.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The request itself makes no sense.
    #[error("{0}")]
    Request(String),
    /// The machine does not let the sandbox be built as declared.
    #[error("the sandbox could not be built: {part}: {advice}")]
    Machine {
        /// Which part.
        part: String,
        /// What to do.
        advice: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel laid no overlay over the workspace. With the reason as [`crate::Spec::no_overlay`] the same command works
    /// on a copy.
    #[error("no overlay can be laid over the workspace: {why}")]
    NoOverlay {
        /// Why, as far as the kernel said it.
        why: String,
    },
    /// The launcher does not run on this system.
    #[error(
        "the launcher needs Linux: run the command in a container or a virtual machine, with the proxy beside it"
    )]
    Unsupported,
    /// A fault of the launcher.
    #[error("a fault of the launcher: {0}")]
    Fault(String),
}
