//! One request, from the run to its upstream and back. The order of the steps is the security property.

use std::convert::Infallible;
use std::sync::Arc;

use broker::{CredentialError, Found};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use policies::RequestPath;
use sdk::Code;
use smallvec::SmallVec;
use tokio::sync::OwnedSemaphorePermit;

use crate::authz::{self, Permit, Question};
use crate::body::{Body, Ends, Sent, Upload};
use crate::core::Core;
use crate::destination::{self, Destination};
use crate::fields::{self, Wishes};
use crate::inbound::{Inbound, Owner};
use crate::principal::Principal;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::slots::{self, Granted, Plan};
use crate::upstream::{self, Lease, Outgoing, Received};
use crate::{leak, respond, watch};

/// Answers one request. Every request leaves one final record, and every refusal is told.
pub(crate) fn answer(
    inbound: Arc<Inbound>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send {
    let core = &inbound.core;
    let active = inbound.activity.carry();
    let mut record = Record::new(&core.broker, inbound.door, request.method().as_str());
    let (parts, incoming) = request.into_parts();
    let is_grpc = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    // What a request needs on its way is moved with it, so that large things are on the heap.
    let parts = Box::new(parts);
    async move {
        let carried = carry(&inbound, &mut record, parts, incoming).await;
        Ok(match carried {
            Ok(carried) => pass(carried, record, active),
            Err(refusal) => {
                let told = match Box::pin(record.refuse(&refusal)).await {
                    Ok(()) => refusal,
                    Err(broker::AuditUnavailable) => Refusal::new(Code::AuditUnavailable),
                };
                respond::refuse(&told, &record.asked(is_grpc))
            }
        })
    }
}

/// The answer of an upstream, as the run gets it.
fn pass(carried: Carried, mut record: Record, active: watch::Carried) -> Response<Body> {
    let Carried {
        mut parts,
        incoming,
        lease,
        place,
    } = carried;
    record.answered(parts.status.as_u16());
    // hyper writes its own for a version that has none.
    parts.extensions.remove::<hyper::ext::ReasonPhrase>();
    let ends = Ends {
        lease,
        record,
        place,
        active,
    };
    Response::from_parts(parts, Body::passing(incoming, ends))
}

async fn carry(
    inbound: &Inbound,
    record: &mut Record,
    mut parts: Box<Parts>,
    incoming: Incoming,
) -> Result<Carried, Refusal> {
    let core = &inbound.core;
    let principal = match inbound.identify(&parts).await {
        Ok(principal) => principal,
        Err(refusal) => {
            if let Owner::Door(owner) = &inbound.owner {
                record.of_door(owner);
            }
            return Err(refusal);
        }
    };
    let policy = principal.policy();
    record.of(&principal, &policy);
    fields::refuse_long_header(&parts, core.limits.header_bytes)?;
    let place = principal.place().await?;
    let destination = inbound.destination(&parts)?;
    record.to(&destination);
    let wishes = fields::clean_request(&mut parts)?;
    let path = destination::path(&parts)?;
    let question = Question {
        method: &parts.method,
        path: &path,
        fields: &parts.headers,
        upgrade: wishes.upgrade,
    };
    let decision = authz::authorize(&principal, &policy, &destination, &question);
    let taken = take(
        record,
        &principal,
        &destination,
        &mut parts,
        &path,
        decision,
    );
    let (permit, plan) = match taken {
        Ok(taken) => taken,
        Err(Stopped::Refused(refusal)) => return Err(refusal),
        Err(Stopped::Misplaced(secret)) => {
            return Err(Box::pin(misplaced(record, secret)).await);
        }
    };
    for place in plan.grants() {
        if let Some(grant) = principal.run().grants().get(place) {
            record.with_secret(grant.secret_name());
        }
    }
    // Nothing is resolved or dialled before this line is written, and it says which secrets are about to leave.
    record
        .start()
        .await
        .map_err(|_| Refusal::new(Code::AuditUnavailable))?;
    inject(core, &permit, &plan, &mut parts, &path).await?;
    let sent = || Sent {
        count: record.uploads(),
        broker: Arc::clone(&core.broker),
        run: Arc::clone(principal.run()),
    };
    let outgoing = outgoing(sent, *parts, wishes, incoming);
    let (response, lease) = upstream::send(core, &permit, policy.digest(), outgoing).await?;
    let via = lease.via();
    record.reached(via.address.socket().ip(), via.tls.clone());
    let (mut parts, incoming) = response.into_parts();
    fields::clean_answer(&mut parts)?;
    Ok(Carried {
        parts,
        incoming,
        lease,
        place,
    })
}

/// The answer of an upstream, and what its body still needs.
struct Carried {
    parts: http::response::Parts,
    incoming: Received,
    lease: Lease,
    place: OwnedSemaphorePermit,
}

/// Why a request does not go on.
enum Stopped {
    Refused(Refusal),
    /// Something of the run stands where it must not: the placeholder of a secret, or the run's token.
    Misplaced(Option<Arc<str>>),
}

impl From<Refusal> for Stopped {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Takes credentials out of the request, and looks at what is left; refused requests are looked at too.
fn take(
    record: &mut Record,
    principal: &Principal,
    destination: &Destination,
    parts: &mut Parts,
    path: &RequestPath,
    decision: Result<Permit, Refusal>,
) -> Result<(Permit, Plan), Stopped> {
    let run = principal.run();
    let places: SmallVec<[usize; 2]> = match &decision {
        Ok(permit) => permit.grants().clone(),
        // A placeholder at a host that its secret is for is not misplaced, whatever else was wrong.
        Err(_) => covering(principal, destination),
    };
    let granted = Granted {
        all: run.grants(),
        places: &places,
    };
    let taken = slots::take(&mut parts.headers, path, &granted);
    let none = Plan::default();
    let plan = taken.as_ref().unwrap_or(&none);
    match leak::find(run, destination, parts, path, plan) {
        Some(Found::Placeholder(secret)) if taken.is_ok() => {
            return Err(Stopped::Misplaced(Some(secret.into())));
        }
        Some(Found::RunToken) => return Err(Stopped::Misplaced(None)),
        Some(Found::Placeholder(_)) | None => {}
    }
    if taken.is_ok() {
        let names = path
            .query_names()
            .map(std::borrow::Cow::into_owned)
            .collect();
        record.asking_for(plan.logged_path(path), names);
    }
    let permit = decision?;
    record.by_rule(permit.rule());
    Ok((permit, taken?))
}

/// Writes down that something of the run was sent where it does not belong.
async fn misplaced(record: &mut Record, secret: Option<Arc<str>>) -> Refusal {
    let written = record.misplaced(secret.as_deref()).await;
    let mut refusal = Refusal::new(match written {
        Ok(()) => Code::PlaceholderMisplaced,
        Err(broker::AuditUnavailable) => Code::AuditUnavailable,
    });
    refusal.secret = secret;
    refusal
}

fn covering(principal: &Principal, destination: &Destination) -> SmallVec<[usize; 2]> {
    let (scheme, host, port) = (destination.scheme(), destination.host(), destination.port());
    let grants = principal.run().grants().iter().enumerate();
    grants
        .filter(|(_, grant)| grant.covers(scheme, host, port))
        .map(|(place, _)| place)
        .collect()
}

/// Puts the credentials in. The broker checks each grant again; it does not trust us to have done so.
async fn inject(
    core: &Core,
    permit: &Permit,
    plan: &Plan,
    parts: &mut Parts,
    path: &RequestPath,
) -> Result<(), Refusal> {
    let run = permit.principal().run();
    let destination = permit.destination();
    let mut credentials: SmallVec<[(usize, Arc<broker::Credential>); 2]> = SmallVec::new();
    for place in plan.grants() {
        let Some(grant) = run.grants().get(place) else {
            return Err(Refusal::new(Code::CredentialUnavailable));
        };
        let (scheme, host, port) = (destination.scheme(), destination.host(), destination.port());
        let credential = core.broker.credential(run, grant, scheme, host, port);
        let credential = credential.await.map_err(|error| {
            let mut refusal = Refusal::new(match error {
                CredentialError::RunEnded => Code::RunEnded,
                CredentialError::AuditUnavailable => Code::AuditUnavailable,
                CredentialError::NotGranted(_)
                | CredentialError::OutsideBinding { .. }
                | CredentialError::Empty
                | CredentialError::NotText
                | CredentialError::TooLong(_)
                | CredentialError::Source(_) => Code::CredentialUnavailable,
            });
            tracing::warn!(%error, "a credential is not available");
            refusal.secret = Some(Arc::clone(grant.secret_name()));
            refusal
        })?;
        credentials.push((place, credential));
    }
    let target = plan.put(&mut parts.headers, path, |wanted| {
        credentials
            .iter()
            .find(|(place, _)| *place == wanted)
            .map(|(_, credential)| &**credential)
    })?;
    let target = PathAndQuery::try_from(target)
        .map_err(|_| Refusal::ambiguous("the path cannot be read in one way only"))?;
    parts.uri = target.into();
    Ok(())
}

fn outgoing(
    sent: impl FnOnce() -> Sent,
    mut parts: Parts,
    wishes: Wishes,
    incoming: Incoming,
) -> Box<Outgoing> {
    let (body, uploaded) = if http_body::Body::is_end_stream(&incoming) {
        if matches!(parts.method, Method::POST | Method::PUT | Method::PATCH) {
            // Some servers insist on it (RFC 9110, section 8.6).
            let zero = HeaderValue::from_static("0");
            parts.headers.insert(header::CONTENT_LENGTH, zero);
        }
        (Upload::Empty, None)
    } else {
        let sent = sent();
        let count = Arc::clone(&sent.count);
        (Upload::Passing(incoming, Box::new(sent)), Some(count))
    };
    Box::new(Outgoing {
        parts,
        wishes,
        body,
        uploaded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_output<F>(_: impl Fn(Arc<Inbound>, Request<Incoming>) -> F) -> usize {
        size_of::<F>()
    }

    // hyper moves it for every request.
    #[test]
    fn a_request_on_its_way_stays_small() {
        let size = size_of_output(answer);
        assert!(size < 2048, "{size} bytes");
    }
}
