//! The audit log: nothing leaves and nothing is answered before its line stands here.
//!
//! Each process writes one segment of its own (`audit/NAME.jsonl` in the state folder), so that processes never wait
//! for each other. Within a segment every line holds the hash of the line before; `line.rs` says how, `checkpoint.rs`
//! says how the chain is signed, and the store keeps how far each segment had come.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sdk::RunId;
use sdk::audit::Event;
use tokio::sync::oneshot;

use crate::store::Store;
use crate::{Durability, Error, random};

mod checkpoint;
mod event;
mod line;
mod medium;
mod queue;
mod read;
mod repair;
mod segment;
mod show;
mod tap;
mod verify;
mod writer;

pub use show::Record;
pub use tap::Ear;
pub use verify::{Finding, Problem, Verification};

pub(crate) use checkpoint::{EpochKey, Signer, VerificationKey};
pub(crate) use line::{Body, Chain};
pub(crate) use repair::repair;
pub(crate) use segment::is_abandoned;
pub(crate) use show::show;
pub(crate) use verify::verify;

use medium::Laying;
use queue::{Command, Queue};
use tap::{Heard, Taps};
use writer::Writer;

/// The line of an event could not be made durable, so what it is about must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct AuditUnavailable;

/// The segment of this process.
///
/// The segment's file is made with the first event: a process that has nothing to say leaves no file.
pub struct Audit {
    queue: Arc<Queue>,
    name: String,
    patience: Duration,
    taps: Taps,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a writer needs to know.
pub(crate) struct Opening {
    /// The `audit` folder.
    pub(crate) folder: PathBuf,
    /// Where heads and keys are kept.
    pub(crate) store: Arc<Store>,
    /// What "durable" means.
    pub(crate) durability: Durability,
}

impl Audit {
    /// Starts the writer of this process.
    pub(crate) fn open(opening: Opening) -> Result<Self, Error> {
        Self::open_with(opening, CAPACITY, PATIENCE, medium::file())
    }

    fn open_with(
        opening: Opening,
        capacity: usize,
        patience: Duration,
        laying: Laying,
    ) -> Result<Self, Error> {
        let millis = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let name = format!("{millis:013}-{:016x}", random::number()?);
        let queue = Arc::new(Queue::new(capacity));
        let writer = Writer::new(opening, name.clone(), Arc::clone(&queue), laying);
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run())
            .map_err(Error::Thread)?;
        Ok(Self {
            queue,
            name,
            patience,
            taps: Taps::default(),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The name of this process's segment.
    pub fn segment(&self) -> &str {
        &self.name
    }

    /// Writes an event and returns once it is durable.
    ///
    /// # Errors
    /// [`AuditUnavailable`] if it cannot be written, or not within a bounded time. The caller must then not do what the
    /// event says. The line may still appear later.
    pub fn append(
        &self,
        event: &Event,
    ) -> impl Future<Output = Result<(), AuditUnavailable>> + use<'_> {
        // Written out at once, so that nothing is copied and what waits for it stays small.
        let body = Body::of(event);
        let heard = self.taps.ear(event);
        self.bounded(async {
            let body = body.map_err(|error| unwritten(&error))?;
            flatten(self.queue.append(body).await.await)?;
            heard.into_iter().for_each(Heard::tell);
            Ok(())
        })
    }

    /// Queues an event that says how something ended whose beginning was [appended](Self::append).
    ///
    /// It is kept until it can be written. What has no beginning on record is appended instead, so that a flood of it
    /// is slowed down.
    pub fn note(&self, event: &Event) {
        match Body::of(event) {
            Ok(body) => {
                self.queue.push(Command::Note(body));
                self.taps.ear(event).into_iter().for_each(Heard::tell);
            }
            Err(error) => {
                unwritten(&error);
            }
        }
    }

    /// Has an ear hear of a run's events, in the place of the one that heard of them before.
    pub fn tap(&self, run: &RunId, ear: Ear) {
        self.taps.add(run, ear);
    }

    /// Nobody hears of a run's events any more.
    pub fn untap(&self, run: &RunId) {
        self.taps.remove(run);
    }

    /// Returns once everything queued before is durable, signed, and its head is in the store.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn flush(&self) -> Result<(), AuditUnavailable> {
        let (answer, answered) = oneshot::channel();
        self.queue.push(Command::Flush(answer));
        self.bounded(async { flatten(answered.await) }).await
    }

    /// Writes what is queued and closes the segment for good.
    pub fn close(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            self.queue.push(Command::Close);
            // A writer that panicked has dropped its answers: those who waited know.
            if thread.join().is_err() {
                tracing::error!("the audit writer panicked");
            }
        }
    }

    async fn bounded(
        &self,
        answer: impl Future<Output = Result<(), AuditUnavailable>>,
    ) -> Result<(), AuditUnavailable> {
        tokio::time::timeout(self.patience, answer)
            .await
            .unwrap_or(Err(AuditUnavailable))
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.close();
    }
}

/// An event that is not JSON. None of ours can be so.
fn unwritten(error: &serde_json::Error) -> AuditUnavailable {
    tracing::error!(%error, "an audit event cannot be written out");
    AuditUnavailable
}

/// An answer that was dropped means that there is no writer any more.
fn flatten(
    answer: Result<Result<(), AuditUnavailable>, oneshot::error::RecvError>,
) -> Result<(), AuditUnavailable> {
    answer.unwrap_or(Err(AuditUnavailable))
}

/// How many events may wait with somebody waiting for them; then callers wait for room.
const CAPACITY: usize = 4096;

/// How long a caller waits before its request is refused. A hung disk must not hang every run for good.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
