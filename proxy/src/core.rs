//! What all connections of a proxy share.

use std::net::SocketAddr;
use std::sync::Arc;

use broker::{Broker, Run};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use ipnet::IpNet;
use policies::{Authority, Host, StepName};
use sdk::{Code, RunId};
use tokio::sync::Semaphore;

use crate::principal::{Bounds, Principal};
use crate::refusal::Refusal;
use crate::tls::{LeafKey, Trust};
use crate::upstream::Resolver;
use crate::{Error, ProxyLimits, ProxySettings, descriptors};

/// What all connections of a proxy share.
pub(crate) struct Core {
    pub(crate) broker: Arc<Broker>,
    pub(crate) limits: ProxyLimits,
    pub(crate) resolver: Resolver,
    pub(crate) trust: Trust,
    pub(crate) leaf_key: Arc<LeafKey>,
    settings: ProxySettings,
    /// Those of shared doors. A door of a run's own has one of its own.
    principals: DashMap<Asking, Arc<Principal>>,
    /// What each run may have at a time, for as long as it lasts.
    bounds: DashMap<RunId, Arc<Bounds>>,
    /// One for each connection that has not shown a token yet.
    pub(crate) strangers: Arc<Semaphore>,
}

/// A run, or one step of it.
type Asking = (RunId, Option<StepName>);

impl Core {
    pub(crate) fn new(broker: Arc<Broker>, settings: ProxySettings) -> Result<Self, Error> {
        let mut limits = settings.limits;
        let share = descriptors::share();
        limits.connections = limits.connections.min(share);
        let strangers = limits.strangers.min(share).min(Semaphore::MAX_PERMITS);
        Ok(Self {
            broker,
            limits,
            resolver: Resolver::new(&settings.upstream)?,
            trust: Trust::new(&settings.upstream.roots)?,
            leaf_key: Arc::new(LeafKey::generate()?),
            settings,
            principals: DashMap::new(),
            bounds: DashMap::new(),
            strangers: Arc::new(Semaphore::new(strangers)),
        })
    }

    /// What the proxy keeps for a run or a step at the shared doors, made when it is first needed and dropped when the
    /// run ends.
    pub(crate) fn principal(
        self: &Arc<Self>,
        run: Arc<Run>,
        step: Option<StepName>,
    ) -> Result<Arc<Principal>, Refusal> {
        if !run.is_active() {
            return Err(Refusal::new(Code::RunEnded));
        }
        let asking = (run.id().clone(), step);
        if let Some(principal) = self.principals.get(&asking) {
            return Ok(Arc::clone(&principal));
        }
        let bounds = self.bounds(&run);
        match self.principals.entry(asking) {
            Entry::Occupied(principal) => Ok(Arc::clone(principal.get())),
            Entry::Vacant(vacant) => {
                let step = vacant.key().1.clone();
                let principal = Principal::new(self, run, step, bounds)
                    // Only a broken random generator or TLS library comes here.
                    .map_err(|_| Refusal::new(Code::CredentialUnavailable))?;
                let principal = Arc::new(principal);
                let (core, asking) = (Arc::clone(self), vacant.key().clone());
                vacant.insert(Arc::clone(&principal));
                let ending = Arc::clone(&principal);
                tokio::spawn(async move {
                    ending.until_run_ends().await;
                    core.principals.remove(&asking);
                    ending.end();
                });
                Ok(principal)
            }
        }
    }

    /// What the proxy keeps for the own doors of a run or a step. Whoever opens the doors ends it with them.
    pub(crate) fn behind_doors(
        self: &Arc<Self>,
        run: Arc<Run>,
        step: Option<StepName>,
    ) -> Result<Arc<Principal>, Error> {
        if !run.is_active() {
            return Err(Error::RunEnded);
        }
        let bounds = self.bounds(&run);
        let principal = Arc::new(Principal::new(self, run, step, bounds)?);
        let ending = Arc::clone(&principal);
        tokio::spawn(async move {
            tokio::select! {
                () = ending.until_run_ends() => ending.end(),
                () = ending.ended() => {}
            }
        });
        Ok(principal)
    }

    fn bounds(self: &Arc<Self>, run: &Arc<Run>) -> Arc<Bounds> {
        match self.bounds.entry(run.id().clone()) {
            Entry::Occupied(bounds) => Arc::clone(bounds.get()),
            Entry::Vacant(vacant) => {
                let bounds = Arc::new(Bounds::new(self, run));
                vacant.insert(Arc::clone(&bounds));
                let (core, run) = (Arc::clone(self), Arc::clone(run));
                tokio::spawn(async move {
                    run.ended().await;
                    core.bounds.remove(run.id());
                });
                bounds
            }
        }
    }

    /// The special ranges that may be dialled for a host.
    pub(crate) fn allowed_ranges(&self, host: &Host) -> &[IpNet] {
        self.settings
            .upstream
            .addresses
            .get(host)
            .map_or(&[], Vec::as_slice)
    }

    /// Where the owner wants a name to be dialled instead.
    pub(crate) fn override_of(&self, host: &Host, port: u16) -> Option<SocketAddr> {
        let overrides = &self.settings.upstream.connect;
        if overrides.is_empty() {
            return None;
        }
        overrides
            .get(&Authority {
                host: host.clone(),
                port,
            })
            .copied()
    }

    pub(crate) fn own_addresses(&self) -> &[SocketAddr] {
        &self.settings.own_addresses
    }
}
