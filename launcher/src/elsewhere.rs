//! The launcher on systems that have no namespaces: it says so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{
    Brokered, Check, Doors, Error, Finished, Isolation, NetworkMode, Signal, Spec, Stream,
    WindowSize,
};

/// A sandbox that has been checked against the host. There is none on this system.
#[derive(Debug)]
pub struct Prepared {
    never: Never,
}

#[derive(Clone, Copy, Debug)]
enum Never {}

/// Refuses: the launcher needs Linux.
pub fn prepare(_spec: &Spec) -> Result<Prepared, Error> {
    Err(Error::Unsupported)
}

impl Prepared {
    /// What the caller should tell the owner.
    pub fn notes(&self) -> &[String] {
        match self.never {}
    }

    /// Where the command will start.
    pub fn workdir(&self) -> &Path {
        match self.never {}
    }

    /// The sandbox's home.
    pub fn home(&self) -> &Path {
        match self.never {}
    }

    /// What this sandbox does not keep apart from the machine.
    pub fn not_isolated(&self) -> &'static [&'static str] {
        match self.never {}
    }

    /// Hidden files of the workspace.
    pub fn hidden(&self) -> &[PathBuf] {
        match self.never {}
    }

    /// Builds the sandbox.
    pub fn start(self) -> Result<Started, Error> {
        match self.never {}
    }
}

/// A sandbox that stands. There is none on this system.
#[derive(Debug)]
pub struct Started {
    /// The run's listeners.
    pub doors: Option<Doors>,
    /// The run's connections, where it has no network of its own.
    pub brokered: Option<Brokered>,
    /// The command's standard input.
    pub input: Option<OwnedFd>,
    /// The sandbox's terminal.
    pub terminal: Option<Terminal>,
    never: Never,
}

impl Started {
    /// Lets the command start.
    pub fn release(&mut self) -> Result<(), Error> {
        match self.never {}
    }

    /// A way to end the sandbox from another thread.
    pub fn killer(&self) -> Killer {
        match self.never {}
    }

    /// Waits for the end.
    pub fn wait(self, _on_output: &mut dyn FnMut(Stream, &[u8])) -> Finished {
        match self.never {}
    }
}

/// Ends a sandbox from another thread.
#[derive(Clone, Debug)]
pub struct Killer {
    never: Never,
}

impl Killer {
    /// Ends everything in the sandbox.
    pub fn kill(&self) {
        match self.never {}
    }

    /// Passes a signal to the command.
    pub fn ask(&self, _signal: Signal) {
        match self.never {}
    }

    /// Asks the command to end, and ends it.
    pub fn end(&self, _signal: Signal, _grace: Duration) {
        match self.never {}
    }
}

/// A sandbox's terminal. There is none on this system.
#[derive(Clone, Debug)]
pub struct Terminal {
    never: Never,
}

impl Terminal {
    /// Sets its size.
    pub fn resize(&self, _size: WindowSize) -> io::Result<()> {
        match self.never {}
    }

    /// Gives it the modes of another terminal.
    pub fn behave_like(&self, _other: impl AsFd) -> io::Result<()> {
        match self.never {}
    }

    /// Types.
    pub fn type_in(&self, _bytes: &[u8]) -> io::Result<usize> {
        match self.never {}
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.never {}
    }
}

/// Does nothing: there is no sandbox whose input could be read.
pub fn ignore_background_reads() {}

/// There is nothing to make here.
///
/// # Errors
/// Always: the launcher needs Linux.
pub fn begin() -> Result<(), Error> {
    Err(Error::Unsupported)
}

/// There is nothing to make here.
pub fn expect() {}

/// Says that the launcher needs Linux.
pub fn doctor(_folder: &Path) -> Vec<Check> {
    vec![Check {
        name: "Linux",
        ok: false,
        optional: false,
        detail: "this is another system".into(),
        advice: Error::Unsupported.to_string(),
    }]
}

/// Removes a folder with what is in it.
pub fn remove_folder(folder: &std::path::Path) -> std::io::Result<()> {
    std::fs::remove_dir_all(folder)
}

/// What was asked for: nothing is tried here.
pub fn isolation_here(
    asked: Isolation,
    _: NetworkMode,
) -> Result<(Isolation, Option<String>), Error> {
    Ok((asked, None))
}

/// None: there is no launcher here.
pub fn limits_kept_by() -> Vec<(&'static str, &'static str)> {
    Vec::new()
}

/// What the check of a sandbox without namespaces is called.
pub const WITHOUT_NAMESPACES: &str = "sandbox without namespaces";
