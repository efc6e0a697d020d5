//! One connection of HTTP/2 that many requests share: its handshake, and how a request is put on it.
//!
//! hyper's client hands each request to a task that puts it on the connection, and spawns another that waits for the
//! answer. Nothing of that is needed here: whoever sends a request puts it on the connection itself.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body::Body;
use sdk::Code;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;

use super::connection::{Answered, Answering, Unanswered};
use super::received::Received;
use super::uploading::Uploading;
use crate::ProxyLimits;
use crate::body::Upload;
use crate::refusal::Refusal;

/// A connection that many requests share. It is closed when the last of these is dropped and no answer is awaited.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Open>);

struct Open {
    /// Held while a request is put on the connection, which takes time only where the server takes no more at once.
    sender: Arc<Mutex<SendRequest<Bytes>>>,
    in_flight: AtomicUsize,
    is_closed: AtomicBool,
}

/// The right to put a request on a connection.
type Sender = OwnedMutexGuard<SendRequest<Bytes>>;

/// The header of an answer on its way. The request is taken back when this is dropped.
pub(crate) struct Awaited(ResponseFuture);

/// Counts a request on a shared connection.
pub(crate) struct InFlight(Shared);

impl Shared {
    pub(super) async fn handshake<S>(stream: S, limits: &ProxyLimits) -> Result<Self, Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let header_bytes = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            // Until the server says how many it takes.
            .initial_max_send_streams(STREAMS as usize)
            .initial_window_size(STREAM_WINDOW)
            // A stream that nobody reads must not stop the others.
            .initial_connection_window_size(STREAM_WINDOW * STREAMS)
            .max_header_list_size(header_bytes)
            .max_send_buffer_size(SEND_BUFFER)
            .handshake(stream)
            .await
            .map_err(|_| Refusal::new(Code::UpstreamUnreachable))?;
        let open = Arc::new(Open {
            sender: Arc::new(Mutex::new(sender)),
            in_flight: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        });
        // What is held here would keep the connection open.
        let ending = Arc::downgrade(&open);
        tokio::spawn(async move {
            // What ends it is told to the requests that are on it.
            let _ = after_others(connection).await;
            if let Some(open) = ending.upgrade() {
                open.is_closed.store(true, Ordering::Relaxed);
            }
        });
        Ok(Self(open))
    }

    /// Whether it takes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Relaxed)
    }

    pub(crate) fn has_room(&self) -> bool {
        // What almost every server takes at once; where one takes less, the rest waits in our queue.
        self.load() < STREAMS as usize
    }

    pub(crate) fn load(&self) -> usize {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// Puts a request on the connection.
    pub(super) fn send(&self, request: Request<Upload>) -> Answering {
        if request.body().is_end_stream()
            && let Ok(mut sender) = Arc::clone(&self.0.sender).try_lock_owned()
            && is_ready(&mut sender)
        {
            let (head, body) = request.into_parts();
            return match put(&mut sender, head, &body) {
                Ok((answer, _)) => {
                    release(sender);
                    Answering::Shared(answer)
                }
                Err(error) => Answering::Other(Box::pin(std::future::ready(Err(error.into())))),
            };
        }
        let shared = self.clone();
        Answering::Other(Box::pin(async move { shared.send_in_turn(request).await }))
    }

    /// Puts a request on the connection once the server takes one more, and sends its body.
    async fn send_in_turn(&self, request: Request<Upload>) -> Answered {
        let mut sender = Arc::clone(&self.0.sender).lock_owned().await;
        if let Err(error) = poll_fn(|cx| sender.poll_ready(cx)).await {
            self.0.is_closed.store(true, Ordering::Relaxed);
            return Err(Unanswered::unsent(request, error));
        }
        let (head, body) = request.into_parts();
        let (answer, stream) = put(&mut sender, head, &body)?;
        let opening = release(sender);
        let uploading = if body.is_end_stream() {
            None
        } else {
            if let Some(opening) = opening {
                // What a body claims before the server takes the request would be missing to those that it has taken.
                let _ = opening.await;
            }
            Some(Uploading::start(body, stream))
        };
        let answered = answer.await;
        if let Some(uploading) = uploading {
            // An answer may come before the request has ended, and while it goes on.
            uploading.detach();
        }
        answered
    }
}

impl Future for Awaited {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        let answered = ready!(Pin::new(&mut self.0).poll(cx))?;
        let length = length(answered.headers());
        Poll::Ready(Ok(answered.map(|stream| Received::many(stream, length))))
    }
}

/// Whether the connection takes a request now.
fn is_ready(sender: &mut Sender) -> bool {
    let mut nobody = Context::from_waker(Waker::noop());
    matches!(sender.poll_ready(&mut nobody), Poll::Ready(Ok(())))
}

/// Lets the next request in once the server has taken the last one.
///
/// Until then the sender holds on to the last one, so that it could not be taken back if nobody looked after it.
fn release(mut sender: Sender) -> Option<JoinHandle<()>> {
    if is_ready(&mut sender) {
        return None;
    }
    Some(tokio::spawn(async move {
        // If the connection has ended instead, those who wait learn it by themselves.
        let _ = poll_fn(|cx| sender.poll_ready(cx)).await;
    }))
}

