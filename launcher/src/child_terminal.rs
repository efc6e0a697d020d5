//! How the sandbox's first process makes the command's terminal, and passes signals on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{tcgetpgrp, tcsetwinsize};

use crate::signal::Signal;
use crate::spec::WindowSize;
use crate::sys;

/// Both ends of a terminal.
pub(crate) struct Pair {
    /// What a terminal's program holds: the supervisor, and this process for asking who is in the foreground.
    pub(crate) master: OwnedFd,
    /// What the command gets. This process keeps it open, so that the supervisor's end is not told of a hang-up when the
    /// command closes its own for a while.
    pub(crate) slave: OwnedFd,
}

/// Makes a terminal in the sandbox's own `devpts`.
pub(crate) fn make(size: WindowSize) -> Result<Pair, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    tcsetwinsize(&master, crate::terminal::winsize(size))?;
    // By descriptor: whatever stands at a path cannot be taken for it.
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    // Above 2, where the command's standard streams are put.
    Ok(Pair {
        master: fcntl_dupfd_cloexec(&master, 3)?,
        slave: fcntl_dupfd_cloexec(&slave, 3)?,
    })
}

/// Makes a terminal this process's, which leads a session.
pub(crate) fn take(terminal: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::process::ioctl_tiocsctty(terminal)
}

/// Passes a signal to the command, as far as it is there.
///
/// With a terminal the processes in the foreground get it, as from a key. Without, the command's process group does, but
/// for SIGUSR1 and SIGUSR2, which mean something to the command only and would end a child that does not know them.
pub(crate) fn pass_on(signal: Signal, command: i32, terminal: Option<&Pair>) {
    let Some(command) = Pid::from_raw(command) else {
        return;
    };
    // The group exists as soon as the command leads a session of its own; before that, it alone is there.
    let to_group = |group: Pid, signal| {
        if kill_process_group(group, signal) == Err(Errno::SRCH) {
            let _ = kill_process(group, signal);
        }
    };
    let foreground = terminal.and_then(|pair| tcgetpgrp(pair.master.as_fd()).ok());
    let number = match signal {
        // A job in a terminal's own session is not stopped by SIGTSTP when nobody outside it could continue it.
        Signal::Stop => return sys::signal_all(libc::SIGSTOP),
        Signal::Continue => return sys::signal_all(libc::SIGCONT),
        Signal::HangUp => rustix::process::Signal::HUP,
        Signal::Interrupt => rustix::process::Signal::INT,
        Signal::Quit => rustix::process::Signal::QUIT,
        Signal::Terminate => rustix::process::Signal::TERM,
        Signal::User1 => rustix::process::Signal::USR1,
        Signal::User2 => rustix::process::Signal::USR2,
    };
    let is_for_all = matches!(signal, Signal::HangUp | Signal::Terminate);
    match foreground {
        Some(group) => {
            to_group(group, number);
            // The shell too, and not only what it runs at the moment.
            if is_for_all && group != command {
                to_group(command, number);
            }
        }
        None if matches!(signal, Signal::User1 | Signal::User2) => {
            let _ = kill_process(command, number);
        }
        None => to_group(command, number),
    }
    if is_for_all {
        // A stopped process would not act on it.
        sys::signal_all(libc::SIGCONT);
    }
}
