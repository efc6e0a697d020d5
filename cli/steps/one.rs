//! How one step of a run is run: its own sandbox and door, over the layer that it writes to.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

use broker::Run;
use launcher::{Finished, Isolation, Started, Stdin, Stream};
use policies::{Limits, NetworkMode, StepName};

use super::{Layer, Sink};
use crate::console::Console;
use crate::cutoff::Cutoff;
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::interruption::Interruption;
use crate::project::Project;
use crate::{sandbox, trust};

/// What all steps of a run share.
pub(crate) struct Context<'a> {
    /// The installation.
    pub(crate) folders: &'a Folders,
    /// The project and its policy.
    pub(crate) project: &'a Project,
    /// Broker and proxy.
    pub(crate) engine: &'a Engine,
    /// The run, whose token all steps have.
    pub(crate) run: &'a Arc<Run>,
    /// What ends the steps before their time.
    pub(crate) interruption: &'a Arc<Interruption>,
    /// What keeps the steps apart from the machine.
    pub(crate) isolation: Isolation,
    /// What the steps have of the owner's terminal.
    pub(crate) console: Console,
}

/// One step: a command and what is particular to it.
#[derive(Clone, Debug)]
pub(crate) struct StepSpec {
    /// Its name, which reports and events carry.
    pub(crate) name: String,
    /// Its place in the run, from 1.
    pub(crate) index: u32,
    /// The step whose rights it has, which audit events carry too; none for a command that is no step, and has the
    /// run's.
    pub(crate) rights: Option<StepName>,
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Variables on top of the policy's.
    pub(crate) env: BTreeMap<String, String>,
    /// What bounds it; never more than the policy's limits.
    pub(crate) limits: Limits,
    /// What its standard input is.
    pub(crate) stdin: Stdin,
}

/// How a step ended, and why if its run was over first.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) finished: Finished,
    pub(crate) cutoff: Option<Cutoff>,
}

/// Runs a step once; everything it started has ended when this returns. Where the workspace is an overlay, `layer` is
/// what it writes to. `built` is its sandbox, where that was made beforehand.
///
/// # Errors
/// Nothing of the command has run.
pub(crate) fn run_step(
    context: &Context<'_>,
    step: &StepSpec,
    attempt: u32,
    layer: Option<&Layer>,
    built: Option<Started>,
    sink: &dyn Sink,
) -> Result<Ended, Failure> {
    sink.started(step, attempt);
    let ended = sandboxed(context, step, layer, built, sink);
    sink.ended(step, attempt, ended.as_ref());
    ended
}

fn sandboxed(
    context: &Context<'_>,
    step: &StepSpec,
    layer: Option<&Layer>,
    built: Option<Started>,
    sink: &dyn Sink,
) -> Result<Ended, Failure> {
    let Context {
        project,
        engine,
        run,
        interruption,
        console,
        ..
    } = context;
    let rights = step.rights.as_ref();
    let cannot = |error| sandbox::cannot_build(project, error);
    let mut started = match built {
        Some(started) => started,
        None => {
            let mut spec = spec(context, step, layer)?;
            match build(&spec, step, sink) {
                Err(launcher::Error::NoOverlay { why }) if spec.no_overlay.is_none() => {
                    spec.no_overlay = Some(why);
                    build(&spec, step, sink)
                }
                built => built,
            }
            .map_err(cannot)?
        }
    };
    // Closed when the command has ended.
    let open = match started.doors.take() {
        Some(doors) => Some(engine.serve_run(doors, run, rights)?),
        None => None,
    };
    let taken = match started.brokered.take() {
        Some(brokered) => Some(engine.serve_brokered(brokered, run, rights)?),
        None => None,
    };
    let ending = engine.end_with_run(started.killer(), run);
    let interruptible = interruption.ends(started.killer());
    let attached = console.attach(&mut started, interruption, engine.runtime())?;
    let released = started.release();
    // A sandbox that was ended already cannot be released; waiting for it tells that it ended.
    if !interruption.is_asked() && run.is_active() {
        released.map_err(cannot)?;
    }
    let mut finished = started.wait(&mut |stream: Stream, bytes: &[u8]| {
        sink.output(step, stream, bytes);
    });
    drop((interruptible, attached, ending));
    drop((open, taken));
    if let Some(why) = &finished.not_kept {
        sink.note(step, why);
    }
    interruption.explain(&mut finished);
    let cutoff = Cutoff::of(run, &finished);
    if let Some(cutoff) = cutoff {
        cutoff.explain(&mut finished);
    }
    Ok(Ended { finished, cutoff })
}

/// What the launcher shall build for a step.
pub(super) fn spec(
    context: &Context<'_>,
    step: &StepSpec,
    layer: Option<&Layer>,
) -> Result<launcher::Spec, Failure> {
    let Context {
        folders,
        project,
        engine,
        run,
        isolation,
        console,
        ..
    } = context;
    let rights = step.rights.as_ref();
    let policy = run.policy().for_step(rights.map(StepName::as_str));
    let network = policy.sandbox().network;
    sandbox::spec(sandbox::Wanted {
        folders,
        project,
        layer: layer.map(Layer::mode),
        network,
        environment: match network {
            // Where there is no proxy, its variables would only make errors harder to understand.
            NetworkMode::None => run.environment_of(rights),
            NetworkMode::ProxyOnly => {
                engine::environment(run, engine::INSIDE, sandbox::CA_BUNDLE, None, rights)
            }
        },
        env: step.env.clone(),
        limits: &step.limits,
        stdin: console.stdin(step.stdin),
        terminal: console.window(),
        ca_bundle: trust::after_system(run.authority().ca_pem()),
        files: Vec::new(),
        mask: engine
            .broker
            .secret_files()
            .map_err(engine::broker_failure)?,
        command: step.command.clone(),
        isolation: *isolation,
    })
}

/// Builds the sandbox and says what is to be known of it.
fn build(
    spec: &launcher::Spec,
    step: &StepSpec,
    sink: &dyn Sink,
) -> Result<Started, launcher::Error> {
    let prepared = launcher::prepare(spec)?;
    let mut notes = prepared.notes().to_vec();
    if !prepared.not_isolated().is_empty() {
        let text = "this sandbox has no namespaces; docs/hard-places.md says what it leaves open, and the report lists it";
        notes.push(text.into());
    }
    let started = prepared.start();
    // Where it is built once more, they are said then.
    if !matches!(started, Err(launcher::Error::NoOverlay { .. })) {
        for note in &notes {
            sink.note(step, note);
        }
    }
    started
}

/// Makes the folder where a run keeps what belongs to it.
pub(crate) fn make_run_folder(folders: &Folders, run: &Run) -> Result<(), Failure> {
    let folder = folders.run(run.id());
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| {
            Failure::ours(format!("cannot make the folder `{}`", folder.display())).because(error)
        })
}
