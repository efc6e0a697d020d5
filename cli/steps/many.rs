//! How the steps of a run are run: each when what it needs is done, independent ones at the same time.

use std::path::Path;
use std::sync::mpsc;

use launcher::changes::{Touched, unhide};
use policies::WorkspaceMode;
use sdk::report::{Conflict, Failure as StepFailure, Outcome, Step};

use super::attempts::{Attempted, attempt, or_fault};
use super::file::Plan;
use super::graph::{Graph, Standing};
use super::resume::Resumed;
use super::{Context, Ended, Layer, Layers, Sink, StepSpec};
use crate::failure::Failure;

/// What is known of a step while a run goes on.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It was not started.
    NotReached,
    /// It runs.
    Running,
    /// It ended.
    Ended(Box<Attempted>),
    /// It passed in the run that this one goes on with, and left the layer of this name.
    Earlier(Box<Step>, String),
}

/// Runs all steps of a plan; `tell` is told how far they are whenever that changes.
pub(crate) fn run_all(
    context: &Context<'_>,
    plan: &Plan,
    layers: Option<&Layers>,
    resumed: Option<&Resumed>,
    rollback_failed: bool,
    sink: &dyn Sink,
    tell: &mut dyn FnMut(&[Progress]),
) -> Vec<Progress> {
    let mut all = All {
        plan,
        layers,
        rollback_failed,
        sink,
        graph: plan.graph.clone(),
        progress: plan.steps.iter().map(|_| Progress::NotReached).collect(),
        merged: Vec::new(),
    };
    if let (Some(resumed), Some(layers)) = (resumed, layers) {
        all.take_over(resumed, layers);
    }
    let at_once = match context.project.policy.sandbox().workspace.mode {
        // They would write to the same files with nothing to keep them apart.
        WorkspaceMode::ReadWrite => 1,
        WorkspaceMode::None | WorkspaceMode::ReadOnly | WorkspaceMode::Overlay => {
            std::thread::available_parallelism().map_or(1, usize::from)
        }
    };
    if let [only] = plan.steps.as_slice() {
        all.progress[0] = Progress::Running;
        // A single command is not waited for once more.
        if only.spec.rights.is_some() {
            tell(&all.progress);
        }
        let attempted = or_fault(|| attempt(context, only, layers, &[], None, sink));
        all.settle(0, attempted);
        return all.progress;
    }
    std::thread::scope(|scope| {
        let (ended, endings) = mpsc::channel();
        let mut running = 0;
        loop {
            if context.interruption.is_asked() && all.has_ended() {
                all.graph.stop();
            }
            for step in all.graph.ready() {
                if running == at_once {
                    break;
                }
                running += 1;
                all.graph.set(step, Standing::Running);
                all.progress[step] = Progress::Running;
                tell(&all.progress);
                let (below, ended) = (all.below(step), ended.clone());
                scope.spawn(move || {
                    let planned = &plan.steps[step];
                    let attempted =
                        or_fault(|| attempt(context, planned, layers, &below, None, sink));
                    // Whoever hears it waits for as long as something runs.
                    let _ = ended.send((step, attempted));
                });
            }
            if running == 0 {
                break;
            }
            let Ok((step, attempted)) = endings.recv() else {
                break;
            };
            running -= 1;
            all.settle(step, attempted);
            tell(&all.progress);
        }
    });
    all.progress
}

struct All<'a> {
    plan: &'a Plan,
    layers: Option<&'a Layers>,
    rollback_failed: bool,
    sink: &'a dyn Sink,
    graph: Graph,
    progress: Vec<Progress>,
    /// Steps whose changes are part of the run's, in the order in which they became that.
    merged: Vec<(usize, Layer)>,
}

