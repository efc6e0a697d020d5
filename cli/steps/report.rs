//! The report of a run, from what became of its steps and what the log counts.

use broker::Run;
use sdk::report::{Failure as StepFailure, Outcome, Report, Step, Tail};
use sdk::tally::{Tallies, Tally};

use super::attempts::{Attempted, milliseconds};
use super::many::Progress;
use super::{Context, StepSpec};
use crate::failure::Failure;

/// What is written of a step while it runs, for whoever reads it after this process was killed.
pub(super) const NOT_ENDED: &str = "it had not ended when this was written";

/// Whether a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It goes on.
    Active,
    /// It is over.
    Ended,
}

/// The report of a run whose steps are as far as `progress` says.
pub(crate) fn report<'a>(
    context: &Context<'_>,
    state: State,
    steps: impl Iterator<Item = (&'a StepSpec, &'a Progress)>,
) -> Result<Report, Failure> {
    let mut not_isolated = Vec::new();
    let steps = steps.inspect(|(_, progress)| note_gaps(progress, &mut not_isolated));
    let tallies = context.engine.tallies(context.run.id())?;
    let tally = tallies.whole();
    let steps: Vec<Step> = steps
        .map(|(spec, progress)| step(&of_step(&tallies, spec), spec, progress))
        .collect();
    let is_failed = |step: &&Step| matches!(step.outcome, Outcome::Failed(_));
    let not_passed = steps.iter().find(|step| step.outcome != Outcome::Passed);
    let first = steps.iter().find(is_failed).or(not_passed);
    let interrupted = context.interruption.signal();
    Ok(Report {
        run: context.run.id().clone(),
        policy: digest(context.run),
        state: match state {
            State::Active => "active".to_owned(),
            State::Ended => "ended".to_owned(),
        },
        outcome: outcome(first, interrupted),
        resumed: None,
        resume_from: not_passed.map(|step| step.name.clone()),
        steps,
        reached: tally.reached(),
        denied: tally.denied(),
        failed: tally.failed(),
        changes: None,
        interrupted,
        not_isolated,
    })
}

/// The outcome of a run, of which this is the first step that failed or else did not pass.
fn outcome(not_passed: Option<&Step>, interrupted: Option<i32>) -> Outcome {
    match (not_passed.map(|step| &step.outcome), interrupted) {
        (None, _) => Outcome::Passed,
        // Between two steps: none of them failed, and the run did.
        (Some(Outcome::NotReached), Some(signal)) => Outcome::Failed(StepFailure::Signal(signal)),
        (Some(outcome), _) => outcome.clone(),
    }
}

/// Adds what a step's sandbox did not keep apart, once for all steps.
fn note_gaps(progress: &Progress, all: &mut Vec<String>) {
    match progress {
        Progress::NotReached | Progress::Running | Progress::Earlier(..) => {}
        Progress::Ended(attempted) => {
            if let Ok(ended) = &attempted.ended {
                for gap in ended.finished.not_isolated {
                    if !all.iter().any(|told| told == gap) {
                        all.push((*gap).to_owned());
                    }
                }
            }
        }
    }
}

/// What one step reached so far.
pub(crate) fn step_tally(context: &Context<'_>, step: &StepSpec) -> Result<Tally, Failure> {
    let tallies = context.engine.tallies(context.run.id())?;
    Ok(of_step(&tallies, step))
}

/// A single command, which is no step, has all of the run's.
fn of_step(tallies: &Tallies, step: &StepSpec) -> Tally {
    match &step.rights {
        Some(name) => tallies.step(name.as_str()),
        None => tallies.whole().clone(),
    }
}

fn digest(run: &Run) -> String {
    run.policy().digest().to_string()
}

fn step(tally: &Tally, spec: &StepSpec, progress: &Progress) -> Step {
    let mut step = Step {
        name: spec.name.clone(),
        index: spec.index,
        outcome: Outcome::NotReached,
        limits_hit: Vec::new(),
        attempts: 0,
        started: None,
        wall_ms: 0,
        cpu_ms: None,
        memory_peak: None,
        stdout: Tail::default(),
        stderr: Tail::default(),
        reached: tally.reached(),
        denied: tally.denied(),
        failed: tally.failed(),
        files_changed: None,
        first_changed: Vec::new(),
        rolled_back: false,
        retried: Vec::new(),
    };
    match progress {
        Progress::NotReached => {
            step.reached.clear();
            step.denied.clear();
            step.failed.clear();
        }
        // This is read only where the process that would have written more was ended.
        Progress::Running => {
            step.attempts = 1;
            step.outcome = Outcome::Failed(StepFailure::SetupFailed(NOT_ENDED.to_owned()));
        }
        Progress::Ended(attempted) => ended(&mut step, attempted),
        Progress::Earlier(earlier, _) => step = (**earlier).clone(),
    }
    step
}

/// What became of one step, but for what it reached.
pub(crate) fn of_attempted(spec: &StepSpec, attempted: &Attempted) -> Step {
    let mut step = step(&Tally::default(), spec, &Progress::NotReached);
    ended(&mut step, attempted);
    step
}

fn ended(step: &mut Step, attempted: &Attempted) {
    step.outcome = attempted.outcome.clone();
    step.started = Some(attempted.started.to_string());
    step.retried = attempted.retried.clone();
    step.files_changed = attempted.files_changed;
    step.first_changed = attempted.first_changed.clone();
    step.rolled_back = attempted.rolled_back;
    step.attempts = u32::try_from(attempted.retried.len()).unwrap_or(u32::MAX);
    if let Ok(ended) = &attempted.ended {
        let finished = &ended.finished;
        step.attempts = step.attempts.saturating_add(1);
        step.limits_hit = finished.limits_hit.clone();
        step.wall_ms = milliseconds(finished.wall);
        step.cpu_ms = finished.cpu.map(milliseconds);
        step.memory_peak = finished.memory_peak;
        step.stdout = finished.stdout.clone();
        step.stderr = finished.stderr.clone();
    }
}
