//! May it: asks the policy, and makes the permit that everything further in requires.

use std::sync::Arc;

use http::{HeaderMap, Method};
use policies::{ConnectionDecision, Decision, Policy, Request, RequestPath, Scheme};
use sdk::Code;
use smallvec::SmallVec;

use crate::destination::Destination;
use crate::fields::Seen;
use crate::principal::Principal;
use crate::refusal::Refusal;

/// Proof that the policy allows one request, or one tunnel. Only this file makes one.
#[must_use]
pub(crate) struct Permit {
    principal: Arc<Principal>,
    destination: Arc<Destination>,
    rule: Arc<str>,
    /// Places in the run's grants.
    grants: Grants,
}

/// Grants of a run, by their places.
pub(crate) type Grants = SmallVec<[usize; 2]>;

impl Permit {
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    pub(crate) fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    pub(crate) fn rule(&self) -> &Arc<str> {
        &self.rule
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }
}

/// What is asked of the policy about one request.
pub(crate) struct Question<'q> {
    pub(crate) method: &'q Method,
    pub(crate) path: &'q RequestPath,
    pub(crate) fields: &'q HeaderMap,
    pub(crate) upgrade: bool,
}

/// Decides about a request.
pub(crate) fn authorize(
    principal: &Arc<Principal>,
    policy: &Policy,
    destination: &Arc<Destination>,
    question: &Question<'_>,
) -> Result<Permit, Refusal> {
    let run = principal.run();
    if !run.is_active() {
        return Err(Refusal::new(Code::RunEnded));
    }
    let decision = policy.decide(&Request {
        scheme: destination.scheme(),
        host: destination.host(),
        port: destination.port(),
        method: question.method.as_str(),
        target: question.path,
        headers: &Seen(question.fields),
        upgrade: question.upgrade,
    });
    match decision {
        Decision::Deny(refusal) => Err(refusal.into()),
        // Even where a rule allows it: frames of other protocols are not carried yet.
        Decision::Allow(_) if question.upgrade => Err(Refusal::new(Code::UpgradeNotAllowed)),
        Decision::Allow(allowed) => Ok(Permit {
            principal: Arc::clone(principal),
            destination: Arc::clone(destination),
            rule: Arc::clone(allowed.rule.label()),
            grants: grants(principal, destination, &allowed.secrets),
        }),
    }
}

/// What a connection may become, before its first request is seen.
pub(crate) enum Connection {
    /// Its requests are decided one by one.
    Inspected,
    /// It passes unread.
    Tunnel(Permit),
    /// Nothing is resolved or dialled for it.
    Refused(Refusal),
}

/// Decides about a connection.
pub(crate) fn authorize_connection(
    principal: &Arc<Principal>,
    destination: &Arc<Destination>,
) -> Connection {
    let run = principal.run();
    if !run.is_active() {
        return Connection::Refused(Refusal::new(Code::RunEnded));
    }
    let policy = principal.policy();
    let (host, port) = (destination.host(), destination.port());
    match policy.decide_connection(Scheme::Https, host, port) {
        ConnectionDecision::Inspect => Connection::Inspected,
        ConnectionDecision::Tunnel(rule) => Connection::Tunnel(Permit {
            principal: Arc::clone(principal),
            destination: Arc::clone(destination),
            rule: Arc::clone(rule.label()),
            grants: Grants::new(),
        }),
        // Some clients open a tunnel for plain http too; which it is shows in its first byte.
        ConnectionDecision::Refuse(refusal) => {
            match policy.decide_connection(Scheme::Http, host, port) {
                ConnectionDecision::Inspect => Connection::Inspected,
                ConnectionDecision::Tunnel(_) | ConnectionDecision::Refuse(_) => {
                    Connection::Refused(refusal.into())
                }
            }
        }
    }
}

/// The grants for the secrets that the policy names, where the owner lets them go to this place.
fn grants(principal: &Principal, destination: &Destination, secrets: &[&str]) -> Grants {
    let (scheme, host, port) = (destination.scheme(), destination.host(), destination.port());
    principal
        .run()
        .grants()
        .iter()
        .enumerate()
        .filter(|(_, grant)| secrets.contains(&grant.secret()) && grant.covers(scheme, host, port))
        .map(|(place, _)| place)
        .collect()
}
