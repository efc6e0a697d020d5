//! Sandboxes are built a few at a time.
//!
//! Hundreds at once would only wait for each other in the kernel.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// The right to build a sandbox now, until it is dropped.
pub(crate) struct Turn(&'static Turns);

struct Turns {
    free: Mutex<usize>,
    given_back: Condvar,
}

impl Turn {
    /// Waits for a turn. Whoever has one gives it back after some milliseconds, whatever becomes of the sandbox.
    pub(crate) fn take() -> Self {
        static TURNS: OnceLock<Turns> = OnceLock::new();
        let turns = TURNS.get_or_init(|| Turns {
            free: Mutex::new(at_once()),
            given_back: Condvar::new(),
        });
        let free = turns.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = turns
            .given_back
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Self(turns)
    }
}

/// How many are built at once: several for each processor, for most of the time one waits until another process had its
/// turn, or the kernel a quiet moment.
pub(crate) fn at_once() -> usize {
    processors() * 6
}

/// How many processors there are for this process.
pub(crate) fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.given_back.notify_one();
    }
}
