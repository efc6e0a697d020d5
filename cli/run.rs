//! `valetkey run`: broker, proxy and sandboxes in one process tree, for one command or the steps of a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use broker::{Broker, Run};
use launcher::Stdin;
use policies::WorkspaceMode;
use sdk::happening::{Happening, RunEnded, RunStarted};
use sdk::report::Report;

use crate::console::Console;
use crate::events::Events;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::interruption::Interruption;
use crate::output::{self, say};
use crate::project::Project;
use crate::steps::{
    self, Attempted, Both, Context, Labelled, Layers, Plain, Plan, Progress, Resumed, Sink, State,
    StepSpec, Telling,
};
use crate::{approval, args, changes, engine, report, sandbox, summary};

/// Runs one command, or the steps of a file, under the project's policy and tells what became of it.
pub(crate) fn run(asked: args::Run, folders: &Folders, json: bool) -> Result<u8, Failure> {
    let console = match &asked.steps {
        // Steps may run side by side, and nobody could tell whom a key is for.
        Some(_) => Console::None,
        None => Console::of_command(asked.tty, asked.quiet)?,
    };
    let project = Project::open(asked.policy.as_deref())?;
    let plan = plan(&asked, &project)?;
    let engine = engine::Engine::open(engine::runtime()?, folders, Vec::new())?;
    approval::require(&engine.broker, &project, asked.approved.as_ref())?;
    let events = (asked.events.as_deref())
        .map(|to| Events::open(to, json))
        .transpose()?;
    let interruption = Interruption::listen(engine.runtime())?;
    let isolation = isolation(&asked, &project)?;
    let resumed = (asked.resume.as_deref())
        .map(|run| {
            let earlier = report::find(&engine.broker, run)?;
            steps::find_resumed(&earlier, folders.run(&earlier.run), &project, &plan)
        })
        .transpose()?;
    let created = engine.create_run(&project, asked.approved.as_ref(), None)?;
    let run = Arc::clone(&created.run);
    // Whatever happens from here on, the run ends: its token must not outlive this process's work.
    let ending = Ending {
        broker: &engine.broker,
        run: &run,
    };
    let context = Context {
        folders,
        project: &project,
        engine: &engine,
        run: &run,
        interruption: &interruption,
        isolation,
        console,
    };
    if let Some(events) = &events {
        follow(&context, events);
    }
    let done = all_steps(
        &context,
        &plan,
        &asked,
        json,
        events.as_ref(),
        resumed.as_ref(),
    );
    drop(ending);
    let mut report = steps::report(&context, State::Ended, told(&plan, &done.progress))?;
    report.resumed = resumed.as_ref().map(|resumed| resumed.run.clone());
    report.changes = done
        .changes
        .as_ref()
        .and_then(|_| changes::counts(&folders.run(run.id())));
    keep(&context, &report);
    if let Some(events) = &events {
        events.teller().tell(Happening::RunEnded(RunEnded {
            run: run.id().clone(),
            outcome: Some(report.outcome.clone()),
            interrupted: report.interrupted,
        }));
    }
    // All of them are written before anything else is printed.
    drop(events);
    let setup_failure = done.progress.iter().find_map(Progress::setup_failure);
    if let Some(failure) = setup_failure
        && (json || asked.quiet || asked.steps.is_none())
    {
        output::failure(failure, json);
    }
    if json {
        // The report is the last line, also where the sandbox could not be built.
        output::json(&report);
    }
    tell(&context, &asked, &report, &done, json);
    let first_failed = done.progress.iter().find(|progress| progress.is_failed());
    if let Some(failure) = first_failed.and_then(Progress::setup_failure) {
        return Ok(failure.code());
    }
    let code = sdk::exit::code(&report.outcome);
    if code == 0 && asked.fail_on_deny && !report.denied.is_empty() {
        return Ok(sdk::exit::DENIED);
    }
    Ok(code)
}

/// What keeps the run apart from the machine: the same for all its steps.
fn isolation(asked: &args::Run, project: &Project) -> Result<launcher::Isolation, Failure> {
    let network = sandbox::network(project.policy.sandbox().network);
    let (isolation, why) = launcher::isolation_here(asked.isolation.into(), network)
        .map_err(|error| sandbox::cannot_build(project, error))?;
    if let Some(why) = why
        && !asked.quiet
    {
        say(format_args!("note: {why}"));
    }
    Ok(isolation)
}

/// What is to be run: the steps of a file, or a single command.
fn plan(asked: &args::Run, project: &Project) -> Result<Plan, Failure> {
    let (limits, mode) = (
        project.policy.limits(),
        project.policy.sandbox().workspace.mode,
    );
    if asked.rollback_failed && mode == WorkspaceMode::ReadWrite {
        return Err(steps::rollback_impossible("--rollback-failed"));
    }
    if let Some(file) = &asked.steps {
        let plan = steps::read(file, limits)?;
        let drops = plan.steps.iter().any(|step| step.rollback_failed);
        if drops && mode == WorkspaceMode::ReadWrite {
            return Err(steps::rollback_impossible("rollback_failed"));
        }
        return Ok(plan);
    }
    let name = asked
        .command
        .first()
        .map(|program| program.to_string_lossy().into_owned())
        .unwrap_or_default();
    Ok(Plan::single(StepSpec {
        name,
        index: 1,
        rights: None,
        command: asked.command.clone(),
        env: BTreeMap::new(),
        limits: limits.clone(),
        stdin: Stdin::InheritUnlessTerminal,
    }))
}

/// What became of the steps, and where their changes are, if they made some.
struct Done {
    progress: Vec<Progress>,
    changes: Option<PathBuf>,
}

