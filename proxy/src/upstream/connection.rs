//! One connection to an upstream: its handshake, and how a request is put on it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sdk::Code;
use sdk::audit::Tls;
use tokio::io::{AsyncRead, AsyncWrite};

use super::dial::Dialled;
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

/// A connection that many requests share.
#[derive(Clone)]
pub(crate) struct Shared {
    sender: http2::SendRequest<Upload>,
    in_flight: Arc<AtomicUsize>,
}

/// Counts a request on a shared connection.
pub(crate) struct InFlight(Arc<AtomicUsize>);

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
                let alpn = session.alpn_protocol().map(<[u8]>::to_vec);
                let version = match session.protocol_version() {
                    Some(rustls::ProtocolVersion::TLSv1_3) => "1.3",
                    _ => "1.2",
                };
                let via = Arc::new(Via {
                    address,
                    tls: Some(Tls {
                        version: version.to_owned(),
                        alpn: alpn
                            .as_deref()
                            .map(|name| String::from_utf8_lossy(name).into_owned()),
                    }),
                });
                let sender = if alpn.as_deref() == Some(b"h2") {
                    Self::http2(*stream, limits).await?
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

    /// Puts a request on the connection. If it comes back, nothing of it was sent.
    pub(crate) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Upload>>> {
        match self {
            Self::One(sender) => sender.try_send_request(request).await,
            Self::Many(shared) => shared.sender.try_send_request(request).await,
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

    async fn http2<S>(stream: S, limits: &ProxyLimits) -> Result<Self, Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let header_bytes = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            // A stream that nobody reads must not stop the others.
            .initial_connection_window_size(STREAM_WINDOW * STREAMS)
            .max_header_list_size(header_bytes)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Refusal::new(Code::UpstreamUnreachable))?;
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self::Many(Shared {
            sender,
            in_flight: Arc::default(),
        }))
    }
}

impl Shared {
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) fn has_room(&self) -> bool {
        // What almost every server takes at once; where one takes less, the rest waits in our queue.
        self.load() < STREAMS as usize
    }

    pub(crate) fn load(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(&self.in_flight))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 512 * 1024;
