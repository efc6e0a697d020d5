//! The steps of runs that programs ask for one by one, while they decide the next.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use sdk::RunId;
use sdk::api::StepInfo;
use sdk::happening::{Happening, Note, RunEnded};
use sdk::report::{Failure, Outcome, Report, Step, Tail};
use sdk::tally::Tallies;
use tokio_util::task::TaskTracker;

use super::bounds::{in_short, shorten_oldest};
use super::feed::Feed;
use super::hearing::Hearing;
use crate::{Broker, Error, Run};

/// Runs steps. The broker knows what a run may do, and nothing of sandboxes.
pub trait StepRunner: Send + Sync + 'static {
    /// Reads what is to be run, from the JSON that was sent.
    ///
    /// # Errors
    /// What is wrong with it, or why this run can have no step.
    fn read(&self, run: &Arc<Run>, asked: &str) -> Result<Box<dyn ReadyStep>, StepRefused>;
}

/// A step that can begin.
pub trait ReadyStep: Send {
    /// Its name.
    fn name(&self) -> &str;

    /// Runs it as the step of this number, and returns when all of it has ended. It may take as long as it takes.
    ///
    /// # Errors
    /// If nothing of it ran.
    fn run(self: Box<Self>, index: u32, listener: &dyn StepListener) -> Result<Step, StepRefused>;
}

/// Hears what a step does while it does it.
pub trait StepListener: Send + Sync {
    /// Something happened in it: anything but its end, which whoever runs it says.
    fn happened(&self, happening: &Happening);
}

/// Why a step does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepRefused {
    /// What was asked for is wrong; what, where, and what to do.
    Wrong(String),
    /// The run can have no step now.
    NotNow(String),
    /// This machine or process cannot.
    Cannot(String),
}

/// The steps of the runs of this process.
pub(super) struct Steps {
    broker: Arc<Broker>,
    runner: Option<Arc<dyn StepRunner>>,
    runs: DashMap<RunId, Arc<StepsOfRun>>,
    /// One for each step that may run at a time, of all runs.
    room: tokio::sync::Semaphore,
    /// What is still going on.
    pub(super) tasks: TaskTracker,
}

/// The steps of one run.
pub(super) struct StepsOfRun {
    run: Arc<Run>,
    pub(super) feed: Arc<Feed>,
    /// One step at a time: each works on what the one before left.
    turn: tokio::sync::Mutex<()>,
    waiting: AtomicUsize,
    infos: Mutex<Vec<StepInfo>>,
}

impl Steps {
    pub(super) fn new(broker: Arc<Broker>, runner: Option<Arc<dyn StepRunner>>) -> Self {
        Self {
            broker,
            runner,
            runs: DashMap::new(),
            room: tokio::sync::Semaphore::new(MOST_AT_ONCE),
            tasks: TaskTracker::new(),
        }
    }

    pub(super) fn runner(&self) -> Option<Arc<dyn StepRunner>> {
        self.runner.clone()
    }

    /// What is kept of a run's steps, until the run has ended.
    pub(super) fn of(self: &Arc<Self>, run: &Arc<Run>) -> Arc<StepsOfRun> {
        match self.runs.entry(run.id().clone()) {
            Entry::Occupied(found) => Arc::clone(found.get()),
            Entry::Vacant(vacant) => {
                let steps = Arc::new(StepsOfRun::new(run));
                vacant.insert(Arc::clone(&steps));
                let feed = Arc::clone(&steps.feed);
                self.broker.audit().tap(
                    run.id(),
                    Arc::new(move |event| {
                        if event.request.is_some()
                            && let Ok(text) = serde_json::to_string(event)
                        {
                            feed.flow("request", text);
                        }
                    }),
                );
                let (all, ending) = (Arc::clone(self), Arc::clone(&steps));
                tokio::spawn(async move {
                    ending.run.ended().await;
                    // Steps that were under way are told of first.
                    drop(ending.turn.lock().await);
                    all.broker.audit().untap(ending.run.id());
                    all.runs.remove(ending.run.id());
                    ending.tell(&Happening::RunEnded(RunEnded {
                        run: ending.run.id().clone(),
                        outcome: None,
                        interrupted: None,
                    }));
                    ending.feed.end();
                });
                steps
            }
        }
    }

