//! How one step is run until it passes, or is not tried again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use jiff::Timestamp;
use launcher::changes::Touched;
use sdk::report::{Failure as StepFailure, Outcome, Retried};

use super::file::{LONGEST_WAIT, Planned};
use super::report::step_tally;
use super::retry::{self, Cause, codes_since};
use super::{Ahead, Context, Ended, Layer, Layers, Sink, run_step};
use crate::failure::Failure;

/// What became of a step.
#[derive(Debug)]
pub(crate) struct Attempted {
    /// How the last attempt ended; an error: nothing of it ran.
    pub(crate) ended: Result<Ended, Failure>,
    /// The outcome, which is another than the last attempt's where its changes are at odds with another step's.
    pub(crate) outcome: Outcome,
    /// When the step began.
    pub(crate) started: Timestamp,
    /// The attempts before the last.
    pub(crate) retried: Vec<Retried>,
    /// The layer of the last attempt, as long as it is kept.
    pub(crate) layer: Option<Layer>,
    /// How many files the last attempt changed.
    pub(crate) files_changed: Option<u64>,
    /// The first of their paths.
    pub(crate) first_changed: Vec<String>,
    /// Whether its changes were dropped because it failed.
    pub(crate) rolled_back: bool,
}

impl Attempted {
    /// A step that nothing ran of because the run could not begin.
    pub(crate) fn not_begun(failure: Failure) -> Self {
        let ended = Err(failure);
        Self {
            outcome: outcome(&ended),
            ended,
            started: Timestamp::now(),
            retried: Vec::new(),
            layer: None,
            files_changed: None,
            first_changed: Vec::new(),
            rolled_back: false,
        }
    }

    /// Whether it passed.
    pub(crate) fn is_passed(&self) -> bool {
        self.outcome == Outcome::Passed
    }
}

/// Runs a step over the layers `below`, the oldest first, and again as it asks for. Each attempt begins anew from there;
/// the first one takes the sandbox that was built `ahead`, if that is what it needs.
pub(crate) fn attempt(
    context: &Context<'_>,
    step: &Planned,
    layers: Option<&Layers>,
    below: &[Layer],
    mut ahead: Option<Ahead>,
    sink: &dyn Sink,
) -> Attempted {
    let started = Timestamp::now();
    let mut retried = Vec::new();
    let watches = step.retries > 0 && step.retry_on.iter().any(Cause::is_code);
    loop {
        let number = u32::try_from(retried.len() + 1).unwrap_or(u32::MAX);
        let before = watches.then(|| step_tally(context, &step.spec));
        let mut layer = None;
        let built = (ahead.take()).and_then(|ahead| ahead.take(context, &step.spec, layers));
        let made = match built {
            Some((layer, built)) => Ok((layer, Some(built))),
            None => (layers.map(|layers| layers.add(below)).transpose()).map(|layer| (layer, None)),
        };
        let ended = made.and_then(|(made, built)| {
            layer = made;
            run_step(context, &step.spec, number, layer.as_ref(), built, sink)
        });
        let outcome = outcome(&ended);
        let may_again =
            number <= step.retries && !context.interruption.is_asked() && context.run.is_active();
        let because = may_again
            .then(|| {
                let now = watches.then(|| step_tally(context, &step.spec));
                let codes = match (&before, &now) {
                    (Some(Ok(before)), Some(Ok(now))) => codes_since(before, now),
                    // What cannot be counted was not seen.
                    (Some(Err(_)) | None, _) | (_, Some(Err(_)) | None) => BTreeMap::new(),
                };
                retry::reason(&outcome, &step.retry_on, &codes)
            })
            .flatten();
        let wait = wait(step.retry_wait, number);
        let because = because.filter(|_| wait.is_zero() || waited(context, step, wait, sink));
        let is_dropped = match (&because, layers, &layer) {
            (None, _, _) => false,
            (Some(_), Some(layers), Some(layer)) => match layers.drop_layer(layer) {
                Ok(()) => true,
                // Nothing may be built on what a failed attempt left.
                Err(error) => {
                    sink.note(&step.spec, &error.told());
                    false
                }
            },
            (Some(_), _, _) => true,
        };
        match (because, &ended) {
            (Some(because), Ok(ended)) if is_dropped => {
                let mut stderr = ended.finished.stderr.clone();
                stderr.shorten(MOST_OF_ATTEMPT);
                let failed = Retried {
                    outcome,
                    because,
                    wall_ms: milliseconds(ended.finished.wall),
                    wait_ms: milliseconds(wait),
                    stderr,
                };
                sink.retried(&step.spec, number, &failed);
                retried.push(failed);
            }
            (Some(_) | None, _) => {
                let touched = layer.as_ref().map(|layer| Touched::of(&layer.upper()));
                let touched = touched.and_then(Result::ok);
                if let (Some(layers), Some(touched)) = (layers, &touched)
                    && let Err(error) = layers.note_folders(touched)
                {
                    sink.note(&step.spec, &error.told());
                }
                return Attempted {
                    outcome,
                    ended,
                    started,
                    retried,
                    files_changed: touched.as_ref().map(Touched::files),
                    first_changed: touched.as_ref().map(Touched::first).unwrap_or_default(),
                    layer,
                    rolled_back: false,
                };
            }
        }
    }
}

