//! The system calls that the supervisor makes in the command's place, one after another.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::connect::Connections;
use super::metadata;
use crate::sys::{self, Question};

/// One that waits for an answer. What it points to may change at any time: everything is read once, and what was read
/// is what is done.
pub(super) struct Asked<'a> {
    pub(super) filter: BorrowedFd<'a>,
    pub(super) question: Question,
}

/// Answers questions until nobody is left who could ask.
pub(super) fn answer_all(filter: &OwnedFd, mut connections: Connections, writable: &[PathBuf]) {
    loop {
        let mut waiting = [PollFd::new(filter, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let seen = waiting[0].revents();
        if !seen.contains(PollFlags::IN) {
            return;
        }
        // Nobody asks any more: it was killed meanwhile.
        let Ok(question) = sys::next_question(filter.as_fd()) else {
            continue;
        };
        let asked = Asked {
            filter: filter.as_fd(),
            question,
        };
        let answer = if question.number == libc::SYS_connect {
            connections.connect(&asked)
        } else {
            metadata::change(&asked, writable)
        };
        let answer = answer.err().map_or(0, Errno::raw_os_error);
        // Who is gone needs none.
        let _ = sys::answer_question(filter.as_fd(), question.id, answer);
    }
}

impl Asked<'_> {
    /// An argument as the kernel takes an `int`: its low half.
    pub(super) fn int(&self, index: usize) -> i32 {
        self.question.arguments[index] as u32 as i32
    }

    /// Fills `bytes` from the memory of the one who asks, as far as there is some. How much was filled.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let path = format!("/proc/{}/mem", self.question.thread);
        let memory = File::open(path).map_err(|error| {
            Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EPERM))
        })?;
        // The number could be another process's by now, had this one ended before the file was opened.
        self.check()?;
        memory.read_at(bytes, address).map_err(|_| Errno::FAULT)
    }

    /// A text of theirs that ends with a NUL.
    pub(super) fn text(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; PATH_MAX];
        let length = self.read(address, &mut bytes)?;
        bytes.truncate(length);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.ok_or(Errno::NAMETOOLONG)?);
        Ok(bytes)
    }

    /// Something of theirs in `/proc`, such as `fd/3`.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.question.thread))
    }

    /// Fails if the one who asked is gone.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if sys::still_asks(self.filter, self.question.id) {
            Ok(())
        } else {
            Err(Errno::SRCH)
        }
    }
}

const PATH_MAX: usize = 4096;
