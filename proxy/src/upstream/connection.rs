//! One connection to an upstream: its handshake, and how a request is put on it.

use std::borrow::Cow;
use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, Version};
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use sdk::Code;
use sdk::audit::Tls;
use tokio::io::{AsyncRead, AsyncWrite};

use super::dial::Dialled;
use super::received::Received;
use super::shared::{Awaited, Shared};
use crate::ProxyLimits;
use crate::address::Vetted;
use crate::body::Upload;
use crate::refusal::Refusal;

/// Where a connection leads.
#[derive(Debug)]
pub(crate) struct Via {
    pub(crate) address: Vetted,
    pub(crate) tls: Option<Tls>,
}

/// A connection that a request can be put on.
pub(crate) enum Sender {
    /// HTTP/1.1: one request at a time.
    One(http1::SendRequest<Upload>),
    /// HTTP/2: many.
    Many(Shared),
}

/// An answer's header on its way, which is taken along by every request and so is small.
pub(crate) enum Answering {
    /// On a shared connection.
    Shared(Awaited),
    /// On a connection of its own, or on a shared one that did not take the whole request at once.
    Other(Pin<Box<dyn Future<Output = Answered> + Send>>),
}

/// The header of an answer.
pub(crate) type Answered = Result<Response<Received>, Unanswered>;

/// A request that was not answered.
pub(crate) struct Unanswered {
    /// The request, if nothing of it was sent.
    pub(crate) unsent: Option<Box<Request<Upload>>>,
    /// Whether it is the run's own body that broke off.
    pub(crate) is_by_run: bool,
    pub(crate) error: Box<dyn Error + Send + Sync>,
}

impl Sender {
    /// Speaks what TLS agreed on, or HTTP/1.1.
    pub(crate) async fn handshake(
        dialled: Dialled,
        address: Vetted,
        limits: &ProxyLimits,
    ) -> Result<(Self, Arc<Via>), Refusal> {
        match dialled {
            Dialled::Plain(stream) => {
                let via = Via { address, tls: None };
                Ok((Self::http1(stream, limits).await?, Arc::new(via)))
            }
            Dialled::Tls(stream) => {
                let session = stream.get_ref().1;
                let is_http2 = session.alpn_protocol() == Some(b"h2");
                let version = match session.protocol_version() {
                    Some(rustls::ProtocolVersion::TLSv1_3) => "1.3",
                    _ => "1.2",
                };
                let via = Arc::new(Via {
                    address,
                    tls: Some(Tls {
                        version: version.into(),
                        alpn: session.alpn_protocol().map(named),
                    }),
                });
                let sender = if is_http2 {
                    Self::Many(Shared::handshake(*stream, limits).await?)
                } else {
                    Self::http1(*stream, limits).await?
                };
                Ok((sender, via))
            }
        }
    }

    pub(crate) fn version(&self) -> Version {
        match self {
            Self::One(_) => Version::HTTP_11,
            Self::Many(_) => Version::HTTP_2,
        }
    }

    /// Puts a request on the connection.
    pub(crate) fn send(&mut self, request: Request<Upload>) -> Answering {
        match self {
            Self::One(sender) => {
                let answered = sender.try_send_request(request);
                Answering::Other(Box::pin(
                    async move { Ok(answered.await?.map(Received::One)) },
                ))
            }
            Self::Many(shared) => shared.send(request),
        }
    }

    async fn http1<S>(stream: S, limits: &ProxyLimits) -> Result<Self, Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_header_size(limits.header_bytes)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Refusal::new(Code::UpstreamUnreachable))?;
        tokio::spawn(async move {
            // What ends it is told to the request that is on it.
            let _ = connection.await;
        });
        poll_fn(|cx| sender.poll_ready(cx))
            .await
            .map_err(|_| Refusal::new(Code::UpstreamUnreachable))?;
        Ok(Self::One(sender))
    }
}

impl Future for Answering {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answered> {
        match &mut *self {
            Self::Shared(awaited) => Pin::new(awaited).poll(cx),
            Self::Other(answered) => answered.as_mut().poll(cx),
        }
    }
}

impl Unanswered {
    /// Nothing of the request was sent.
    pub(super) fn unsent(request: Request<Upload>, error: h2::Error) -> Self {
        Self {
            unsent: Some(Box::new(request)),
            is_by_run: false,
            error: error.into(),
        }
    }
}

impl From<TrySendError<Request<Upload>>> for Unanswered {
    fn from(mut error: TrySendError<Request<Upload>>) -> Self {
        let unsent = error.take_message().map(Box::new);
        let error = error.into_error();
        Self {
            unsent,
            // The only thing of ours that can fail there is the body that the run sends.
            is_by_run: error.is_user(),
            error: error.into(),
        }
    }
}

impl From<h2::Error> for Unanswered {
    fn from(error: h2::Error) -> Self {
        Self {
            unsent: None,
            // We reset a stream that we still wait for only where the run's body broke off.
            is_by_run: error.is_reset() && !error.is_remote() && !error.is_library(),
            error: error.into(),
        }
    }
}

/// What ALPN agreed on, as the audit log says it.
fn named(protocol: &[u8]) -> Cow<'static, str> {
    match protocol {
        b"h2" => Cow::Borrowed("h2"),
        b"http/1.1" => Cow::Borrowed("http/1.1"),
        other => Cow::Owned(String::from_utf8_lossy(other).into_owned()),
    }
}