    /// The steps of a run that were asked for here, if any were.
    pub(super) fn listed(&self, run: &RunId) -> Option<Vec<StepInfo>> {
        let steps = self.runs.get(run)?;
        let infos = steps.infos().clone();
        Some(infos)
    }

    /// Runs a step in its turn. It goes on when nobody waits for its end any more.
    pub(super) async fn run(
        self: &Arc<Self>,
        run: &Arc<Run>,
        ready: Box<dyn ReadyStep>,
    ) -> Result<Step, StepRefused> {
        let steps = self.of(run);
        let index = steps.enter(ready.name())?;
        let all = Arc::clone(self);
        let task = self.tasks.spawn(async move {
            let turn = steps.turn.lock().await;
            steps.waiting.fetch_sub(1, Ordering::Relaxed);
            let place = all.room.acquire().await;
            let ended = all.run_now(&steps, index, ready).await;
            drop(place);
            steps.leave(index, &ended);
            if ended.is_ok() {
                all.keep(&steps).await;
            }
            drop(turn);
            ended
        });
        task.await
            .unwrap_or_else(|_| Err(StepRefused::Cannot("the step did not end".to_owned())))
    }

    async fn run_now(
        &self,
        steps: &Arc<StepsOfRun>,
        index: u32,
        ready: Box<dyn ReadyStep>,
    ) -> Result<Step, StepRefused> {
        if !steps.run.is_active() {
            return Err(StepRefused::NotNow("the run has ended".to_owned()));
        }
        steps.set_running(index);
        let before = self.events(&steps.run).await?.len();
        let feed = Arc::clone(&steps.feed);
        let name = ready.name().to_owned();
        let running = tokio::task::spawn_blocking(move || ready.run(index, &Hearing(&feed)));
        // From here on it may have run, and what it changed is there: nothing may tell it as refused.
        let mut step = (running.await).unwrap_or_else(|_| Ok(faulted(name, index)))?;
        match self.events(&steps.run).await {
            Ok(events) => {
                let mut tallies = Tallies::default();
                for event in events.iter().skip(before) {
                    tallies.add(event);
                }
                let tally = tallies.step(&step.name);
                step.reached = tally.reached();
                step.denied = tally.denied();
                step.failed = tally.failed();
            }
            Err(unread) => steps.tell(&Happening::Note(Note {
                step: step.name.clone(),
                index,
                text: format!("what it reached cannot be told now: {}", unread.why()),
            })),
        }
        Ok(step)
    }

    async fn events(&self, run: &Arc<Run>) -> Result<Vec<sdk::audit::Event>, StepRefused> {
        let cannot = |what: String| StepRefused::Cannot(what);
        self.broker
            .audit()
            .flush()
            .await
            .map_err(|error| cannot(error.to_string()))?;
        let (broker, id) = (Arc::clone(&self.broker), run.id().clone());
        let read = tokio::task::spawn_blocking(move || broker.events(&id)).await;
        let records = read
            .map_err(|error| cannot(error.to_string()))?
            .map_err(|error| cannot(error.to_string()))?;
        Ok(records.into_iter().map(|record| record.event).collect())
    }

    /// Keeps the report as it is by now: whatever ends this process, it says what was done.
    async fn keep(&self, steps: &Arc<StepsOfRun>) {
        let (broker, run) = (Arc::clone(&self.broker), steps.run.id().clone());
        let done = steps.done();
        let kept = tokio::task::spawn_blocking(move || {
            compose(&broker, &run, done)?.map_or(Ok(()), |report| broker.save_report(&report))
        });
        match kept.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the report of a run cannot be kept"),
            Err(error) => tracing::warn!(%error, "the report of a run cannot be kept"),
        }
    }
}

impl StepsOfRun {
    fn new(run: &Arc<Run>) -> Self {
        Self {
            run: Arc::clone(run),
            feed: Feed::new(),
            turn: tokio::sync::Mutex::new(()),
            waiting: AtomicUsize::new(0),
            infos: Mutex::default(),
        }
    }

