//! The one thread that writes lines: everything that waits goes out in one write.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sdk::audit::{Event, EventKind};

use super::checkpoint::{Checkpoint, EpochKey, Signer};
use super::line::{Body, Chain, Stamp};
use super::medium::Laying;
use super::queue::{Answer, Command, Queue};
use super::segment::Segment;
use super::{AuditUnavailable, Opening};

/// The writer of one segment.
pub(crate) struct Writer {
    opening: Opening,
    name: String,
    queue: Arc<Queue>,
    laying: Laying,
    /// The keys of a segment that the store knows but that has no file yet.
    begun: Option<(EpochKey, Signer)>,
    open: Option<Open>,
    /// Events nobody waits for that could not be written yet.
    kept: VecDeque<Body>,
    /// How many events were given up because too many were kept.
    lost: u64,
    buffer: Vec<u8>,
}

/// A segment that has its file.
struct Open {
    segment: Segment,
    chain: Chain,
    epoch: u64,
    key: EpochKey,
    signer: Signer,
    /// The lines since the last checkpoint.
    unsigned: u64,
    /// Whether the store knows the head.
    is_recorded: bool,
}

impl Writer {
    pub(crate) fn new(opening: Opening, name: String, queue: Arc<Queue>, laying: Laying) -> Self {
        Self {
            opening,
            name,
            queue,
            laying,
            begun: None,
            open: None,
            kept: VecDeque::new(),
            lost: 0,
            buffer: Vec::with_capacity(64 * 1024),
        }
    }

    /// Writes until the queue says to close.
    pub(crate) fn run(mut self) {
        let mut batch = VecDeque::with_capacity(BATCH);
        loop {
            self.queue.take(BATCH, self.patience(), &mut batch);
            let is_idle = batch.is_empty();
            let mut events = Vec::with_capacity(batch.len());
            let mut flushes = Vec::new();
            let mut is_closing = false;
            for command in batch.drain(..) {
                match command {
                    Command::Append(event, answer) => events.push((event, Some(answer))),
                    Command::Note(event) => events.push((event, None)),
                    Command::Flush(answer) => flushes.push(answer),
                    Command::Close => is_closing = true,
                }
            }
            self.write(events);
            let is_due = self.open.as_ref().is_some_and(|open| {
                open.unsigned >= LINES_PER_CHECKPOINT || (is_idle && open.unsigned > 0)
            });
            if is_due || is_closing || !flushes.is_empty() {
                let result = self.sign();
                for answer in flushes {
                    // Whoever asked may have gone.
                    let _ = answer.send(result);
                }
            }
            if is_closing {
                self.close();
                return;
            }
        }
    }

    /// How long to sleep when nothing waits: for ever, unless something is left to do.
    fn patience(&self) -> Option<Duration> {
        let is_unfinished = !self.kept.is_empty()
            || self
                .open
                .as_ref()
                .is_some_and(|open| open.unsigned > 0 || !open.is_recorded);
        is_unfinished.then_some(IDLE)
    }

    /// Writes a batch of events, oldest first, and answers those who wait.
    fn write(&mut self, events: Vec<(Body, Option<Answer>)>) {
        if events.is_empty() && self.kept.is_empty() && self.lost == 0 {
            return;
        }
        let result = self.try_write(&events);
        let appended = events.iter().filter(|(_, answer)| answer.is_some()).count();
        if result.is_ok() {
            self.kept.clear();
            self.lost = 0;
        }
        for (event, answer) in events {
            match answer {
                Some(answer) => {
                    // Whoever asked may have gone.
                    let _ = answer.send(result);
                }
                None if result.is_err() => self.keep(event),
                None => {}
            }
        }
        self.queue.release(appended);
    }

