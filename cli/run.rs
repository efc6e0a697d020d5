//! `valetkey run`: broker, proxy and sandbox in one process tree, for one command.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use broker::{Broker, Run};
use launcher::{Finished, Stream};
use policies::NetworkMode;
use sdk::report::{Failure as StepFailure, Outcome, Report, Step, Tail};

use crate::cutoff::Cutoff;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::interruption::Interruption;
use crate::output::{self, say};
use crate::project::Project;
use crate::terminal::Shown;
use crate::{approval, args, engine, sandbox, summary, trust};

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
    let ended = sandboxed(
        &asked,
        folders,
        &project,
        &engine,
        &run,
        &interruption,
        json,
    );
    drop(ending);
    let report = report(&engine, &run, &asked, &ended)?;
    if let Err(error) = engine.broker.save_report(&report) {
        say(format_args!("note: the report could not be kept: {error}"));
    }
    let changes = kept_changes(&folders.run(run.id()));
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

fn sandboxed(
    asked: &args::Run,
    folders: &Folders,
    project: &Project,
    engine: &engine::Engine,
    run: &Arc<Run>,
    interruption: &Interruption,
    json: bool,
) -> Result<Ended, Failure> {
    let run_folder = folders.run(run.id());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&run_folder)
        .map_err(|error| {
            Failure::ours(format!("cannot make the folder `{}`", run_folder.display()))
                .because(error)
        })?;
    let spec = sandbox::spec(sandbox::Wanted {
        folders,
        project,
        run_folder: &run_folder,
        environment: match project.policy.sandbox().network {
            // Where there is no proxy, its variables would only make errors harder to understand.
            NetworkMode::None => run.environment(),
            NetworkMode::ProxyOnly => {
                engine::environment(run, engine::INSIDE, sandbox::CA_BUNDLE, None)
            }
        },
        ca_bundle: trust::with_system(run.authority().ca_pem()),
        files: Vec::new(),
        mask: engine
            .broker
            .secret_files()
            .map_err(engine::broker_failure)?,
        command: asked.command.clone(),
    })?;
    let cannot = |error| sandbox::cannot_build(project, error);
    let prepared = launcher::prepare(&spec).map_err(cannot)?;
    if !asked.quiet {
        for note in prepared.notes() {
            say(format_args!("note: {note}"));
        }
    }
    let mut started = prepared.start().map_err(cannot)?;
    if let Some(doors) = started.doors.take() {
        engine.serve_run(doors, run)?;
    }
    engine.end_with_run(started.killer(), run);
    interruption.ends(started.killer());
    let released = started.release();
    // A sandbox that was ended already cannot be released; waiting for it tells that it ended.
    if !interruption.is_asked() && run.is_active() {
        released.map_err(cannot)?;
    }
    // With --json the report has standard output for itself.
    let (mut out, mut err) = (Shown::new(io::stdout()), Shown::new(io::stderr()));
    let mut finished = started.wait(&mut |stream: Stream, bytes: &[u8]| {
        // A reader that went away is no error of ours.
        let _ = match stream {
            Stream::Stdout if !json => out.pass(bytes),
            Stream::Stdout | Stream::Stderr => err.pass(bytes),
        };
    });
    let _ = out.end().and_then(|()| err.end());
    interruption.explain(&mut finished);
    let cutoff = Cutoff::of(run, &finished);
    if let Some(cutoff) = cutoff {
        cutoff.explain(&mut finished);
    }
    Ok(Ended { finished, cutoff })
}

/// Whether the policy says how long a run lives.
pub(crate) fn sets_ttl(project: &Project) -> bool {
    project.policy.budget().ttl.is_some()
}

/// How the command ended, and why if its run was over first.
struct Ended {
    finished: Finished,
    cutoff: Option<Cutoff>,
}

/// The folder with what the run wrote to its overlay; a folder of a run that wrote nothing is removed.
fn kept_changes(run_folder: &Path) -> Option<PathBuf> {
    let upper = run_folder.join("upper");
    // Only empty folders can be removed like this, so what the run wrote stays.
    if fs::remove_dir(&upper).is_ok() {
        let _ = fs::remove_dir(run_folder);
    }
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
    asked: &args::Run,
    ended: &Result<Ended, Failure>,
) -> Result<Report, Failure> {
    let tally = engine.tally(run.id())?;
    let name = asked
        .command
        .first()
        .map(|program| program.to_string_lossy().into_owned())
        .unwrap_or_default();
    let step = match ended {
        Ok(Ended { finished, .. }) => Step {
            name,
            index: 1,
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
            index: 1,
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
