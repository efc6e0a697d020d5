//! Who hears of a run's events once they are on record: nobody, most of the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use sdk::RunId;
use sdk::audit::Event;

/// Hears of events. It must not wait for anything: it is called where requests are carried.
pub type Ear = Arc<dyn Fn(&Event) + Send + Sync>;

/// The ears of the runs that have one.
#[derive(Default)]
pub(super) struct Taps {
    ears: DashMap<RunId, Ear>,
    /// How many there are, so that a process without any loses no time.
    count: AtomicUsize,
}

impl Taps {
    pub(super) fn add(&self, run: &RunId, ear: Ear) {
        if self.ears.insert(run.clone(), ear).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn remove(&self, run: &RunId) {
        if self.ears.remove(run).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The ear for an event, with a copy of the event, if its run has one.
    pub(super) fn ear(&self, event: &Event) -> Option<Heard> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let ear = self.ears.get(event.run.as_ref()?)?;
        Some(Heard {
            ear: Arc::clone(&ear),
            event: Box::new(event.clone()),
        })
    }
}

/// An event that is to be told.
pub(super) struct Heard {
    ear: Ear,
    event: Box<Event>,
}

impl Heard {
    pub(super) fn tell(self) {
        (self.ear)(&self.event);
    }
}
