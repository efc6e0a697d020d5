//! The broker and the proxy of this process, put together.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use broker::{Broker, CreateRunSpec, ErrorKind, NewRun, Run};
use launcher::{Brokered, Doors, Killer};
use policies::StepName;
use proxy::{DoorsOfRun, OpenDoors, Places, Proxy, ProxySettings, TakenConnection};
use sdk::RunId;
use sdk::tally::Tallies;
use tokio::runtime::Runtime;
use tokio_util::task::AbortOnDropHandle;

use crate::failure::Failure;
use crate::folders::Folders;
use crate::problem::chain;
use crate::project::Project;

/// What the commands that run or serve something need.
pub(crate) struct Engine {
    /// Runs, secrets and the log.
    pub(crate) broker: Arc<Broker>,
    /// What carries requests.
    pub(crate) proxy: Proxy,
    runtime: Runtime,
}

impl Engine {
    /// Opens the installation in `folders`. The `own_addresses` are never dialled for a run.
    pub(crate) fn open(
        runtime: Runtime,
        folders: &Folders,
        own_addresses: Vec<SocketAddr>,
    ) -> Result<Self, Failure> {
        let inside = runtime.enter();
        let broker = open_broker(folders)?;
        let settings = ProxySettings {
            upstream: broker.config().upstream.clone(),
            own_addresses,
            ..ProxySettings::default()
        };
        let proxy = Proxy::new(Arc::clone(&broker), settings).map_err(proxy_failure)?;
        runtime.block_on(proxy.negative_probe()).map_err(|error| {
            Failure::ours("a request that must be refused was not; nothing is served")
                .because(error)
        })?;
        drop(inside);
        Ok(Self {
            broker,
            proxy,
            runtime,
        })
    }

    /// Makes sure that upstreams can be verified, for those who rather know it at once.
    pub(crate) fn require_roots(&self) -> Result<(), Failure> {
        self.runtime
            .block_on(self.proxy.load_roots())
            .map_err(|error| Failure::ours("no upstream could be verified").because(error))
    }

    /// Where asynchronous work runs.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Creates a run of the project. The policy must have been approved.
    pub(crate) fn create_run(
        &self,
        project: &Project,
        approved: Option<&policies::Digest>,
        ttl: Option<Duration>,
    ) -> Result<NewRun, Failure> {
        self.runtime
            .block_on(self.broker.create_run(CreateRunSpec {
                policy: Arc::clone(&project.policy),
                project: project.folder.clone(),
                approved: approved.copied(),
                ttl,
                step: None,
            }))
            .map_err(broker_failure)
    }

    /// Serves the listeners of a sandbox, for this run only and by the rights of this step, until they are dropped.
    pub(crate) fn serve_run(
        &self,
        doors: Doors,
        run: &Arc<Run>,
        step: Option<&StepName>,
    ) -> Result<OpenDoors, Failure> {
        let mut listeners: Vec<TcpListener> = vec![doors.v4];
        listeners.extend(doors.v6);
        let doors = DoorsOfRun {
            listeners,
            dns_udp: vec![doors.dns_udp],
            dns_tcp: vec![doors.dns_tcp],
        };
        let _inside = self.runtime.enter();
        self.proxy
            .serve_run(doors, Arc::clone(run), step.cloned())
            .map_err(|error| {
                Failure::ours("the sandbox's listeners cannot be served").because(error)
            })
    }

    /// Serves the connections of a sandbox that has no network of its own, as [`Self::serve_run`].
    pub(crate) fn serve_brokered(
        &self,
        mut brokered: Brokered,
        run: &Arc<Run>,
        step: Option<&StepName>,
    ) -> Result<OpenDoors, Failure> {
        let next = move || {
            let taken = brokered.next()?;
            Some(TakenConnection {
                stream: taken.stream,
                destination: taken.destination,
            })
        };
        let _inside = self.runtime.enter();
        self.proxy
            .serve_run(DoorsOfRun::default(), Arc::clone(run), step.cloned())
            .and_then(|open| open.serve_taken(next).map(|()| open))
            .map_err(|error| {
                Failure::ours("the sandbox's connections cannot be served").because(error)
            })
    }

    /// Ends the sandbox when its run is revoked, or its time is over, for as long as what is returned is held: what has
    /// no rights any more shall not go on.
    pub(crate) fn end_with_run(&self, killer: Killer, run: &Arc<Run>) -> AbortOnDropHandle<()> {
        let run = Arc::clone(run);
        AbortOnDropHandle::new(self.runtime.spawn(async move {
            run.ended().await;
            killer.kill();
        }))
    }

    /// What a run reached so far, as a whole and step by step.
    pub(crate) fn tallies(&self, run: &RunId) -> Result<Tallies, Failure> {
        self.runtime
            .block_on(self.broker.audit().flush())
            .map_err(|error| Failure::ours("the audit log cannot be written").because(error))?;
        tallies(&self.broker, run)
    }
}

/// What a run reached, from the log.
pub(crate) fn tallies(broker: &Broker, run: &RunId) -> Result<Tallies, Failure> {
    let mut tally = Tallies::default();
    for record in broker
        .events(run)
        .map_err(|error| Failure::ours("the audit log cannot be read").because(error))?
    {
        tally.add(&record.event);
    }
    Ok(tally)
}

/// A runtime for commands that only ask.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::ours("cannot start the runtime").because(error))
}

/// The broker alone, for commands that serve nothing.
pub(crate) fn open_broker(folders: &Folders) -> Result<Arc<Broker>, Failure> {
    Broker::open(broker::Settings {
        state_dir: folders.state.clone(),
        config_dir: folders.config.clone(),
        durability: None,
    })
    .map_err(broker_failure)
}

/// How a failure of the broker is told: by who has to act.
pub(crate) fn broker_failure(error: broker::Error) -> Failure {
    if let broker::Error::Owner(found) = &error {
        let file = found.first().map_or("", |first| first.file.as_str());
        return Failure::mistakes(file, error.code(), found);
    }
    let message = chain(&error);
    let failure = match error.kind() {
        ErrorKind::NotApproved => Failure::not_approved(message),
        ErrorKind::Wrong => Failure::bad_policy(message),
        ErrorKind::NotFound => Failure::negative(message),
        ErrorKind::Ours => Failure::ours(message),
    };
    let failure = failure.named(error.code());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// How a proxy that cannot start is told: what the owner wrote is the owner's to correct.
fn proxy_failure(error: proxy::Error) -> Failure {
    let failure = match &error {
        proxy::Error::Roots { .. } | proxy::Error::Root { .. } => {
            Failure::bad_policy("the proxy cannot start, so nothing would run")
                .named("roots-unusable")
                .hint("correct `roots` under `[upstream]` in config.toml")
        }
        _ => Failure::ours("the proxy cannot start"),
    };
    failure.because(error)
}

/// The variables of a run: proxy, trust, placeholders.
pub(crate) fn environment(
    run: &Run,
    proxy_url: &str,
    ca_bundle: &str,
    token: Option<&str>,
    step: Option<&StepName>,
) -> BTreeMap<String, String> {
    proxy::environment(
        run,
        &Places {
            proxy_url,
            ca_bundle,
            ca_folder: None,
            wgetrc: None,
            java_trust_store: None,
            token,
            gateway: None,
            step,
        },
    )
}

/// Where programs inside a sandbox of ours find the proxy.
pub(crate) const INSIDE: &str = "http://127.0.0.1:3128";