impl All<'_> {
    /// Takes what the steps of an earlier run left for this one's.
    fn take_over(&mut self, resumed: &Resumed, layers: &Layers) {
        let mut merged = Vec::new();
        for (index, (step, layer)) in &resumed.steps {
            self.graph.set(*index, Standing::Done);
            if let Some(place) = layers.place(layer) {
                merged.push((place, *index, layers.find(layer)));
            }
            self.progress[*index] = Progress::Earlier(Box::new(step.clone()), layer.clone());
        }
        merged.sort_by_key(|(place, _, _)| *place);
        let merged = merged.into_iter().map(|(_, index, layer)| (index, layer));
        self.merged = merged.collect();
    }

    fn has_ended(&self) -> bool {
        let is_ended = |progress: &Progress| matches!(progress, Progress::Ended(_));
        self.progress.iter().any(is_ended)
    }

    /// The layers that a step sees: those of all that it needs, the oldest first.
    fn below(&self, step: usize) -> Vec<Layer> {
        let ancestors = self.graph.ancestors(step);
        self.merged
            .iter()
            .filter(|(other, _)| ancestors.contains(other))
            .map(|(_, layer)| layer.clone())
            .collect()
    }

    /// Takes the changes of a step that ended into the run's, or out of them.
    fn settle(&mut self, step: usize, mut attempted: Attempted) {
        let spec = &self.plan.steps[step].spec;
        if let (Some(layers), Some(layer)) = (self.layers, attempted.layer.clone()) {
            let is_failed = !attempted.is_passed();
            let is_dropped = self.rollback_failed || self.plan.steps[step].rollback_failed;
            if is_failed && is_dropped {
                roll_back(Some(layers), spec, &mut attempted, self.sink);
            } else if let Err(conflict) = self.merge(layers, step, &layer) {
                self.sink.note(
                    spec,
                    &format!(
                        "its changes are not part of the run's; they are in {}",
                        layer.upper().display()
                    ),
                );
                if let Err(error) = layers.set_aside(&layer) {
                    self.sink.note(spec, &error.told());
                }
                if !is_failed {
                    attempted.outcome = Outcome::Failed(conflict);
                    if is_dropped {
                        roll_back(Some(layers), spec, &mut attempted, self.sink);
                    }
                }
            } else {
                if let Err(error) = layers.put_above(&layer) {
                    self.sink.note(spec, &error.told());
                }
                self.merged.push((step, layer));
            }
        }
        let goes_on = attempted.is_passed() || self.plan.steps[step].continue_on_failure;
        self.graph.set(
            step,
            match goes_on {
                true => Standing::Done,
                false => Standing::Failed,
            },
        );
        self.sink.settled(spec, &attempted);
        self.progress[step] = Progress::Ended(Box::new(attempted));
    }

    /// Sees to it that a layer can lie above all merged ones that its step did not see.
    fn merge(&self, layers: &Layers, step: usize, layer: &Layer) -> Result<(), StepFailure> {
        let ancestors = self.graph.ancestors(step);
        let mut beside = self
            .merged
            .iter()
            .filter(|(other, _)| !ancestors.contains(other))
            .peekable();
        if beside.peek().is_none() {
            return Ok(());
        }
        let unreadable = |error: std::io::Error| {
            StepFailure::SetupFailed(format!("its changes cannot be looked through: {error}"))
        };
        let mine = Touched::of(&layer.upper()).map_err(unreadable)?;
        let workspace = layers.workspace();
        let mut shared = Vec::new();
        for (other, other_layer) in beside {
            let theirs = Touched::of(&other_layer.upper()).map_err(unreadable)?;
            let seen = self.below(step).into_iter().chain(self.below(*other));
            let tops: Vec<_> = seen.map(|layer| layer.upper()).collect();
            let is_new = |path: &Path| {
                let is_there = |top: &Path| top.join(path).symlink_metadata().is_ok();
                !is_there(&workspace) && !tops.iter().any(|top| is_there(top))
            };
            let paths = mine.conflicts(&theirs, &is_new);
            if !paths.is_empty() {
                let shown = paths.iter().take(MOST_SHOWN);
                return Err(StepFailure::Conflict(Conflict {
                    with: self.plan.steps[*other].spec.name.clone(),
                    paths: shown.map(|path| path.display().to_string()).collect(),
                }));
            }
            shared.extend(mine.shared_folders(&theirs, &is_new));
        }
        for folder in shared {
            unhide(&layer.upper(), &folder).map_err(unreadable)?;
        }
        Ok(())
    }
}

/// Drops what a step changed.
pub(crate) fn roll_back(
    layers: Option<&Layers>,
    spec: &StepSpec,
    attempted: &mut Attempted,
    sink: &dyn Sink,
) {
    if let (Some(layers), Some(layer)) = (layers, attempted.layer.take()) {
        if let Err(error) = layers.drop_layer(&layer) {
            sink.note(spec, &error.told());
        }
        attempted.rolled_back = true;
    }
}

/// What was asked for needs changes that are kept apart.
pub(crate) fn rollback_impossible(what: &str) -> Failure {
    Failure::bad_policy(format!(
        "`{what}` can drop nothing where `workspace.mode` is \"read-write\""
    ))
    .named("rollback-impossible")
    .hint("set `workspace.mode` to \"overlay\", or leave it out")
}

impl Progress {
    /// How the last attempt of the step ended, if it ran.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        match self {
            Self::Ended(attempted) => attempted.ended.as_ref().ok(),
            Self::NotReached | Self::Running | Self::Earlier(..) => None,
        }
    }

    /// Whether the step failed.
    pub(crate) fn is_failed(&self) -> bool {
        match self {
            Self::Ended(attempted) => !attempted.is_passed(),
            Self::NotReached | Self::Running | Self::Earlier(..) => false,
        }
    }

    /// Why nothing of the step ran, if that is what happened.
    pub(crate) fn setup_failure(&self) -> Option<&Failure> {
        match self {
            Self::Ended(attempted) => attempted.ended.as_ref().err(),
            Self::NotReached | Self::Running | Self::Earlier(..) => None,
        }
    }
}

const MOST_SHOWN: usize = 100;