    /// Gives a step its number, if there is room.
    fn enter(&self, name: &str) -> Result<u32, StepRefused> {
        let mut infos = self.infos();
        if infos.len() >= MOST_STEPS {
            let what = format!("the run has had {MOST_STEPS} steps, and may have no more");
            return Err(StepRefused::NotNow(what));
        }
        if self.waiting.load(Ordering::Relaxed) >= MOST_WAITING {
            let what = format!("{MOST_WAITING} steps of the run wait for their turn already");
            return Err(StepRefused::NotNow(what));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let index = u32::try_from(infos.len() + 1).unwrap_or(u32::MAX);
        infos.push(StepInfo {
            name: name.to_owned(),
            index,
            state: "waiting".to_owned(),
            report: None,
        });
        Ok(index)
    }

    fn set_running(&self, index: u32) {
        self.change(index, |info| info.state = "running".to_owned());
    }

    fn leave(&self, index: u32, ended: &Result<Step, StepRefused>) {
        let told = Happening::Ended(Box::new(sdk::happening::Ended {
            step: ended.as_ref().ok().map(|step| step.name.clone()),
            index,
            report: ended.as_ref().ok().map(in_short),
            refused: (ended.as_ref().err()).map(|refused| refused.why().to_owned()),
        }));
        self.change(index, |info| {
            info.state = "ended".to_owned();
            info.report = ended.as_ref().ok().cloned();
        });
        shorten_oldest(&mut self.infos());
        self.tell(&told);
    }

    fn change(&self, index: u32, change: impl FnOnce(&mut StepInfo)) {
        let mut infos = self.infos();
        if let Some(info) = infos.iter_mut().find(|info| info.index == index) {
            change(info);
        }
    }

    /// Tells something that no reader misses.
    fn tell(&self, happening: &Happening) {
        if let Ok(data) = happening.data() {
            self.feed.milestone(happening.kind(), data);
        }
    }

    fn done(&self) -> Vec<Step> {
        self.infos()
            .iter()
            .filter_map(|info| info.report.clone())
            .collect()
    }

    fn infos(&self) -> MutexGuard<'_, Vec<StepInfo>> {
        self.infos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StepRefused {
    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Self::Wrong(why) | Self::NotNow(why) | Self::Cannot(why) => why,
        }
    }
}

/// A step whose thread met a fault of ours.
fn faulted(name: String, index: u32) -> Step {
    let why = "a fault of valetkey's own ended it; what it changed until then is there";
    Step {
        name,
        index,
        outcome: Outcome::Failed(Failure::SetupFailed(why.to_owned())),
        limits_hit: Vec::new(),
        attempts: 1,
        started: None,
        wall_ms: 0,
        cpu_ms: None,
        memory_peak: None,
        stdout: Tail::default(),
        stderr: Tail::default(),
        reached: Vec::new(),
        denied: Vec::new(),
        failed: Vec::new(),
        files_changed: None,
        first_changed: Vec::new(),
        rolled_back: false,
        retried: Vec::new(),
    }
}

/// The report of a run as it is by now, with these steps; none if there is no such run.
fn compose(broker: &Broker, run: &RunId, steps: Vec<Step>) -> Result<Option<Report>, Error> {
    let Some(info) = broker.run_info(run)? else {
        return Ok(None);
    };
    let mut tallies = Tallies::default();
    for record in broker.events(run)? {
        tallies.add(&record.event);
    }
    let failed = steps.iter().find(|step| step.outcome != Outcome::Passed);
    let whole = tallies.whole();
    Ok(Some(Report {
        run: run.clone(),
        policy: info.policy,
        state: info.state,
        outcome: failed.map_or(Outcome::Passed, |step| step.outcome.clone()),
        reached: whole.reached(),
        denied: whole.denied(),
        failed: whole.failed(),
        resumed: None,
        resume_from: failed.map(|step| step.name.clone()),
        changes: None,
        interrupted: None,
        not_isolated: Vec::new(),
        steps,
    }))
}

/// The report of a run: the one that was kept, with what was reached since.
pub(super) fn report(broker: &Broker, run: &RunId) -> Result<Option<Report>, Error> {
    let kept = broker.report(run)?;
    let steps = kept.as_ref().map(|kept| kept.steps.clone());
    let now = compose(broker, run, steps.unwrap_or_default())?;
    Ok(now.map(|now| match kept {
        // What else it says stays.
        Some(kept) => Report {
            state: now.state,
            reached: now.reached,
            denied: now.denied,
            failed: now.failed,
            ..kept
        },
        None => now,
    }))
}

/// Each leaves a line in the report, and the report is written down after each.
const MOST_STEPS: usize = 500;

const MOST_WAITING: usize = 8;

/// Each has a thread of its own.
const MOST_AT_ONCE: usize = 64;
