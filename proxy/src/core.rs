//! What all connections of a proxy share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use broker::{Broker, Run};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use ipnet::IpNet;
use policies::{Authority, Host};
use sdk::{Code, RunId};
use tokio::sync::Semaphore;

use crate::principal::Principal;
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
    principals: DashMap<RunId, Arc<Principal>>,
    /// One for each connection that has not shown a token yet.
    pub(crate) strangers: Arc<Semaphore>,
}

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
            strangers: Arc::new(Semaphore::new(strangers)),
        })
    }

    /// What the proxy keeps for a run, made when it is first needed and dropped when the run ends.
    pub(crate) fn principal(self: &Arc<Self>, run: Arc<Run>) -> Result<Arc<Principal>, Refusal> {
        if !run.is_active() {
            return Err(Refusal::new(Code::RunEnded));
        }
        if let Some(principal) = self.principals.get(run.id()) {
            return Ok(Arc::clone(&principal));
        }
        match self.principals.entry(run.id().clone()) {
            Entry::Occupied(principal) => Ok(Arc::clone(principal.get())),
            Entry::Vacant(vacant) => {
                let principal = Principal::new(self, run)
                    // Only a broken random generator or TLS library comes here.
                    .map_err(|_| Refusal::new(Code::CredentialUnavailable))?;
                let principal = Arc::new(principal);
                vacant.insert(Arc::clone(&principal));
                let core = Arc::clone(self);
                let ending = Arc::clone(&principal);
                tokio::spawn(async move {
                    let sweeping = async {
                        loop {
                            tokio::time::sleep(SWEEP).await;
                            ending.pool.sweep();
                        }
                    };
                    tokio::select! {
                        () = ending.run().ended() => {}
                        () = sweeping => {}
                    }
                    core.principals.remove(ending.run().id());
                    ending.end();
                });
                Ok(principal)
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

const SWEEP: Duration = Duration::from_secs(30);