    fn try_write(&mut self, events: &[(Body, Option<Answer>)]) -> Result<(), AuditUnavailable> {
        let lost = self.lost;
        self.ensure_open()?;
        let Some(open) = self.open.as_mut() else {
            return Err(AuditUnavailable);
        };
        let now = Stamp::new(Timestamp::now()).map_err(unavailable)?;
        let mut chain = open.chain;
        self.buffer.clear();
        let all = self
            .kept
            .iter()
            .chain(events.iter().map(|(event, _)| event));
        for event in all {
            chain.push(event, &now, &mut self.buffer);
        }
        if lost > 0 {
            let mut event = Event::new(EventKind::LogRepaired);
            event.detail = Some(format!("{lost} final records could not be kept"));
            let event = Body::new(&event).map_err(unavailable)?;
            chain.push(&event, &now, &mut self.buffer);
        }
        open.append(&self.buffer, chain)
    }

    /// Makes the segment with the first event. Tried again with the next one if it fails.
    fn ensure_open(&mut self) -> Result<(), AuditUnavailable> {
        if self.open.is_some() {
            return Ok(());
        }
        if self.begun.is_none() {
            let begun = self.opening.store.begin_segment(&self.name);
            self.begun = Some(begun.map_err(unavailable)?);
        }
        let Opening {
            folder, durability, ..
        } = &self.opening;
        let segment =
            Segment::create(folder, &self.name, *durability, &self.laying).map_err(unavailable)?;
        self.open = self.begun.take().map(|(key, signer)| Open {
            segment,
            chain: Chain::start(&self.name),
            epoch: 0,
            key,
            signer,
            unsigned: 0,
            is_recorded: true,
        });
        Ok(())
    }

    fn keep(&mut self, event: Body) {
        if self.kept.len() < KEPT {
            self.kept.push_back(event);
        } else {
            self.lost += 1;
        }
    }

    /// Writes a checkpoint and records the head. Nothing to sign is no error, lines that cannot be written are.
    fn sign(&mut self) -> Result<(), AuditUnavailable> {
        if !self.kept.is_empty() || self.lost > 0 {
            return Err(AuditUnavailable);
        }
        let Some(open) = self.open.as_mut() else {
            return Ok(());
        };
        if open.unsigned > 0 {
            open.sign(&self.name, &mut self.buffer)?;
        }
        self.opening
            .store
            .record_head(&self.name, &open.chain)
            .map_err(unavailable)?;
        open.is_recorded = true;
        Ok(())
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take()
            && self.kept.is_empty()
            && let Err(error) = self.opening.store.close_segment(&self.name, &open.chain)
        {
            // It stays open in the store, so the next process repairs it.
            tracing::warn!(%error, "the audit segment could not be closed");
        }
    }
}

impl Open {
    /// Appends lines that lead to a chain.
    fn append(&mut self, lines: &[u8], chain: Chain) -> Result<(), AuditUnavailable> {
        self.segment.append(lines).map_err(unavailable)?;
        self.unsigned += chain.seq - self.chain.seq;
        self.chain = chain;
        self.is_recorded = false;
        Ok(())
    }

    fn sign(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<(), AuditUnavailable> {
        let line = Checkpoint::sign(name, &self.chain, self.epoch, &mut self.key, &self.signer);
        // The key is used up even if the line does not come to stand: an epoch is never signed twice.
        self.epoch += 1;
        let mut chain = self.chain;
        buffer.clear();
        let line = Body::new(&line).map_err(unavailable)?;
        let now = Stamp::new(Timestamp::now()).map_err(unavailable)?;
        chain.push(&line, &now, buffer);
        self.append(buffer, chain)?;
        self.unsigned = 0;
        Ok(())
    }
}

fn unavailable(error: impl std::fmt::Display) -> AuditUnavailable {
    tracing::error!(%error, "the audit log cannot be written");
    AuditUnavailable
}

/// The most commands taken at once: enough for one write to serve all that wait, little enough to bound the buffer.
const BATCH: usize = 1024;

/// A crash leaves at most this many lines, and at most [`IDLE`], after the last signature.
const LINES_PER_CHECKPOINT: u64 = 1024;

/// How long after the last line of a burst it is signed; also how soon a write that failed is tried again.
const IDLE: Duration = Duration::from_secs(1);

/// The most events kept while the log cannot be written. Each belongs to a request that had begun.
const KEPT: usize = 65_536;
