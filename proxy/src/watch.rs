//! Whether a connection has been silent for too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::ProxyLimits;

/// What happened on a connection, and when. Shared by those who cause it and the one who watches.
#[derive(Clone)]
pub(crate) struct Activity(Arc<Seen>);

struct Seen {
    start: Instant,
    /// When a byte last passed, in milliseconds from the start.
    last: AtomicU64,
    /// When a request's header began to come, or 0.
    header_since: AtomicU64,
    /// Requests that are being carried.
    carried: AtomicU32,
}

/// One request that is being carried; the connection is not idle while this lives.
pub(crate) struct Carried(Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Seen {
            start: Instant::now(),
            last: AtomicU64::new(0),
            header_since: AtomicU64::new(0),
            carried: AtomicU32::new(0),
        }))
    }

    pub(crate) fn received(&self) {
        let now = self.now();
        self.0.last.store(now, Ordering::Relaxed);
        if self.0.carried.load(Ordering::Relaxed) == 0 {
            let _ =
                self.0
                    .header_since
                    .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    pub(crate) fn sent(&self) {
        self.0.last.store(self.now(), Ordering::Relaxed);
    }

    /// A request's header is complete.
    pub(crate) fn carry(&self) -> Carried {
        self.0.carried.fetch_add(1, Ordering::Relaxed);
        self.0.header_since.store(0, Ordering::Relaxed);
        Carried(self.clone())
    }

    /// Returns once the connection has been silent for longer than it may.
    pub(crate) async fn silence(&self, limits: &ProxyLimits, is_multiplexed: bool) {
        loop {
            let deadline = self.deadline(limits, is_multiplexed);
            let now = self.now();
            if deadline <= now {
                return;
            }
            // Never asleep for longer than a header may take, so that one which begins meanwhile is not forgotten.
            let wait = Duration::from_millis(deadline - now).min(limits.header);
            tokio::time::sleep(wait.max(Duration::from_millis(20))).await;
        }
    }

    fn deadline(&self, limits: &ProxyLimits, is_multiplexed: bool) -> u64 {
        let last = self.0.last.load(Ordering::Relaxed);
        let header_since = self.0.header_since.load(Ordering::Relaxed);
        if self.0.carried.load(Ordering::Relaxed) > 0 {
            last.saturating_add(millis(limits.stalled))
        } else if header_since > 0 && !is_multiplexed {
            header_since.saturating_add(millis(limits.header))
        } else {
            last.saturating_add(millis(limits.idle))
        }
    }

    /// Never 0, which means "not at all".
    fn now(&self) -> u64 {
        millis(self.0.start.elapsed()).max(1)
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let seen = &self.0.0;
        seen.last.store(self.0.now(), Ordering::Relaxed);
        seen.carried.fetch_sub(1, Ordering::Relaxed);
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ProxyLimits {
        ProxyLimits::default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_that_never_ends_is_noticed_before_an_idle_connection() {
        let activity = Activity::new();
        activity.received();
        let begin = Instant::now();
        activity.silence(&limits(), false).await;
        assert!(begin.elapsed() < limits().idle / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_left_open_for_longer_than_a_header_takes() {
        let activity = Activity::new();
        let begin = Instant::now();
        activity.silence(&limits(), false).await;
        assert!(begin.elapsed() >= limits().idle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_carried_keeps_its_connection() {
        let activity = Activity::new();
        let carried = activity.carry();
        let begin = Instant::now();
        activity.silence(&limits(), false).await;
        assert!(begin.elapsed() >= limits().stalled);
        drop(carried);
    }
}
