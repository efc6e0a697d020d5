//! Where a test has the process killed between two writes to a run's layers.
//!
//! Without the feature `weaken` these are no points at all.

/// Has this process killed at the point of this number, from 1.
#[cfg(feature = "weaken")]
pub fn die_at(point: u64) {
    LEFT.store(point, std::sync::atomic::Ordering::SeqCst);
}

/// A point at which it may be killed.
#[cfg(feature = "weaken")]
pub(crate) fn point() {
    use rustix::process::{Signal, getpid, kill_process};
    // From 0 it goes round and is far away.
    if LEFT.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 1 {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// No point.
#[cfg(not(feature = "weaken"))]
pub(crate) fn point() {}

#[cfg(feature = "weaken")]
static LEFT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