/// Waits before the next attempt. Whether there is to be one: no more when the run is over or its owner ends it.
fn waited(context: &Context<'_>, step: &Planned, wait: Duration, sink: &dyn Sink) -> bool {
    let seconds = wait.as_secs_f64();
    sink.note(
        &step.spec,
        &format!("it failed; the next attempt begins in {seconds} s"),
    );
    context.engine.runtime().block_on(async {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = context.interruption.asked() => {}
            () = context.run.ended() => {}
        }
    });
    !context.interruption.is_asked() && context.run.is_active()
}

/// How long to wait after the attempt of this number: each time twice as long, within bounds.
fn wait(first: Duration, attempt: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    first.saturating_mul(doubled).min(LONGEST_WAIT)
}

/// Does what makes an attempt; a panic in it is a step that failed, not a run that nobody ends.
pub(crate) fn or_fault(attempt: impl FnOnce() -> Attempted) -> Attempted {
    let started = Timestamp::now();
    // Nothing that it changed halfway is used again: what is shared is behind locks that bear it.
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| {
        let ended = Err(Failure::ours("a fault of valetkey's own ended the step"));
        Attempted {
            outcome: outcome(&ended),
            ended,
            started,
            retried: Vec::new(),
            files_changed: None,
            first_changed: Vec::new(),
            layer: None,
            rolled_back: false,
        }
    })
}

/// The outcome of an attempt.
pub(crate) fn outcome(ended: &Result<Ended, Failure>) -> Outcome {
    match ended {
        Ok(ended) => ended.finished.outcome.clone(),
        Err(failure) => Outcome::Failed(StepFailure::SetupFailed(failure.reason())),
    }
}

/// A time in milliseconds.
pub(crate) fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes of the standard error of an attempt that was followed by another. A step has up to 20 of them.
const MOST_OF_ATTEMPT: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn passed() -> Attempted {
        Attempted {
            outcome: Outcome::Passed,
            ended: Err(Failure::ours("not run")),
            started: Timestamp::now(),
            retried: Vec::new(),
            files_changed: None,
            first_changed: Vec::new(),
            layer: None,
            rolled_back: false,
        }
    }

    #[test]
    fn the_wait_doubles_up_to_a_minute() {
        let first = Duration::from_secs(2);
        let waits = [1, 2, 5, 6, 21].map(|attempt| wait(first, attempt).as_secs());
        assert_eq!(waits, [2, 4, 32, 60, 60]);
        assert!(wait(Duration::ZERO, 20).is_zero());
    }

    #[test]
    fn a_panic_in_an_attempt_is_a_step_that_failed() {
        let faulted = or_fault(|| panic!("as in a fault of ours"));
        assert!(matches!(
            faulted.outcome,
            Outcome::Failed(StepFailure::SetupFailed(_))
        ));
        assert_eq!(or_fault(passed).outcome, Outcome::Passed);
    }
}
