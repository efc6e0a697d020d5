//! `valetkey run`: broker, proxy and sandbox in one process tree, for one command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use broker::{Broker, Run};
use launcher::Stdin;
use policies::WorkspaceMode;
use sdk::report::{Failure as StepFailure, Outcome, Report, Step, Tail};

use crate::failure::Failure;
use crate::folders::Folders;
use crate::interruption::Interruption;
use crate::output::{self, say};
use crate::project::Project;
use crate::steps::{self, Context, Ended, Layer, Layers, Plain, StepSpec, run_step};
use crate::{approval, args, engine, summary};

/// Runs one command under the project's policy and tells what became of it.
pub(crate) fn run(asked: args::Run, folders: &Folders, json: bool) -> Result<u8, Failure> {
    let project = Project::open(asked.policy.as_deref())?;
    let engine = engine::Engine::open(engine::runtime()?, folders, Vec::new())?;
    approval::require(&engine.broker, &project, asked.approved.as_ref())?;
    let interruption = Interruption::listen(engine.runtime())?;
    let created = engine.create_run(&project, asked.approved.as_ref(), None)?;
    let run = Arc::clone(&created.run);
    // Whatever happens from here on, the run ends: its token must not outlive this process's work.
    let ending = Ending {
        broker: &engine.broker,
        run: &run,
    };
    let step = step(&asked, &project);
    let mut layer = None;
    let ended = steps::make_run_folder(folders, &run).and_then(|()| {
        if project.policy.sandbox().workspace.mode == WorkspaceMode::Overlay {
            layer = Some(Layers::new(&folders.run(run.id())).add(&[])?);
        }
        let context = Context {
            folders,
            project: &project,
            engine: &engine,
            run: &run,
            interruption: &interruption,
        };
        let sink = Plain::new(json, asked.quiet);
        run_step(&context, &step, 1, layer.as_ref(), &sink)
    });
    drop(ending);
    let report = report(&engine, &run, &step, &ended)?;
    if let Err(error) = engine.broker.save_report(&report) {
        say(format_args!("note: the report could not be kept: {error}"));
    }
    let changes = kept_changes(layer.as_ref());
    if json {
        // The report is the last line, also where the sandbox could not be built.
        if let Err(failure) = &ended {
            output::failure(failure, json);
        }
        output::json(&report);
    }
    let Ended { finished, cutoff } = match ended {
        Ok(ended) => ended,
        Err(failure) if json => return Ok(failure.code()),
        Err(failure) => return Err(failure),
    };
    if !asked.quiet && !json {
        summary::after_run(&report, &finished, cutoff, &project, changes.as_deref());
    } else if let Some(cutoff) = cutoff {
        say(format_args!("note: {}", cutoff.reason(sets_ttl(&project))));
    }
    let code = sdk::exit::code(&report.outcome);
    if code == 0 && asked.fail_on_deny && !report.denied.is_empty() {
        return Ok(sdk::exit::DENIED);
    }
    Ok(code)
}

/// The command as the run's only step.
fn step(asked: &args::Run, project: &Project) -> StepSpec {
    let name = asked
        .command
        .first()
        .map(|program| program.to_string_lossy().into_owned())
        .unwrap_or_default();
    StepSpec {
        name,
        index: 1,
        rights: None,
        command: asked.command.clone(),
        env: BTreeMap::new(),
        limits: project.policy.limits().clone(),
        stdin: Stdin::InheritUnlessTerminal,
    }
}

/// Whether the policy says how long a run lives.
pub(crate) fn sets_ttl(project: &Project) -> bool {
    project.policy.budget().ttl.is_some()
}

/// What the run wrote to its overlay; a folder of a run that wrote nothing is removed.
fn kept_changes(layer: Option<&Layer>) -> Option<PathBuf> {
    let layer = layer?;
    layer.remove_if_empty();
    let upper = layer.upper();
    upper.exists().then_some(upper)
}

/// Ends the run when it goes out of scope.
struct Ending<'a> {
    broker: &'a Broker,
    run: &'a Run,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.broker.end_run(self.run) {
            say(format_args!(
                "error: the run could not be ended in the store: {error}"
            ));
        }
    }
}

fn report(
    engine: &engine::Engine,
    run: &Run,
    step: &StepSpec,
    ended: &Result<Ended, Failure>,
) -> Result<Report, Failure> {
    let tally = engine.tally(run.id())?;
    let name = step.name.clone();
    let step = match ended {
        Ok(Ended { finished, .. }) => Step {
            name,
            index: step.index,
            outcome: finished.outcome.clone(),
            limits_hit: finished.limits_hit.clone(),
            attempts: 1,
            started: None,
            wall_ms: u64::try_from(finished.wall.as_millis()).unwrap_or(u64::MAX),
            cpu_ms: finished
                .cpu
                .map(|cpu| u64::try_from(cpu.as_millis()).unwrap_or(u64::MAX)),
            memory_peak: finished.memory_peak,
            stdout: finished.stdout.clone(),
            stderr: finished.stderr.clone(),
            reached: tally.reached(),
        },
        Err(failure) => Step {
            name,
            index: step.index,
            outcome: Outcome::Failed(StepFailure::SetupFailed(failure.to_string())),
            limits_hit: Vec::new(),
            attempts: 0,
            started: None,
            wall_ms: 0,
            cpu_ms: None,
            memory_peak: None,
            stdout: Tail::default(),
            stderr: Tail::default(),
            reached: Vec::new(),
        },
    };
    Ok(Report {
        run: run.id().clone(),
        policy: run.policy().digest().to_string(),
        state: "ended".to_owned(),
        outcome: step.outcome.clone(),
        steps: vec![step],
        reached: tally.reached(),
        denied: tally.denied(),
        failed: tally.failed(),
    })
}
