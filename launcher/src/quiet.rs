//! Commands that end before they say anything or come near a limit: nobody else is needed to wait for them.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::start::Started;
use crate::watch::{Watch, time};

impl Started {
    /// Waits until the command has ended, and then is `true`, or until it has said something, or a limit is to be looked
    /// at.
    pub(crate) fn ends_quietly(&self, watch: &Watch) -> bool {
        if self.terminal.is_some() {
            // Who sits there waits for each word.
            return false;
        }
        let until = Instant::now() + watch.first_look(self);
        // Closed by a command that goes on, they would be ready for ever.
        let mut is_open = [true; 2];
        loop {
            let mut waiting = vec![PollFd::new(&*self.running.pidfd, PollFlags::IN)];
            let alarms = watch.alarms();
            waiting.extend(alarms.map(|(alarm, event)| PollFd::from_borrowed_fd(alarm, event)));
            let streams = waiting.len();
            let open = self.output.iter().zip(is_open).filter(|(_, open)| *open);
            waiting.extend(open.map(|(stream, _)| PollFd::new(stream, PollFlags::IN)));
            let left = until.saturating_duration_since(Instant::now());
            // An interrupted wait is a short one.
            let _ = poll(&mut waiting, Some(&time(left)));
            if !waiting[0].revents().is_empty() {
                return true;
            }
            let has_spoken = waiting[streams..]
                .iter()
                .any(|stream| stream.revents().contains(PollFlags::IN));
            let is_alarmed = waiting[1..streams]
                .iter()
                .any(|alarm| !alarm.revents().is_empty());
            if has_spoken || is_alarmed || left == Duration::ZERO {
                return false;
            }
            let mut seen = waiting[streams..].iter();
            for open in is_open.iter_mut().filter(|open| **open) {
                *open = seen.next().is_none_or(|stream| stream.revents().is_empty());
            }
        }
    }
}
