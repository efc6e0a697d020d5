//! Signals that ask this process to end, and the sandbox that they end.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use launcher::{Finished, Killer};
use sdk::report::{Failure as StepFailure, Outcome};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// What a person or the system asked of this process.
#[derive(Debug, Default)]
pub(crate) struct Interruption {
    asked: AtomicI32,
    sandboxes: Mutex<Vec<(u64, Killer)>>,
}

/// Has a sandbox end when that is asked, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Interruptible<'a> {
    interruption: &'a Interruption,
    number: u64,
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        let mut sandboxes = self.interruption.sandboxes();
        sandboxes.retain(|(number, _)| *number != self.number);
    }
}

impl Interruption {
    /// Listens from now on. A signal that our caller ignores, as `nohup` does, stays ignored.
    pub(crate) fn listen(runtime: &Runtime) -> Result<Arc<Self>, Failure> {
        let interruption = Arc::new(Self::default());
        let ignored = ignored();
        let _inside = runtime.enter();
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ] {
            let number = kind.as_raw_value();
            if ignored & (1 << (number - 1)) != 0 {
                continue;
            }
            let signals = signal(kind)
                .map_err(|error| Failure::ours("cannot listen for signals").because(error))?;
            runtime.spawn(Arc::clone(&interruption).hear(signals, number));
        }
        Ok(interruption)
    }

    async fn hear(self: Arc<Self>, mut signals: Signal, number: i32) {
        while signals.recv().await.is_some() {
            if self.ask(number) {
                at_once(number);
            }
        }
    }

    /// Ends every sandbox, because of this signal. Whether that was asked before.
    pub(crate) fn ask(&self, number: i32) -> bool {
        let was_asked = self.asked.swap(number, Ordering::SeqCst) != 0;
        if !was_asked {
            for (_, killer) in self.sandboxes().iter() {
                killer.kill();
            }
        }
        was_asked
    }

    /// Names one more sandbox that is to end; it ends now if that was asked already.
    pub(crate) fn ends(&self, killer: Killer) -> Interruptible<'_> {
        let mut sandboxes = self.sandboxes();
        // The lock is held: either the signal finds it in the list, or it came before.
        if self.is_asked() {
            killer.kill();
        }
        let number = sandboxes.last().map_or(0, |(number, _)| number + 1);
        sandboxes.push((number, killer));
        Interruptible {
            interruption: self,
            number,
        }
    }

    fn sandboxes(&self) -> MutexGuard<'_, Vec<(u64, Killer)>> {
        self.sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a signal came.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst) != 0
    }

    /// Tells why a sandbox ended that was killed because of a signal: by that signal, and not by one of its limits.
    pub(crate) fn explain(&self, finished: &mut Finished) {
        const KILLED: i32 = 9;
        let asked = self.asked.load(Ordering::SeqCst);
        if asked != 0 && finished.outcome == Outcome::Failed(StepFailure::Signal(KILLED)) {
            finished.outcome = Outcome::Failed(StepFailure::Signal(asked));
        }
    }
}

/// Ends this process: it was asked twice, so something holds it up, such as a reader that takes no more output.
#[expect(
    clippy::exit,
    reason = "the main thread cannot be reached while it waits for that reader"
)]
fn at_once(number: i32) {
    std::process::exit(128 + number);
}

/// The signals that this process was started to ignore, as a set of bits.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
