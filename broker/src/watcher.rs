//! Ends runs whose time is over, or that another process has ended.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use sdk::audit::{Event, EventKind};
use tokio::time::Instant;

use crate::live::Live;
use crate::store::{Store, Watch};
use crate::token::Keyring;
use crate::{Audit, Error, Run};

/// The thread that watches; it stops when this is dropped.
pub(crate) struct Watcher {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What is watched.
pub(crate) struct Watched {
    pub(crate) live: Arc<Live>,
    pub(crate) store: Arc<Store>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) audit: Arc<Audit>,
}

impl Watcher {
    /// Starts to watch.
    pub(crate) fn start(watched: Watched) -> Result<Self, Error> {
        let mut watch = Watch::new(Arc::clone(&watched.store))?;
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || {
                let mut failures = 0;
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    match watched.look(&mut watch) {
                        Ok(()) => failures = 0,
                        Err(error) => {
                            failures += 1;
                            tracing::warn!(%error, "the state cannot be read");
                        }
                    }
                    if failures >= MOST_FAILURES {
                        watched.end_all();
                    }
                }
            })
            .map_err(Error::Thread)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the watcher panicked");
        }
    }
}

impl Watched {
    fn look(&self, watch: &mut Watch) -> Result<(), Error> {
        let now = Instant::now();
        for run in self.live.all() {
            if now >= run.deadline {
                self.end(&run, "its time is over")?;
            }
        }
        self.live.forget(now);
        if let Some(version) = watch.changed()? {
            for run in self.live.all() {
                let is_active = self
                    .store
                    .run(run.id())?
                    .is_some_and(|stored| stored.ended.is_none());
                // Whoever ended it has written that down.
                if !is_active {
                    self.live.end(&run);
                }
            }
            self.keyring.reload()?;
            watch.seen(version);
        }
        Ok(())
    }

    fn end(&self, run: &Run, why: &str) -> Result<(), Error> {
        if self.live.end(run) {
            let now = Timestamp::now().as_millisecond();
            self.audit.note(&ended(run, why));
            self.store.end_run(run.id(), now, self.audit.segment())?;
        }
        Ok(())
    }

    /// Nobody can tell any more whether the owner ended a run, so all of them end.
    fn end_all(&self) {
        for run in self.live.all() {
            if self.live.end(&run) {
                self.audit.note(&ended(&run, "the state cannot be read"));
            }
        }
    }
}

/// The record of a run's end.
pub(crate) fn ended(run: &Run, why: &str) -> Event {
    let mut event = Event::new(EventKind::RunEnded);
    event.run = Some(run.id().clone());
    event.policy = Some(run.policy().digest().to_string().into());
    event.detail = Some(why.to_owned());
    event
}

/// An end by another process is seen within a second, with room to spare.
const PERIOD: Duration = Duration::from_millis(250);

/// After so many looks that failed, some five seconds, no revocation can be promised.
const MOST_FAILURES: u32 = 20;
