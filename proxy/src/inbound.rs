//! What is known of the connection that a request came on: whose it is, and where it leads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header;
use http::request::Parts;
use policies::Scheme;
use sdk::Code;
use sdk::audit::Door;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::authn;
use crate::core::Core;
use crate::destination::{self, Destination};
use crate::principal::{Listening, Principal};
use crate::refusal::Refusal;
use crate::watch::Activity;

/// A connection on which requests come in.
pub(crate) struct Inbound {
    pub(crate) core: Arc<Core>,
    pub(crate) door: Door,
    pub(crate) activity: Activity,
    pub(crate) owner: Owner,
    pub(crate) leads: Leads,
    /// Told when the run that was last identified here ends.
    pub(crate) ended: Arc<Notify>,
    /// Held until a token is shown, where one is needed.
    pub(crate) stranger: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Whose a connection is.
pub(crate) enum Owner {
    /// Each request has to say it; the answer to the last one is kept.
    Token(Mutex<Option<Proved>>),
    /// The door says it. A token of another run is refused.
    Door(Arc<Principal>),
    /// A tunnel that was opened with a token, or captured.
    Known(Arc<Principal>),
}

/// A value of `Proxy-Authorization`, and the run it was found to name.
pub(crate) struct Proved {
    value: Box<[u8]>,
    principal: Arc<Principal>,
    /// The connection does not outlive the run.
    _listening: Listening,
    /// It counts as one of the run's connections.
    _place: Option<OwnedSemaphorePermit>,
}

/// Where a connection leads.
pub(crate) enum Leads {
    /// Anywhere: each request names its place. The last place is kept.
    Anywhere(Mutex<Option<Arc<Destination>>>),
    /// To one place, which each request has to name.
    To(Arc<Destination>),
    /// To an address that means nothing to us: each request names its host, the scheme and port are those.
    ByHost(Scheme, u16),
}

impl Inbound {
    /// The run that a request belongs to.
    pub(crate) async fn identify(&self, parts: &Parts) -> Result<Arc<Principal>, Refusal> {
        let principal = match &self.owner {
            Owner::Known(principal) => Arc::clone(principal),
            Owner::Door(principal) => {
                if parts.headers.contains_key(header::PROXY_AUTHORIZATION) {
                    authn::confirm(&self.core, principal, tokens(parts))?;
                }
                Arc::clone(principal)
            }
            Owner::Token(proved) => match Self::proved_before(proved, tokens(parts)) {
                Some(principal) => principal,
                None => Box::pin(self.prove(proved, parts)).await?,
            },
        };
        // The run may have ended since its token was verified.
        if !principal.run().is_active() {
            return Err(Refusal::new(Code::RunEnded));
        }
        Ok(principal)
    }

    /// The run that the connection was last known to belong to.
    pub(crate) fn known(&self) -> Option<Arc<Principal>> {
        match &self.owner {
            Owner::Known(principal) | Owner::Door(principal) => Some(Arc::clone(principal)),
            Owner::Token(proved) => {
                let proved = proved.lock().unwrap_or_else(PoisonError::into_inner);
                proved.as_ref().map(|proved| Arc::clone(&proved.principal))
            }
        }
    }

    /// Returns if no token is shown for as long as a connection may be idle.
    pub(crate) async fn overstay(&self) {
        if self.is_stranger() {
            tokio::time::sleep(self.core.limits.idle).await;
        }
        if !self.is_stranger() {
            std::future::pending().await
        }
    }

    fn is_stranger(&self) -> bool {
        self.lock_stranger().is_some()
    }

    fn lock_stranger(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.stranger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run of the last request, if this one presents the same.
    fn proved_before<'h>(
        proved: &Mutex<Option<Proved>>,
        mut presented: impl Iterator<Item = &'h [u8]>,
    ) -> Option<Arc<Principal>> {
        let (value, None) = (presented.next()?, presented.next()) else {
            return None;
        };
        let proved = proved.lock().unwrap_or_else(PoisonError::into_inner);
        let before = proved.as_ref().filter(|before| *before.value == *value)?;
        Some(Arc::clone(&before.principal))
    }

    async fn prove(
        &self,
        proved: &Mutex<Option<Proved>>,
        parts: &Parts,
    ) -> Result<Arc<Principal>, Refusal> {
        let principal = authn::identify(&self.core, tokens(parts))?;
        drop(self.lock_stranger().take());
        // A connection that goes over to another run gives the place it had first, so none is ever waited for in turn.
        let before = proved.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(before);
        let place = Arc::clone(&principal.bounds.connections)
            .acquire_owned()
            .await;
        let value = tokens(parts).next().unwrap_or_default().into();
        *proved.lock().unwrap_or_else(PoisonError::into_inner) = Some(Proved {
            value,
            _listening: principal.tell(Arc::clone(&self.ended)),
            _place: place.ok(),
            principal: Arc::clone(&principal),
        });
        Ok(principal)
    }

    /// The place that a request is meant for.
    pub(crate) fn destination(&self, parts: &Parts) -> Result<Arc<Destination>, Refusal> {
        match &self.leads {
            Leads::To(destination) => {
                destination::confirm(parts, destination)?;
                Ok(Arc::clone(destination))
            }
            Leads::ByHost(scheme, port) => {
                Ok(Arc::new(destination::of_host(parts, *scheme, *port)?))
            }
            Leads::Anywhere(last) => {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                let destination = destination::of_absolute_form(parts, last.as_ref())?;
                *last = Some(Arc::clone(&destination));
                Ok(destination)
            }
        }
    }
}

fn tokens(parts: &Parts) -> impl Iterator<Item = &[u8]> {
    let values = parts.headers.get_all(header::PROXY_AUTHORIZATION);
    values.iter().map(|value| value.as_bytes())
}
