//! The steps that programs ask `valetkey serve` for, one by one: in this machine's sandboxes, over the run's layers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use broker::Run;
use broker::control::{ReadyStep, StepListener, StepRefused, StepRunner};
use launcher::Isolation;
use policies::{Digest, WorkspaceMode};
use sdk::RunId;
use sdk::report::Step;

use crate::console::Console;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::interruption::Interruption;
use crate::output::say;
use crate::project::Project;
use crate::run;
use crate::steps::{self, Ahead, Context, Layer, Layers, Planned, StepSpec, Telling};

/// The policy files of the projects that runs were created for here.
#[derive(Debug, Default)]
pub(crate) struct Files(Mutex<HashMap<(PathBuf, Digest), PathBuf>>);

impl Files {
    /// Remembers which file a policy came from.
    pub(crate) fn remember(&self, project: &Project) {
        if let Some(file) = &project.file {
            let key = (project.folder.clone(), *project.policy.digest());
            lock(&self.0).insert(key, file.clone());
        }
    }

    fn find(&self, folder: &Path, digest: &Digest) -> Option<PathBuf> {
        let key = (folder.to_owned(), *digest);
        lock(&self.0).get(&key).cloned()
    }
}

/// Runs steps in sandboxes of this machine.
pub(crate) struct Sandboxes(Arc<Inner>);

struct Inner {
    engine: Arc<Engine>,
    folders: Folders,
    files: Arc<Files>,
    interruption: Arc<Interruption>,
    runs: Mutex<HashMap<RunId, Arc<Mutex<Workspace>>>>,
    /// How many sandboxes stand that wait for a step, and may at most.
    standing: AtomicUsize,
    most_standing: usize,
}

/// What the steps of a run have in common.
struct Workspace {
    project: Project,
    /// The layers of its workspace, where that is an overlay, with those that were written, the oldest first.
    layers: Option<Layers>,
    written: Vec<Layer>,
    /// The sandbox of the next step, built while it is decided what that is.
    ahead: Option<Ahead>,
}

impl Sandboxes {
    pub(crate) fn new(
        engine: Arc<Engine>,
        folders: Folders,
        files: Arc<Files>,
        most_standing: usize,
    ) -> Self {
        Self(Arc::new(Inner {
            engine,
            folders,
            files,
            interruption: Arc::default(),
            runs: Mutex::default(),
            standing: AtomicUsize::new(0),
            most_standing,
        }))
    }

    /// Ends the steps that are under way, and all that come.
    pub(crate) fn end(&self) {
        const SIGTERM: i32 = 15;
        self.0.interruption.end_at_once(SIGTERM);
    }
}

impl StepRunner for Sandboxes {
    fn read(&self, run: &Arc<Run>, asked: &str) -> Result<Box<dyn ReadyStep>, StepRefused> {
        let planned = steps::read_one(asked, run.policy().limits()).map_err(|found| {
            StepRefused::Wrong(Failure::mistakes("the step", "step-invalid", &found).told())
        })?;
        let mode = run.policy().sandbox().workspace.mode;
        if planned.rollback_failed && mode == WorkspaceMode::ReadWrite {
            let failure = steps::rollback_impossible("rollback_failed");
            return Err(StepRefused::Wrong(failure.told()));
        }
        Ok(Box::new(Ready {
            workspace: self.0.workspace(run)?,
            all: Arc::clone(&self.0),
            run: Arc::clone(run),
            planned,
        }))
    }
}

impl Inner {
    /// What the steps of a run have in common, made for its first step and let go when the run ends.
    fn workspace(self: &Arc<Self>, run: &Arc<Run>) -> Result<Arc<Mutex<Workspace>>, StepRefused> {
        let mut runs = lock(&self.runs);
        if let Some(found) = runs.get(run.id()) {
            return Ok(Arc::clone(found));
        }
        let policy = run.policy();
        let file = self.files.find(run.project(), policy.digest());
        let is_known = file.is_some() && !self.folders.run(run.id()).join("layers").exists();
        if !is_known {
            // Which file to keep from it, and what its steps have written, is known only to the server that did it.
            let what = "the run began under an earlier server, so it can have no more steps here";
            return Err(StepRefused::NotNow(what.to_owned()));
        }
        let project = Project {
            folder: run.project().to_owned(),
            file,
            policy,
        };
        let layers = run::layers(&self.context(&project, run))
            .map_err(|failure| StepRefused::Cannot(failure.told()))?;
        let workspace = Arc::new(Mutex::new(Workspace {
            project,
            layers,
            written: Vec::new(),
            ahead: None,
        }));
        runs.insert(run.id().clone(), Arc::clone(&workspace));
        let (all, run) = (Arc::clone(self), Arc::clone(run));
        self.engine.runtime().spawn(async move {
            run.ended().await;
            let forgetting = tokio::task::spawn_blocking(move || {
                let workspace = lock(&all.runs).remove(run.id());
                // A step that is under way is waited for.
                let Some(workspace) = workspace else {
                    return;
                };
                let mut workspace = lock(&workspace);
                all.let_go(&mut workspace);
                if let Some(layers) = workspace.layers.take() {
                    layers.remove_empty();
                }
            });
            if let Err(error) = forgetting.await {
                say(format_args!(
                    "note: the layers of a run could not be let go: {error}"
                ));
            }
        });
        Ok(workspace)
    }

