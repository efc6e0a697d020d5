//! What supervisor and sandbox say to each other while the sandbox is built, and once at its end.
//!
//! The channel is a `SOCK_SEQPACKET` pair that the command never holds; every report is three numbers, every word a byte.

use rustix::io::Errno;

use crate::signal::Signal;

/// What the supervisor says to the sandbox's first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Go on with what comes next.
    Go,
    /// Pass a signal to the command. Before there is one, it ends the sandbox.
    Signal(Signal),
}

impl Word {
    /// The word as a byte.
    pub(crate) fn encode(self) -> [u8; 1] {
        match self {
            Self::Go => [0],
            Self::Signal(signal) => [signal.number() as u8],
        }
    }

    /// A word from a byte.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(Self::Go),
            [number] => Signal::from_number(i32::from(*number)).map(Self::Signal),
            _ => None,
        }
    }
}

/// A message from the sandbox's first processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The process exists, with this number, and waits for its user and the plan; a descriptor of it comes along.
    Born(i32, Place),
    /// The sandbox stands; descriptors come along.
    Ready,
    /// A step failed.
    Failed(Step, i32),
    /// The command could not be executed.
    NotExecuted(i32),
    /// The command ended, with this wait status.
    Ended(i32),
}

/// Which control group a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The one that was asked for.
    Asked,
    /// That of the process it was born of.
    Inherited,
}

/// A step of the set-up that is not an [`crate::plan::Op`], or the index of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An entry of the plan's operations.
    Op(u32),
    /// Opening an entry of the plan's sources.
    Source(u32),
    /// An entry of the plan's sources is not what it was.
    Exchanged(u32),
    /// Anything else.
    Other(Other),
}

/// The steps around the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Other {
    /// Closing what the supervisor had open.
    Descriptors = 0,
    /// Taking the unprivileged user.
    User = 1,
    /// Making mounts private.
    Private = 2,
    /// Mounting the new root.
    Root = 3,
    /// Changing to it.
    Pivot = 4,
    /// Bringing loopback up.
    Loopback = 5,
    /// Making every address local.
    Routes = 6,
    /// Installing the capture rules.
    Capture = 7,
    /// Making the listeners.
    Listeners = 8,
    /// The host's name.
    Name = 9,
    /// Making the first process.
    Init = 10,
    /// The command's working directory.
    Workdir = 11,
    /// The command's limits.
    Rlimits = 12,
    /// Giving up privileges.
    Privileges = 13,
    /// The system call filter.
    Filter = 14,
    /// Handing descriptors over.
    Handover = 15,
    /// Landlock's rules.
    Landlock = 16,
    /// The command's terminal.
    Terminal = 17,
    /// The filter whose questions the supervisor answers, where there are no namespaces.
    Asking = 18,
    /// Making the namespaces.
    Namespaces = 19,
    /// Giving the user namespace its users.
    Maps = 20,
}

const OTHERS: [Other; 21] = [
    Other::Descriptors,
    Other::User,
    Other::Private,
    Other::Root,
    Other::Pivot,
    Other::Loopback,
    Other::Routes,
    Other::Capture,
    Other::Listeners,
    Other::Name,
    Other::Init,
    Other::Workdir,
    Other::Rlimits,
    Other::Privileges,
    Other::Filter,
    Other::Handover,
    Other::Landlock,
    Other::Terminal,
    Other::Asking,
    Other::Namespaces,
    Other::Maps,
];

/// A message's length.
pub(crate) const LENGTH: usize = 12;

impl Report {
    /// The message as bytes.
    pub(crate) fn encode(self) -> [u8; LENGTH] {
        let (kind, first, second) = match self {
            Self::Born(pid, Place::Inherited) => (1, 0, pid),
            Self::Born(pid, Place::Asked) => (1, 1, pid),
            Self::Ready => (2, 0, 0),
            Self::Failed(Step::Op(index), errno) => (3, index, errno),
            Self::Failed(Step::Source(index), errno) => (4, index, errno),
            Self::Failed(Step::Exchanged(index), errno) => (5, index, errno),
            Self::Failed(Step::Other(other), errno) => (6, other as u32, errno),
            Self::NotExecuted(errno) => (7, 0, errno),
            Self::Ended(status) => (8, 0, status),
        };
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&u32::to_ne_bytes(kind));
        bytes[4..8].copy_from_slice(&first.to_ne_bytes());
        bytes[8..].copy_from_slice(&second.to_ne_bytes());
        bytes
    }

    /// A message from bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let kind = u32::from_ne_bytes(word(0));
        let first = u32::from_ne_bytes(word(4));
        let second = i32::from_ne_bytes(word(8));
        Some(match kind {
            1 if first == 0 => Self::Born(second, Place::Inherited),
            1 => Self::Born(second, Place::Asked),
            2 => Self::Ready,
            3 => Self::Failed(Step::Op(first), second),
            4 => Self::Failed(Step::Source(first), second),
            5 => Self::Failed(Step::Exchanged(first), second),
            6 => Self::Failed(Step::Other(*OTHERS.get(first as usize)?), second),
            7 => Self::NotExecuted(second),
            8 => Self::Ended(second),
            _ => return None,
        })
    }
}

/// A failed step with the kernel's answer.
pub(crate) type Stopped = (Step, Errno);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_wire() {
        for other in OTHERS {
            let report = Report::Failed(Step::Other(other), 13);
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        for report in [
            Report::Born(77, Place::Inherited),
            Report::Born(78, Place::Asked),
            Report::Ready,
            Report::Failed(Step::Op(7), 1),
            Report::NotExecuted(2),
            Report::Ended(-3),
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn a_word_survives_the_wire() {
        for signal in Signal::ALL {
            let word = Word::Signal(signal);
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
        assert_eq!(Word::decode(&Word::Go.encode()), Some(Word::Go));
        // Nothing, an unknown signal, too much.
        for junk in [&[][..], &[9], &[0, 0]] {
            assert_eq!(Word::decode(junk), None);
        }
    }

    #[test]
    fn junk_is_no_report() {
        assert_eq!(Report::decode(&[9; LENGTH]), None);
        assert_eq!(Report::decode(&[]), None);
    }
}
