//! What the kernel tells of a group at once, so that nobody has to ask.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::event::PollFlags;

use crate::cgroup::Cgroup;

/// Descriptors that are ready when a limit of a group was reached.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    memory: Option<OwnedFd>,
    processes: Option<File>,
}

impl Alarms {
    /// Those that the group has. From now on; what was counted before is not told.
    pub(crate) fn of(group: Option<&Cgroup>) -> Self {
        let alarms = Self {
            memory: group.and_then(Cgroup::memory_alarm),
            processes: group.and_then(Cgroup::processes_alarm),
        };
        alarms.hush();
        alarms
    }

    /// What to wait for.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let memory = self.memory.iter().map(|it| (it.as_fd(), PollFlags::IN));
        let processes = self.processes.iter().map(|it| (it.as_fd(), PollFlags::PRI));
        memory.chain(processes)
    }

    /// Makes them ready for the next time only.
    pub(crate) fn hush(&self) {
        if let Some(counter) = &self.memory {
            let _ = rustix::io::read(counter, &mut [0_u8; 8]);
        }
        // A file of the group is ready until it was read again.
        if let Some(file) = &self.processes {
            let _ = file.read_at(&mut [0_u8; 256], 0);
        }
    }
}