    /// Builds the sandbox of the step after this one, which will most likely be like it. It is no harm if that fails: the
    /// step then builds its own, and tells what is wrong.
    fn build_ahead(
        all: Arc<Self>,
        run: Arc<Run>,
        workspace: Arc<Mutex<Workspace>>,
        step: StepSpec,
    ) {
        if all.standing.fetch_add(1, Ordering::Relaxed) >= all.most_standing {
            all.standing.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let runtime = Arc::clone(&all.engine);
        runtime.runtime().spawn_blocking(move || {
            let mut workspace = lock(&workspace);
            let Workspace {
                project,
                layers,
                written,
                ahead,
            } = &mut *workspace;
            let is_wanted = ahead.is_none() && run.is_active() && !all.interruption.is_asked();
            // Not while a sandbox stands over them, so now. If it cannot be done, the step tells.
            let layers = layers.as_ref();
            let has_room = |written: &mut Vec<Layer>| match layers {
                Some(layers) => layers.make_room(written).is_ok(),
                None => true,
            };
            if is_wanted && has_room(written) {
                let context = all.context(project, &run);
                *ahead = Ahead::build(&context, &step, layers, written).ok();
            }
            if !is_wanted || ahead.is_none() {
                all.standing.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }

    /// Ends the sandbox that was built for a step that does not come.
    fn let_go(&self, workspace: &mut Workspace) {
        if let Some(ahead) = workspace.ahead.take() {
            ahead.discard(workspace.layers.as_ref());
            self.standing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn context<'a>(&'a self, project: &'a Project, run: &'a Arc<Run>) -> Context<'a> {
        Context {
            folders: &self.folders,
            project,
            engine: &self.engine,
            run,
            interruption: &self.interruption,
            isolation: Isolation::Namespaces,
            // The server's terminal is not the caller's.
            console: Console::None,
        }
    }
}

/// A step that was read.
struct Ready {
    all: Arc<Inner>,
    run: Arc<Run>,
    workspace: Arc<Mutex<Workspace>>,
    planned: Planned,
}

impl ReadyStep for Ready {
    fn name(&self) -> &str {
        &self.planned.spec.name
    }

    fn run(
        mut self: Box<Self>,
        index: u32,
        listener: &dyn StepListener,
    ) -> Result<Step, StepRefused> {
        self.planned.spec.index = index;
        let mut workspace = lock(&self.workspace);
        let Workspace {
            project,
            layers,
            written,
            ahead,
        } = &mut *workspace;
        if !self.run.is_active() || self.all.interruption.is_asked() {
            return Err(StepRefused::NotNow("the run has ended".to_owned()));
        }
        let context = self.all.context(project, &self.run);
        let sink = Telling::new(|happening| listener.happened(&happening)).but_its_end();
        let ahead = ahead.take();
        if ahead.is_some() {
            self.all.standing.fetch_sub(1, Ordering::Relaxed);
        } else if let Some(layers) = layers {
            layers
                .make_room(written)
                .map_err(|failure| StepRefused::Cannot(failure.told()))?;
        }
        let mut attempted = steps::attempt(
            &context,
            &self.planned,
            layers.as_ref(),
            written,
            ahead,
            &sink,
        );
        if self.planned.rollback_failed && !attempted.is_passed() {
            steps::roll_back(layers.as_ref(), &self.planned.spec, &mut attempted, &sink);
        }
        let step = steps::of_attempted(&self.planned.spec, &attempted);
        // As in a file of steps: what a failed one changed stays, and the next one sees it.
        written.extend(attempted.layer);
        drop(workspace);
        Inner::build_ahead(self.all, self.run, self.workspace, self.planned.spec);
        Ok(step)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