/// Puts a request on a connection that takes one.
fn put(
    sender: &mut SendRequest<Bytes>,
    head: Parts,
    body: &Upload,
) -> Result<(Awaited, SendStream<Bytes>), h2::Error> {
    let mut head = Request::from_parts(head, ());
    say_length(&mut head, body);
    let (answer, stream) = sender.send_request(head, body.is_end_stream())?;
    Ok((Awaited(answer), stream))
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Polls a connection only once the other tasks that can go on have done so: what they send then goes out in one write.
async fn after_others<T>(connection: impl Future<Output = T>) -> T {
    let mut connection = std::pin::pin!(connection);
    let mut is_turn = false;
    poll_fn(|cx| {
        is_turn = !is_turn;
        if is_turn {
            // A task that wakes itself stands at the end of the queue.
            cx.waker().wake_by_ref();
            Poll::Pending
        } else {
            connection.as_mut().poll(cx)
        }
    })
    .await
}

/// Says how long a body is, if that is known. `Content-Length` was taken out of what the run said.
fn say_length(head: &mut Request<()>, body: &Upload) {
    let Some(length) = body.size_hint().exact() else {
        return;
    };
    // With these, no body is what is expected (RFC 9110, section 8.6).
    let is_usual = matches!(
        *head.method(),
        Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT
    );
    if length > 0 || !is_usual {
        let fields = head.headers_mut();
        fields
            .entry(header::CONTENT_LENGTH)
            .or_insert_with(|| HeaderValue::from(length));
    }
}

/// The length that an answer says it has, unless it says several.
fn length(fields: &HeaderMap) -> Option<u64> {
    let mut lengths = fields
        .get_all(header::CONTENT_LENGTH)
        .iter()
        .map(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 512 * 1024;
/// What waits to be sent, of one request.
const SEND_BUFFER: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf;
    use h2::Reason;
    use http::Response;
    use http_body_util::BodyExt;
    use tokio::io::DuplexStream;

    type Server = h2::server::Connection<DuplexStream, Bytes>;

    /// A connection, and the server at its other end, which takes one request at a time.
    async fn connection() -> (Shared, Server) {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(1);
        let limits = ProxyLimits::default();
        let (shared, server) = tokio::join!(
            Shared::handshake(ours, &limits),
            builder.handshake::<_, Bytes>(theirs)
        );
        let (shared, mut server) = (shared.ok().unwrap(), server.unwrap());
        // Once the first request is answered, the server's limit is known.
        let answering = shared.send(get("/first"));
        answer(&mut server).await;
        let (answered, _) = tokio::join!(answering, idle(&mut server));
        assert_eq!(answered.ok().unwrap().status(), 200);
        (shared, server)
    }

    fn get(path: &str) -> Request<Upload> {
        let request =
            Request::get(format!("https://api.test{path}")).version(http::Version::HTTP_2);
        request.body(Upload::Empty).unwrap()
    }

    async fn answer(server: &mut Server) -> String {
        let (request, mut respond) = server.accept().await.unwrap().unwrap();
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from_static(b"ok"), true).unwrap();
        request.uri().path().to_owned()
    }

    /// Lets the server do what it has to do.
    async fn idle(server: &mut Server) {
        for _ in 0..64 {
            tokio::task::yield_now().await;
            poll_fn(|cx| {
                let _ = server.poll_closed(cx);
                Poll::Ready(())
            })
            .await;
        }
    }

    #[tokio::test]
    async fn requests_beyond_what_the_server_takes_at_once_wait_for_their_turn() {
        let (shared, mut server) = connection().await;
        let all = ["/a", "/b", "/c"].map(|path| tokio::spawn(shared.send(get(path))));
        let serving = async {
            for _ in 0..3 {
                answer(&mut server).await;
            }
            idle(&mut server).await;
        };
        serving.await;
        for answered in all {
            let answered = answered.await.unwrap().ok().unwrap();
            let body = answered.into_body().collect().await.unwrap().aggregate();
            assert_eq!(body.chunk(), b"ok");
        }
    }

    #[tokio::test]
    async fn a_request_that_waits_when_the_server_goes_away_comes_back() {
        let (shared, mut server) = connection().await;
        // The first is on the connection, the second is the next, the third waits in our queue.
        let all = ["/a", "/b", "/c"].map(|path| tokio::spawn(shared.send(get(path))));
        let (_, _respond) = server.accept().await.unwrap().unwrap();
        server.abrupt_shutdown(Reason::NO_ERROR);
        let _ = poll_fn(|cx| server.poll_closed(cx)).await;
        drop((server, _respond));
        let mut unsent = Vec::new();
        for answered in all {
            unsent.push(answered.await.unwrap().err().unwrap().unsent.is_some());
        }
        assert_eq!(unsent, [false, false, true]);
        assert!(shared.is_closed());
    }

    #[tokio::test]
    async fn a_request_that_nobody_waits_for_any_more_is_taken_back() {
        let (shared, mut server) = connection().await;
        let answering = tokio::spawn(shared.send(get("/a")));
        let (_, mut respond) = server.accept().await.unwrap().unwrap();
        answering.abort();
        let reset = async { poll_fn(|cx| respond.poll_reset(cx)).await.unwrap() };
        let reset = tokio::select! {
            reset = reset => reset,
            _ = poll_fn(|cx| server.poll_closed(cx)) => panic!("the connection has ended"),
        };
        assert_eq!(reset, Reason::CANCEL);
    }

    #[tokio::test]
    async fn a_connection_that_nobody_can_use_any_more_is_closed() {
        let (shared, mut server) = connection().await;
        drop(shared);
        assert!(server.accept().await.is_none());
    }
}
