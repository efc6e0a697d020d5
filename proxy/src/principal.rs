//! What the proxy keeps for one step of a run, or for a run of no steps; no two share any of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use broker::Run;
use dashmap::DashMap;
use policies::{Digest, Policy, StepName};
use rustls::ClientConfig;
use sdk::Code;
use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::Error;
use crate::core::Core;
use crate::names::Names;
use crate::refusal::Refusal;
use crate::tls::ServerTls;
use crate::upstream::Pool;

/// What a run may have at a time. Its steps share it: a run in many steps may not have more than one in one.
pub(crate) struct Bounds {
    /// One for each connection.
    pub(crate) connections: Arc<Semaphore>,
    /// One for each connection of HTTP/2 that may have as many streams as the limits say.
    pub(crate) wide: Arc<Semaphore>,
    /// One for each request that may be in flight.
    requests: Arc<Semaphore>,
    /// One for each connection that asks for names over TCP.
    pub(crate) dns_connections: Arc<Semaphore>,
    /// One for each lookup of a name that may be going on.
    pub(crate) lookups: Arc<Semaphore>,
}

impl Bounds {
    pub(crate) fn new(core: &Core, run: &Run) -> Self {
        let room = |places: usize| Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self {
            connections: room(connections(core, run)),
            wide: room(core.limits.wide),
            requests: room(core.limits.requests),
            dns_connections: room(DNS_CONNECTIONS),
            lookups: room(LOOKUPS),
        }
    }
}

/// How something of a run is ended with it.
enum Ending {
    Abort(AbortHandle),
    Tell(Arc<Notify>),
}

/// A connection that is told when the run ends, for as long as this lives.
pub(crate) struct Listening {
    principal: Arc<Principal>,
    number: u64,
}

/// A run that was identified, or one step of it, with its certificates, its upstream connections and its names.
pub(crate) struct Principal {
    run: Arc<Run>,
    step: Option<StepName>,
    pub(crate) server_tls: ServerTls,
    client_tls: OnceCell<Arc<ClientConfig>>,
    pub(crate) pool: Pool,
    pub(crate) names: Names,
    /// The digest of the policy that the run began with, as text.
    digest: (Digest, Arc<str>),
    /// What the run may have at a time, all its steps together.
    pub(crate) bounds: Arc<Bounds>,
    tasks: DashMap<u64, Ending>,
    next_task: AtomicU64,
    has_ended: AtomicBool,
    /// Told of the end.
    over: Notify,
}

impl Principal {
    pub(crate) fn new(
        core: &Core,
        run: Arc<Run>,
        step: Option<StepName>,
        bounds: Arc<Bounds>,
    ) -> Result<Self, Error> {
        Ok(Self {
            server_tls: ServerTls::new(&run, &core.leaf_key)?,
            client_tls: OnceCell::new(),
            pool: Pool::default(),
            names: Names::default(),
            digest: {
                let digest = *run.policy().digest();
                (digest, digest.to_string().into())
            },
            bounds,
            tasks: DashMap::new(),
            next_task: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            over: Notify::new(),
            run,
            step,
        })
    }

    pub(crate) fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// A place for one more connection; waits for one where the run has as many as it may have.
    pub(crate) async fn place_for_connection(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.bounds.connections).acquire_owned().await;
        // It is never closed.
        place.map_err(|_| Refusal::new(Code::RunEnded))
    }

    /// The step, if this is one's.
    pub(crate) fn step(&self) -> Option<&StepName> {
        self.step.as_ref()
    }

    /// What is judged by: the run's policy, or what it leaves to the step.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let policy = self.run.policy();
        match &self.step {
            None => policy,
            Some(step) => policy.for_step(Some(step.as_str())),
        }
    }

    /// A place for one more request in flight; waits for one where the run has as many as it may have.
    ///
    /// It is held until the answer's last byte has passed, which is why this is no tower layer: those give the place back
    /// with the answer's header, and a stream has only begun then.
    pub(crate) async fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        if let Ok(place) = Arc::clone(&self.bounds.requests).try_acquire_owned() {
            return Ok(place);
        }
        let place = Arc::clone(&self.bounds.requests).acquire_owned().await;
        // It is never closed.
        place.map_err(|_| Refusal::new(Code::RunEnded))
    }

    /// TLS towards upstreams.
    pub(crate) async fn client_tls(&self, core: &Core) -> Result<Arc<ClientConfig>, Error> {
        self.client_tls
            .get_or_try_init(|| core.trust.client_config())
            .await
            .cloned()
    }

    /// The digest of a policy as text; writing it out costs more than deciding by it.
    pub(crate) fn digest_text(&self, digest: &Digest) -> Arc<str> {
        if self.digest.0 == *digest {
            Arc::clone(&self.digest.1)
        } else {
            digest.to_string().into()
        }
    }

    /// Does something for the run, until the run ends.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let number = self.next_task.fetch_add(1, Ordering::Relaxed);
        let principal = Arc::clone(self);
        // The entry is locked until the task stands in it, so a task that is over at once still finds itself there.
        let entry = self.tasks.entry(number);
        let task = tokio::spawn(async move {
            let _done = Done(&principal, number);
            work.await;
        });
        entry.insert(Ending::Abort(task.abort_handle()));
        // The run may have ended before it was there to be ended with it.
        if self.has_ended.load(Ordering::SeqCst) {
            task.abort();
        }
    }

    /// Tells a connection when the run ends.
    pub(crate) fn tell(self: &Arc<Self>, ended: Arc<Notify>) -> Listening {
        let number = self.next_task.fetch_add(1, Ordering::Relaxed);
        self.tasks.insert(number, Ending::Tell(Arc::clone(&ended)));
        if self.has_ended.load(Ordering::SeqCst) {
            ended.notify_one();
        }
        Listening {
            principal: Arc::clone(self),
            number,
        }
    }

    /// Keeps the house until the run ends.
    pub(crate) async fn until_run_ends(&self) {
        let sweeping = async {
            loop {
                tokio::time::sleep(SWEEP).await;
                self.pool.sweep();
            }
        };
        tokio::select! {
            () = self.run.ended() => {}
            () = sweeping => {}
        }
    }

    /// Resolves when this is ended, for the one who waits for it.
    pub(crate) async fn ended(&self) {
        self.over.notified().await;
    }

    /// Closes everything that is open here.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        // Kept for the one who comes to wait later.
        self.over.notify_one();
        for task in &self.tasks {
            match task.value() {
                Ending::Abort(task) => task.abort(),
                // Kept for the one who comes to listen later.
                Ending::Tell(ended) => ended.notify_one(),
            }
        }
        self.tasks.clear();
        self.pool.clear();
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.principal.tasks.remove(&self.number);
    }
}

/// Takes a task off the list, however it ended.
struct Done<'p>(&'p Principal, u64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.tasks.remove(&self.1);
    }
}

/// How many connections a run may have at a time: what its policy says, as far as the proxy lets anybody have that many.
fn connections(core: &Core, run: &Run) -> usize {
    let asked = run.policy().budget().connections;
    let most = core.limits.connections.min(Semaphore::MAX_PERMITS);
    asked
        .and_then(|asked| usize::try_from(asked).ok())
        .map_or(most, |asked| asked.min(most))
}

const SWEEP: Duration = Duration::from_secs(30);
const DNS_CONNECTIONS: usize = 64;
/// Lookups cannot be broken off, and all runs share the threads they block.
const LOOKUPS: usize = 32;
