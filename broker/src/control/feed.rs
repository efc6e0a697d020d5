//! What happens in a run while it happens, kept for readers that come late or are slow.
//!
//! Milestones (a step began or ended) are never dropped; there are only so many. Output and requests are the flow: of
//! it the newest is kept, up to a bound, and a reader is told how much it missed. Nobody who writes waits for a reader.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The events of one run.
pub(super) struct Feed {
    kept: Mutex<Kept>,
    /// Changes with each event.
    news: watch::Sender<u64>,
}

#[derive(Default)]
struct Kept {
    next: u64,
    milestones: Vec<Entry>,
    flow: VecDeque<Entry>,
    /// Bytes of the flow.
    bytes: usize,
    /// Of the flow below this number nothing is kept.
    dropped_below: u64,
    is_over: bool,
}

/// One event.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) kind: &'static str,
    pub(super) data: Arc<str>,
}

/// How far a reader has come.
pub(super) struct Reader {
    feed: Arc<Feed>,
    next: u64,
    /// What was dropped below this number was told.
    told_below: u64,
    news: watch::Receiver<u64>,
}

/// What a reader finds.
pub(super) enum News {
    /// The next event.
    Event(Entry),
    /// So many events were dropped before they were read.
    Missed(u64),
    /// There is nothing any more.
    Over,
}

impl Feed {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            kept: Mutex::default(),
            news: watch::Sender::new(0),
        })
    }

    /// Adds an event that is never dropped.
    pub(super) fn milestone(&self, kind: &'static str, data: String) {
        let mut kept = self.lock();
        let entry = kept.entry(kind, data);
        kept.milestones.push(entry);
        self.tell(kept);
    }

    /// Adds an event of the flow.
    pub(super) fn flow(&self, kind: &'static str, data: String) {
        let mut kept = self.lock();
        kept.bytes += data.len() + OVERHEAD;
        let entry = kept.entry(kind, data);
        kept.flow.push_back(entry);
        while kept.bytes > MOST_BYTES
            && let Some(oldest) = kept.flow.pop_front()
        {
            kept.bytes -= oldest.data.len() + OVERHEAD;
            kept.dropped_below = oldest.number + 1;
        }
        self.tell(kept);
    }

    /// Nothing more happens.
    pub(super) fn end(&self) {
        let mut kept = self.lock();
        kept.is_over = true;
        self.tell(kept);
    }

    /// A reader of what comes after the event of this number, or of everything.
    pub(super) fn reader(self: &Arc<Self>, after: Option<u64>) -> Reader {
        let next = after.map_or(0, |after| after.saturating_add(1));
        Reader {
            feed: Arc::clone(self),
            next,
            told_below: next,
            news: self.news.subscribe(),
        }
    }

    fn tell(&self, kept: MutexGuard<'_, Kept>) {
        let next = kept.next;
        drop(kept);
        self.news.send_replace(next);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn entry(&mut self, kind: &'static str, data: String) -> Entry {
        let number = self.next;
        self.next += 1;
        Entry {
            number,
            kind,
            data: data.into(),
        }
    }

    /// The first event from a number on.
    fn from(&self, number: u64) -> Option<&Entry> {
        let milestone = self
            .milestones
            .partition_point(|entry| entry.number < number);
        let flow = self.flow.partition_point(|entry| entry.number < number);
        let both = self.milestones.get(milestone).into_iter();
        both.chain(self.flow.get(flow))
            .min_by_key(|entry| entry.number)
    }

    /// How much of the flow was dropped between two numbers.
    fn dropped(&self, from: u64, below: u64) -> u64 {
        let place = |number| {
            self.milestones
                .partition_point(|entry| entry.number < number)
        };
        let milestones = place(below).saturating_sub(place(from)) as u64;
        below.saturating_sub(from).saturating_sub(milestones)
    }
}

impl Reader {
    /// What comes next; waits until there is something.
    pub(super) async fn next(&mut self) -> News {
        loop {
            // Before looking, so that what comes meanwhile is seen.
            self.news.mark_unchanged();
            if let Some(found) = self.look() {
                return found;
            }
            if self.news.changed().await.is_err() {
                return News::Over;
            }
        }
    }

    fn look(&mut self) -> Option<News> {
        let kept = self.feed.lock();
        if self.told_below < kept.dropped_below {
            let missed = kept.dropped(self.told_below.max(self.next), kept.dropped_below);
            self.told_below = kept.dropped_below;
            if missed > 0 {
                return Some(News::Missed(missed));
            }
        }
        match kept.from(self.next) {
            Some(entry) => {
                let entry = entry.clone();
                self.next = entry.number + 1;
                Some(News::Event(entry))
            }
            None if kept.is_over => Some(News::Over),
            None => None,
        }
    }
}

/// How much of the flow of a run is kept.
const MOST_BYTES: usize = 2 * 1024 * 1024;

/// What an event takes beside its text.
const OVERHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(reader: &mut Reader) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            match reader.next().await {
                News::Event(entry) => found.push(entry.data.to_string()),
                News::Missed(count) => found.push(format!("missed {count}")),
                News::Over => return found,
            }
        }
    }

    #[tokio::test]
    async fn a_reader_that_comes_late_reads_everything_in_order() {
        let feed = Feed::new();
        feed.milestone("started", "one".into());
        feed.flow("output", "two".into());
        feed.milestone("ended", "three".into());
        feed.end();
        assert_eq!(all(&mut feed.reader(None)).await, ["one", "two", "three"]);
        assert_eq!(all(&mut feed.reader(Some(0))).await, ["two", "three"]);
        assert!(all(&mut feed.reader(Some(u64::MAX))).await.is_empty());
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_what_comes_while_it_waits() {
        let feed = Feed::new();
        let mut reader = feed.reader(None);
        let (found, ()) = tokio::join!(all(&mut reader), async {
            tokio::task::yield_now().await;
            feed.flow("output", "one".into());
            tokio::task::yield_now().await;
            feed.end();
        });
        assert_eq!(found, ["one"]);
    }

    #[tokio::test]
    async fn a_slow_reader_misses_only_flow_and_is_told_how_much() {
        let feed = Feed::new();
        feed.milestone("started", "began".into());
        let mut reader = feed.reader(None);
        for _ in 0..40 {
            feed.flow("output", "x".repeat(100_000));
            feed.milestone("ended", "mark".into());
        }
        feed.end();
        let found = all(&mut reader).await;
        let kept = found.iter().filter(|text| text.starts_with('x')).count();
        assert!(kept * 100_000 <= MOST_BYTES && kept > 10, "{kept}");
        assert_eq!(found.iter().filter(|text| *text == "mark").count(), 40);
        assert_eq!(found[0], format!("missed {}", 40 - kept));
        assert_eq!(found[1], "began");
        // The twin: a reader that keeps up misses nothing.
        let feed = Feed::new();
        let mut reader = feed.reader(None);
        for _ in 0..40 {
            feed.flow("output", "x".repeat(100_000));
            assert!(matches!(reader.next().await, News::Event(_)));
        }
    }
}
