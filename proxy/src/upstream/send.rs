//! Puts one request on a connection to its upstream, and a second time where that is harmless.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::uri::{PathAndQuery, Scheme as UriScheme, Uri};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use policies::{Digest, Scheme};
use sdk::Code;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::connection::Sender;
use super::dial::dial;
use super::pool::{Lease, Origin};
use crate::authz::Permit;
use crate::body::Upload;
use crate::core::Core;
use crate::destination::Destination;
use crate::fields::{Wishes, fit_request};
use crate::refusal::Refusal;

/// A request as it is to leave.
pub(crate) struct Outgoing {
    pub(crate) parts: Parts,
    pub(crate) target: PathAndQuery,
    pub(crate) wishes: Wishes,
    pub(crate) body: Upload,
    /// How much of the body was sent.
    pub(crate) uploaded: Option<Arc<AtomicU64>>,
}

/// Sends a permitted request; returns the answer's header and the connection its body comes on.
pub(crate) async fn send(
    core: &Core,
    permit: &Permit,
    policy: &Digest,
    outgoing: Outgoing,
) -> Result<(Response<Incoming>, Lease), Refusal> {
    let Outgoing {
        mut parts,
        target,
        wishes,
        mut body,
        uploaded,
    } = outgoing;
    let origin = permit.principal().pool.origin(permit, policy);
    let is_harmless = matches!(body, Upload::Empty) && is_idempotent(&parts.method);
    let mut is_second = false;
    loop {
        let pooled = if is_second { None } else { origin.checkout() };
        let is_pooled = pooled.is_some();
        let (mut lease, idle_for) = match pooled {
            Some(checkout) => (checkout.lease, checkout.idle_for),
            // On the heap, because a handshake is large and each request is moved with room for one.
            None => (
                Box::pin(connect(core, permit, &origin)).await?,
                Duration::ZERO,
            ),
        };
        // A server closes what was idle for a while just as we use it again; only then is a copy worth its price.
        let copy = (is_pooled && is_harmless && idle_for > FRESH).then(|| parts.clone());
        let version = lease.sender().version();
        fit(&mut parts, version, wishes, permit.destination(), &target)?;
        let mut request = Request::from_parts(parts, body);
        let flood = count_interim(&mut request, version);
        let answer = lease.sender().send(request);
        let answer = patiently(core.limits.answer, uploaded.as_deref(), answer);
        let answered = match flood {
            None => answer.await?,
            Some(flood) => tokio::select! {
                answered = answer => answered?,
                () = flood.notified() => return Err(Refusal::new(Code::UpstreamUnreachable)),
            },
        };
        let mut error = match answered {
            Ok(response) => return Ok((response, lease)),
            Err(error) => error,
        };
        match (error.take_message(), copy) {
            (Some(request), _) if is_pooled => (parts, body) = request.into_parts(),
            (None, Some(copy)) => (parts, body) = (copy, Upload::Empty),
            (_, _) => {
                let error = error.into_error();
                tracing::debug!(%error, "an upstream did not answer");
                // The only thing of ours that can fail there is the body that the run sends.
                return Err(if error.is_user() {
                    Refusal::ambiguous("the body breaks off, or cannot be read")
                } else {
                    Refusal::new(Code::UpstreamUnreachable)
                });
            }
        }
        is_second = true;
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
    target: &PathAndQuery,
) -> Result<(), Refusal> {
    fit_request(parts, version, wishes, destination.field());
    let mut uri = http::uri::Parts::default();
    uri.path_and_query = Some(target.clone());
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

/// Waits for an answer for as long as the upload goes on, and a while after.
async fn patiently<T>(
    patience: Duration,
    uploaded: Option<&AtomicU64>,
    answer: impl Future<Output = T>,
) -> Result<T, Refusal> {
    let count = || uploaded.map_or(0, |count| count.load(Ordering::Relaxed));
    let mut answer = std::pin::pin!(answer);
    loop {
        let before = count();
        match timeout(patience, &mut answer).await {
            Ok(answer) => return Ok(answer),
            Err(_) if count() > before => {}
            Err(_) => return Err(Refusal::new(Code::UpstreamTimeout)),
        }
    }
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
