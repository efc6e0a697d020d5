//! The signals that can be passed to a command, and how long it gets to act on one that asks it to end.

use std::time::Duration;

/// A signal for the command in a sandbox, passed by [`crate::Killer::ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP.
    HangUp,
    /// SIGINT.
    Interrupt,
    /// SIGQUIT.
    Quit,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
    /// SIGTERM.
    Terminate,
    /// SIGSTOP, to every process of the sandbox.
    Stop,
    /// SIGCONT, to every process of the sandbox.
    Continue,
}

/// How long a command that reached a limit, or whose run is over, may go on after it was asked to end.
pub const GRACE: Duration = Duration::from_secs(2);

impl Signal {
    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::HangUp,
        Self::Interrupt,
        Self::Quit,
        Self::User1,
        Self::User2,
        Self::Terminate,
        Self::Stop,
        Self::Continue,
    ];

    /// The signal of a number of Linux.
    pub fn from_number(number: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|signal| signal.number() == number)
    }

    /// Its number on Linux.
    pub fn number(self) -> i32 {
        match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::User1 => 10,
            Self::User2 => 12,
            Self::Terminate => 15,
            Self::Continue => 18,
            Self::Stop => 19,
        }
    }
}
