//! The sandbox's own terminal, seen from outside: what is typed into it, how large it is.
//!
//! It is made inside, in the sandbox's own `devpts`, and its master is passed out. So the command has a terminal by a name
//! that it finds in its `/dev`, and no descriptor of the owner's terminal, or of the host's `devpts`, ever gets in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use crate::spec::WindowSize;

/// A sandbox's terminal. It can be used from another thread while the command runs.
#[derive(Clone, Debug)]
pub struct Terminal {
    master: Arc<OwnedFd>,
}

impl Terminal {
    pub(crate) fn new(master: OwnedFd) -> Self {
        Self {
            master: Arc::new(master),
        }
    }

    /// Sets its size; the foreground processes get SIGWINCH if that is another one.
    pub fn resize(&self, size: WindowSize) -> io::Result<()> {
        Ok(tcsetwinsize(&self.master, winsize(size))?)
    }

    /// Gives it the modes and control characters of another terminal.
    pub fn behave_like(&self, other: impl AsFd) -> io::Result<()> {
        let modes = tcgetattr(other)?;
        Ok(tcsetattr(&self.master, OptionalActions::Now, &modes)?)
    }

    /// Types; returns how many bytes were taken. `WouldBlock` if the command has to read first.
    pub fn type_in(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.master, bytes)?)
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

/// The size as the kernel takes it.
pub(crate) fn winsize(size: WindowSize) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}
