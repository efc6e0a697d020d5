//! What waits to be written: bounded for those who can wait, and never dropped.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sdk::audit::Event;
use tokio::sync::{Semaphore, oneshot};

use super::AuditUnavailable;

/// Tells the one who waits that the line stands, or that it does not.
pub(crate) type Answer = oneshot::Sender<Result<(), AuditUnavailable>>;

/// One thing for the writer to do.
pub(crate) enum Command {
    /// Write an event and answer once it is durable.
    Append(Box<Event>, Answer),
    /// Write an event; nobody waits.
    Note(Box<Event>),
    /// Answer once everything before is durable and the head is recorded.
    Flush(Answer),
    /// Write everything before, close the segment and stop.
    Close,
}

/// The queue between those who write events and the thread that writes lines.
pub(crate) struct Queue {
    waiting: Mutex<VecDeque<Command>>,
    wake: Condvar,
    /// One permit for each event that may wait with somebody waiting for it.
    room: Semaphore,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            waiting: Mutex::new(VecDeque::new()),
            wake: Condvar::new(),
            room: Semaphore::new(capacity),
        }
    }

    /// Queues an event, once there is room, and returns what will hold the answer.
    pub(crate) async fn append(
        &self,
        event: Event,
    ) -> oneshot::Receiver<Result<(), AuditUnavailable>> {
        let (answer, answered) = oneshot::channel();
        // The semaphore is never closed. If it were, the answer would be dropped, which reads as unavailable.
        if let Ok(permit) = self.room.acquire().await {
            permit.forget();
            self.push(Command::Append(Box::new(event), answer));
        }
        answered
    }

    /// Queues a command that takes no room.
    pub(crate) fn push(&self, command: Command) {
        let mut waiting = self.lock();
        waiting.push_back(command);
        // The writer sleeps only when the queue is empty.
        if waiting.len() == 1 {
            self.wake.notify_one();
        }
    }

    /// Takes what waits, up to a number; waits for something if nothing does, at most for the time given.
    pub(crate) fn take(
        &self,
        most: usize,
        patience: Option<Duration>,
        batch: &mut VecDeque<Command>,
    ) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            waiting = match patience {
                Some(time) => {
                    self.wake
                        .wait_timeout_while(waiting, time, |waiting| waiting.is_empty())
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .wake
                    .wait_while(waiting, |waiting| waiting.is_empty())
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
        let count = waiting.len().min(most);
        batch.extend(waiting.drain(..count));
    }

    /// Makes room for as many events as were answered.
    pub(crate) fn release(&self, count: usize) {
        self.room.add_permits(count);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Command>> {
        // A queue is whole after each of its operations, so a panic elsewhere does not spoil it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
