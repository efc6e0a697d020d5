//! What waits to be written: bounded for those who can wait, and never dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::AuditUnavailable;
use super::line::Body;

/// Tells the one who waits that the line stands, or that it does not.
pub(crate) type Answer = oneshot::Sender<Result<(), AuditUnavailable>>;

/// One thing for the writer to do.
pub(crate) enum Command {
    /// Write an event and answer once it is durable.
    Append(Body, Answer),
    /// Write an event; nobody waits.
    Note(Body),
    /// Answer once everything before is durable and the head is recorded.
    Flush(Answer),
    /// Write everything before, close the segment and stop.
    Close,
}

/// The queue between those who write events and the thread that writes lines.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    /// One permit for each event that may wait with somebody waiting for it.
    room: Semaphore,
}

#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    /// Whether the writer sleeps for long, and has to be woken even for what nobody waits for.
    is_asleep: bool,
    /// Whether somebody is about to wake the writer.
    is_rung: bool,
}

/// Wakes the writer when it is dropped, so that no end of a task or a runtime leaves the queue unwritten.
struct Bell(Arc<Queue>);

impl Queue {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            room: Semaphore::new(capacity),
        }
    }

    /// Queues an event, once there is room, and returns what will hold the answer.
    ///
    /// A wake-up costs more than a line, so the writer is woken only after the other tasks that can go on have done so:
    /// their events go out in the same write.
    pub(crate) async fn append(
        self: &Arc<Self>,
        event: Body,
    ) -> oneshot::Receiver<Result<(), AuditUnavailable>> {
        let (answer, answered) = oneshot::channel();
        // The semaphore is never closed. If it were, the answer would be dropped, which reads as unavailable.
        if let Ok(permit) = self.room.acquire().await {
            permit.forget();
            let is_first = {
                let mut waiting = self.lock();
                waiting.commands.push_back(Command::Append(event, answer));
                !std::mem::replace(&mut waiting.is_rung, true)
            };
            if is_first {
                let bell = Bell(Arc::clone(self));
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(bell);
                });
            }
        }
        answered
    }

    /// Queues a command that takes no room.
    pub(crate) fn push(&self, command: Command) {
        let mut waiting = self.lock();
        let is_urgent = match &command {
            Command::Append(..) | Command::Flush(_) | Command::Close => true,
            // It goes out with the next line that somebody waits for, or when the writer looks.
            Command::Note(_) => waiting.is_asleep,
        };
        waiting.commands.push_back(command);
        if is_urgent {
            waiting.is_asleep = false;
            // Woken under the lock, the writer would only wait for the lock.
            drop(waiting);
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
        if waiting.commands.is_empty() {
            // Notes ring no bell while work goes on: for a while, it is looked whether there are any.
            waiting = self
                .wake
                .wait_timeout(waiting, NOTES)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if waiting.commands.is_empty() {
            waiting.is_asleep = true;
            let is_empty = |waiting: &mut Waiting| waiting.commands.is_empty();
            waiting = match patience {
                Some(time) => {
                    self.wake
                        .wait_timeout_while(waiting, time, is_empty)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .wake
                    .wait_while(waiting, is_empty)
                    .unwrap_or_else(PoisonError::into_inner),
            };
            waiting.is_asleep = false;
        }
        let count = waiting.commands.len().min(most);
        batch.extend(waiting.commands.drain(..count));
    }

    /// Makes room for as many events as were answered.
    pub(crate) fn release(&self, count: usize) {
        self.room.add_permits(count);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A queue is whole after each of its operations, so a panic elsewhere does not spoil it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_rung = false;
        let is_wanted = !waiting.commands.is_empty();
        drop(waiting);
        if is_wanted {
            self.0.wake.notify_one();
        }
    }
}

/// How long what nobody waits for may stay unwritten while the writer is awake.
const NOTES: Duration = Duration::from_millis(5);
