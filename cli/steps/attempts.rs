//! How one step is run until it passes, or is not tried again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use launcher::changes::Touched;
use sdk::report::{Failure as StepFailure, Outcome, Retried};

use super::file::Planned;
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
                let failed = Retried {
                    outcome,
                    because,
                    wall_ms: milliseconds(ended.finished.wall),
                    stderr: ended.finished.stderr.clone(),
                };
                sink.retried(&step.spec, number, &failed);
                retried.push(failed);
            }
            (Some(_) | None, _) => {
                let touched = layer.as_ref().map(|layer| Touched::of(&layer.upper()));
                return Attempted {
                    outcome,
                    ended,
                    started,
                    retried,
                    files_changed: touched.and_then(Result::ok).map(|touched| touched.files()),
                    layer,
                    rolled_back: false,
                };
            }
        }
    }
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
