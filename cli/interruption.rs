//! Signals to this process, and the sandboxes whose commands get them.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use launcher::{Finished, Killer, Signal as Passed};
use sdk::report::{Failure as StepFailure, Outcome};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::raw;
use crate::terminal;

/// What a person or the system asked of this process.
#[derive(Debug, Default)]
pub(crate) struct Interruption {
    asked: AtomicI32,
    heard: tokio::sync::Notify,
    sandboxes: Mutex<Vec<(u64, Killer)>>,
}

/// Has a sandbox get signals, for as long as it is held.
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

/// How long a command may go on after this process was asked to end and it was told so.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

impl Interruption {
    /// Listens from now on. A signal that our caller ignores, as `nohup` does, stays ignored.
    pub(crate) fn listen(runtime: &Runtime) -> Result<Arc<Self>, Failure> {
        let interruption = Arc::new(Self::default());
        let ignored = ignored();
        let _inside = runtime.enter();
        for number in [HUP, INT, QUIT, USR1, USR2, TERM, CONT, TSTP] {
            if ignored & (1 << (number - 1)) != 0 {
                continue;
            }
            let signals = signal(SignalKind::from_raw(number))
                .map_err(|error| Failure::ours("cannot listen for signals").because(error))?;
            runtime.spawn(Arc::clone(&interruption).hear(signals, number));
        }
        Ok(interruption)
    }

    async fn hear(self: Arc<Self>, mut signals: Signal, number: i32) {
        while signals.recv().await.is_some() {
            match number {
                TSTP => self.stop(),
                CONT => raw::resume(),
                USR1 | USR2 => self.pass(number),
                _ => self.asked_to_end(number),
            }
        }
    }

    fn asked_to_end(self: &Arc<Self>, number: i32) {
        let asked = self.asked.load(Ordering::SeqCst);
        if asked == 0 {
            self.asked.store(number, Ordering::SeqCst);
            self.heard.notify_waiters();
            self.pass(number);
            let interruption = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(GRACE).await;
                interruption.kill();
            });
        } else if self.asked.swap(asked | TWICE, Ordering::SeqCst) & TWICE == 0 {
            self.kill();
        } else {
            at_once(asked);
        }
    }

    /// Ends what runs as if this signal had come twice: without waiting.
    pub(crate) fn end_at_once(&self, number: i32) {
        let _ = self
            .asked
            .compare_exchange(0, number | TWICE, Ordering::SeqCst, Ordering::SeqCst);
        self.heard.notify_waiters();
        self.kill();
    }

    fn pass(&self, number: i32) {
        if let Some(signal) = Passed::from_number(number) {
            for (_, killer) in self.sandboxes().iter() {
                killer.ask(signal);
            }
        }
    }

    fn kill(&self) {
        for (_, killer) in self.sandboxes().iter() {
            killer.kill();
        }
    }

    /// Stops what runs, and then this process, until it is continued.
    fn stop(&self) {
        use rustix::process::{getpid, getsid, kill_process};
        // Nobody could continue the leader of a session, and the kernel would not stop it either.
        if getsid(None) == Ok(getpid()) {
            return;
        }
        self.pass(Passed::Stop.number());
        raw::pause();
        let _ = kill_process(getpid(), rustix::process::Signal::STOP);
        raw::resume();
        self.pass(Passed::Continue.number());
    }

    /// Names one more sandbox that is to get signals; it ends now if that was asked already.
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

    /// Resolves when a signal came that asks this process to end.
    pub(crate) async fn asked(&self) {
        let mut heard = std::pin::pin!(self.heard.notified());
        // From here on none is missed, and looked after that none was before.
        heard.as_mut().enable();
        if !self.is_asked() {
            heard.await;
        }
    }

    /// Whether a signal came that asks this process to end.
    pub(crate) fn is_asked(&self) -> bool {
        self.signal().is_some()
    }

    /// The first signal that asked this process to end.
    pub(crate) fn signal(&self) -> Option<i32> {
        let asked = self.asked.load(Ordering::SeqCst) & !TWICE;
        (asked != 0).then_some(asked)
    }

    /// Tells why a sandbox ended that was killed because of a signal: by that signal, and not by one of its limits.
    pub(crate) fn explain(&self, finished: &mut Finished) {
        const KILLED: i32 = 9;
        if let Some(asked) = self.signal()
            && finished.outcome == Outcome::Failed(StepFailure::Signal(KILLED))
        {
            finished.outcome = Outcome::Failed(StepFailure::Signal(asked));
        }
    }
}

/// The name of a signal that asks this process to end.
pub(crate) fn name(number: i32) -> String {
    match number {
        INT => "SIGINT".to_owned(),
        TERM => "SIGTERM".to_owned(),
        HUP => "SIGHUP".to_owned(),
        QUIT => "SIGQUIT".to_owned(),
        other => format!("signal {other}"),
    }
}

/// Ends this process: it was asked three times, so something holds it up, such as a reader that takes no more output.
#[expect(
    clippy::exit,
    reason = "the main thread cannot be reached while it waits for that reader"
)]
fn at_once(asked: i32) {
    raw::restore();
    terminal::undo();
    std::process::exit(128 + (asked & !TWICE));
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

/// Beside the number of the signal that asked first.
const TWICE: i32 = 1 << 8;

/// SIGINT.
pub(crate) const INT: i32 = 2;
const HUP: i32 = 1;
const QUIT: i32 = 3;
const USR1: i32 = 10;
const USR2: i32 = 12;
const TERM: i32 = 15;
const CONT: i32 = 18;
const TSTP: i32 = 20;
