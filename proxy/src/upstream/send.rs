//! Puts one request on a connection to its upstream, and a second time where that is harmless.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::uri::{Scheme as UriScheme, Uri};
use http::{Method, Request, Response, Version};
use policies::{Digest, Scheme};
use sdk::Code;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::connection::{Answered, Answering, Sender, Unanswered};
use super::dial::dial;
use super::pool::{Checkout, Lease, Origin};
use super::received::Received;
use crate::authz::Permit;
use crate::body::Upload;
use crate::core::Core;
use crate::destination::Destination;
use crate::fields::{Wishes, fit_request};
use crate::refusal::Refusal;

/// A request as it is to leave; its target is the path and query only.
pub(crate) struct Outgoing {
    pub(crate) parts: Parts,
    pub(crate) wishes: Wishes,
    pub(crate) body: Upload,
    /// How much of the body was sent.
    pub(crate) uploaded: Option<Arc<AtomicU64>>,
}

/// A request on a connection.
struct Sent {
    answering: Answering,
    /// Told when the upstream sends interim answers without end.
    flood: Option<Arc<Notify>>,
    uploaded: Option<Arc<AtomicU64>>,
    wishes: Wishes,
}

/// Sends a permitted request; returns the answer's header and the connection its body comes on.
pub(crate) async fn send(
    core: &Core,
    permit: &Permit,
    policy: &Digest,
    outgoing: Box<Outgoing>,
) -> Result<(Response<Received>, Lease), Refusal> {
    let origin = permit.principal().pool.origin(permit, policy);
    let Some(Checkout {
        mut lease,
        idle_for,
    }) = origin.checkout()
    else {
        return Box::pin(send_anew(core, permit, origin, outgoing)).await;
    };
    let is_harmless =
        matches!(outgoing.body, Upload::Empty) && is_idempotent(&outgoing.parts.method);
    // A server closes what was idle for a while just as we use it again; only then is a copy worth its price.
    let copy = (is_harmless && idle_for > FRESH).then(|| Box::new(outgoing.parts.clone()));
    let mut sent = put(*outgoing, &mut lease, permit.destination())?;
    let mut unanswered = match sent.answered(core.limits.answer).await? {
        Ok(response) => return Ok((response, lease)),
        Err(unanswered) => unanswered,
    };
    drop(lease);
    let (parts, body) = match (unanswered.unsent.take(), copy) {
        (Some(request), _) => request.into_parts(),
        (None, Some(copy)) => (*copy, Upload::Empty),
        (None, None) => return Err(refusal(&unanswered)),
    };
    let outgoing = Outgoing {
        parts,
        body,
        wishes: sent.wishes,
        uploaded: sent.uploaded,
    };
    Box::pin(send_anew(core, permit, origin, Box::new(outgoing))).await
}

/// Sends a request on a connection that is not one from the pool. Not within [`send`], because a handshake is large and
/// each request is moved with room for one.
async fn send_anew(
    core: &Core,
    permit: &Permit,
    origin: Arc<Origin>,
    outgoing: Box<Outgoing>,
) -> Result<(Response<Received>, Lease), Refusal> {
    let mut lease = connect(core, permit, &origin).await?;
    let mut sent = put(*outgoing, &mut lease, permit.destination())?;
    match sent.answered(core.limits.answer).await? {
        Ok(response) => Ok((response, lease)),
        Err(unanswered) => Err(refusal(&unanswered)),
    }
}

/// Puts a request on a connection.
fn put(outgoing: Outgoing, lease: &mut Lease, destination: &Destination) -> Result<Sent, Refusal> {
    let Outgoing {
        mut parts,
        wishes,
        body,
        uploaded,
    } = outgoing;
    let version = lease.sender().version();
    fit(&mut parts, version, wishes, destination)?;
    let mut request = Request::from_parts(parts, body);
    let flood = count_interim(&mut request, version);
    Ok(Sent {
        answering: lease.sender().send(request),
        flood,
        uploaded,
        wishes,
    })
}

impl Sent {
    /// Waits for an answer for as long as the upload goes on, and a while after.
    async fn answered(&mut self, patience: Duration) -> Result<Answered, Refusal> {
        let uploaded = self.uploaded.as_deref();
        let count = || uploaded.map_or(0, |count| count.load(Ordering::Relaxed));
        loop {
            let before = count();
            let answer = timeout(patience, &mut self.answering);
            let answered = match &self.flood {
                None => answer.await,
                Some(flood) => tokio::select! {
                    answered = answer => answered,
                    () = flood.notified() => return Err(Refusal::new(Code::UpstreamUnreachable)),
                },
            };
            match answered {
                Ok(answered) => return Ok(answered),
                Err(_) if count() > before => {}
                Err(_) => return Err(Refusal::new(Code::UpstreamTimeout)),
            }
        }
    }
}

/// What a run is told of a request without an answer.
fn refusal(unanswered: &Unanswered) -> Refusal {
    tracing::debug!(error = %unanswered.error, "an upstream did not answer");
    if unanswered.is_by_run {
        Refusal::ambiguous("the body breaks off, or cannot be read")
    } else {
        Refusal::new(Code::UpstreamUnreachable)
    }
}

async fn connect(core: &Core, permit: &Permit, origin: &Arc<Origin>) -> Result<Lease, Refusal> {
    let deadline = Instant::now() + core.limits.connect;
    // Until it is known that nothing can be shared, one dials and the others wait for what comes of it.
    let _dialling = if origin.is_http1() {
        None
    } else {
        let guard = origin.dialling.lock().await;
        if origin.is_http1() {
            if let Some(checkout) = origin.checkout() {
                return Ok(checkout.lease);
            }
            None
        } else if let Some(checkout) = origin.checkout_shared(true) {
            return Ok(checkout.lease);
        } else {
            Some(guard)
        }
    };
    let (address, dialled) = dial(core, permit, deadline).await?;
    let (sender, via) =
        tokio::time::timeout_at(deadline, Sender::handshake(dialled, address, &core.limits))
            .await
            .map_err(|_| Refusal::new(Code::UpstreamTimeout))??;
    Ok(origin.adopt(sender, via))
}

fn fit(
    parts: &mut Parts,
    version: Version,
    wishes: Wishes,
    destination: &Destination,
) -> Result<(), Refusal> {
    fit_request(parts, version, wishes, destination.field());
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = std::mem::take(&mut parts.uri).into_parts().path_and_query;
    if version == Version::HTTP_2 {
        uri.scheme = Some(match destination.scheme() {
            Scheme::Https => UriScheme::HTTPS,
            Scheme::Http => UriScheme::HTTP,
        });
        uri.authority = Some(destination.authority().clone());
    }
    parts.uri = Uri::from_parts(uri).map_err(|_| Refusal::ambiguous("the target is not one"))?;
    Ok(())
}

/// Told when an upstream sends interim answers (1xx) without end. Streams of HTTP/2 have their own bound.
fn count_interim(request: &mut Request<Upload>, version: Version) -> Option<Arc<Notify>> {
    if version == Version::HTTP_2 {
        return None;
    }
    let flood = Arc::new(Notify::new());
    let (told, count) = (Arc::clone(&flood), AtomicU32::new(0));
    hyper::ext::on_informational(request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) >= MOST_INTERIM {
            told.notify_one();
        }
    });
    Some(flood)
}

fn is_idempotent(method: &Method) -> bool {
    // RFC 9110, section 9.2.2.
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE
    )
}

const FRESH: Duration = Duration::from_millis(500);
/// Nobody needs more than a few `100`, `102` and `103`.
const MOST_INTERIM: u32 = 16;