/// Tells that the run begins, and from now on each of its requests.
fn follow(context: &Context<'_>, events: &Events) {
    let run = context.run.id();
    events.teller().tell(Happening::RunStarted(RunStarted {
        run: run.clone(),
        policy: context.run.policy().digest().to_string(),
    }));
    let teller = events.teller();
    context.engine.broker.audit().tap(
        run,
        Arc::new(move |event| {
            if event.request.is_some() {
                teller.tell_now(Happening::Request(Arc::new(event.clone())));
            }
        }),
    );
}

fn all_steps(
    context: &Context<'_>,
    plan: &Plan,
    asked: &args::Run,
    json: bool,
    events: Option<&Events>,
    resumed: Option<&Resumed>,
) -> Done {
    let layers = match resumed {
        Some(resumed) => resumed_layers(context, resumed).map(Some),
        None => layers(context),
    };
    let layers = match layers {
        Ok(layers) => layers,
        Err(failure) => {
            let mut progress: Vec<Progress> =
                plan.steps.iter().map(|_| Progress::NotReached).collect();
            if let Some(first) = progress.first_mut() {
                *first = Progress::Ended(Box::new(Attempted::not_begun(failure)));
            }
            return Done {
                progress,
                changes: None,
            };
        }
    };
    let shown: Box<dyn Sink> = match asked.steps {
        Some(_) => {
            let names = plan.steps.iter().map(|step| step.spec.name.as_str());
            Box::new(Labelled::new(names, json, asked.quiet))
        }
        None => Box::new(Plain::new(json, asked.quiet, context.console)),
    };
    let sink = match events.map(Events::teller) {
        Some(teller) => {
            let told = Telling::new(move |happening| teller.tell(happening));
            Box::new(Both(shown, Box::new(told)))
        }
        None => shown,
    };
    let progress = steps::run_all(
        context,
        plan,
        layers.as_ref(),
        resumed,
        asked.rollback_failed,
        &*sink,
        // If this process is killed, this is what is known of the run.
        &mut |progress| {
            match steps::report(context, State::Active, told(plan, progress)) {
                Ok(report) => keep(context, &report),
                Err(error) => say(format_args!("note: {}", error.told())),
            }
            keep_passed(context, plan, progress);
        },
    );
    if asked.steps.is_some() {
        keep_passed(context, plan, &progress);
    }
    let changes = layers.as_ref().and_then(Layers::remove_empty);
    Done { progress, changes }
}

/// Writes down what another run would need to go on with this one.
fn keep_passed(context: &Context<'_>, plan: &Plan, progress: &[Progress]) {
    let folder = context.folders.run(context.run.id());
    if let Err(error) = steps::write_passed(&folder, plan, progress) {
        say(format_args!(
            "note: the run could not be gone on with later: {error}"
        ));
    }
}

/// The layers of the earlier run, taken into this one.
fn resumed_layers(context: &Context<'_>, resumed: &Resumed) -> Result<Layers, Failure> {
    steps::make_run_folder(context.folders, context.run)?;
    Layers::resume(&context.folders.run(context.run.id()), resumed)
}

/// Makes what the run keeps on the disk; the layers of its workspace, where that is an overlay.
pub(crate) fn layers(context: &Context<'_>) -> Result<Option<Layers>, Failure> {
    let Context {
        folders,
        project,
        run,
        ..
    } = context;
    steps::make_run_folder(folders, run)?;
    if project.policy.sandbox().workspace.mode != WorkspaceMode::Overlay {
        return Ok(None);
    }
    let workspace = sandbox::workspace_folder(project)?;
    if workspace.symlink_metadata().is_err() {
        return Err(sandbox::cannot_build(
            project,
            launcher::Error::View {
                what: "workspace",
                path: workspace,
                why: "there is nothing at this path".to_owned(),
            },
        ));
    }
    Layers::begin(&folders.run(run.id()), &workspace).map(Some)
}

fn told<'a>(
    plan: &'a Plan,
    progress: &'a [Progress],
) -> impl Iterator<Item = (&'a StepSpec, &'a Progress)> {
    plan.steps.iter().map(|step| &step.spec).zip(progress)
}

fn keep(context: &Context<'_>, report: &Report) {
    if let Err(error) = context.engine.broker.save_report(report) {
        say(format_args!("note: the report could not be kept: {error}"));
    }
}

/// Tells people what became of the run, as far as they want to hear it.
fn tell(context: &Context<'_>, asked: &args::Run, report: &Report, done: &Done, json: bool) {
    let ended: Vec<_> = done.progress.iter().filter_map(Progress::ended).collect();
    let cutoff = ended.iter().find_map(|ended| ended.cutoff);
    let project = context.project;
    if asked.quiet || json {
        if let Some(cutoff) = cutoff {
            say(format_args!("note: {}", cutoff.reason(sets_ttl(project))));
        }
        return;
    }
    let changes = done
        .changes
        .as_ref()
        .and_then(|_| changes::in_short(&context.folders.run(context.run.id()), report.changes));
    if asked.steps.is_some() {
        let next = steps::Next {
            resume: asked
                .steps
                .as_ref()
                .filter(|_| done.changes.is_some() && report.resume_from.is_some())
                .map(|file| {
                    format!(
                        "valetkey run --steps {} --resume {}",
                        file.display(),
                        report.run
                    )
                }),
            has_changes: changes.is_some(),
        };
        summary::after_steps(report, cutoff, project, changes.as_deref(), &next);
    } else if let [ended] = ended.as_slice() {
        summary::after_run(report, &ended.finished, cutoff, project, changes.as_deref());
    }
}

/// Whether the policy says how long a run lives.
pub(crate) fn sets_ttl(project: &Project) -> bool {
    project.policy.budget().ttl.is_some()
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
