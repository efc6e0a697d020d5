//! An upstream on loopback: it answers requests and remembers what reached it.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, Version};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// What an origin answers.
pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;

/// How an origin answers; it may block.
pub(crate) type Behaviour = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

/// The runtime that all stand-ins of this process share.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
});

/// One upstream.
#[derive(Clone)]
pub(crate) struct Origin {
    address: SocketAddr,
    memory: Arc<Memory>,
}

#[derive(Default)]
struct Memory {
    connections: AtomicUsize,
    seen: Mutex<Vec<Arc<Seen>>>,
}

/// One request as the upstream saw it. It has no `Debug`: it holds real keys.
pub(crate) struct Seen {
    pub(crate) head: Parts,
    pub(crate) body: Bytes,
}

impl Origin {
    /// Starts an origin on a free port; with TLS when `tls` is given.
    pub(crate) fn start(tls: Option<Arc<ServerConfig>>, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let memory = Arc::new(Memory::default());
        let kept = Arc::clone(&memory);
        RUNTIME.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let tls = tls.map(TlsAcceptor::from);
            while let Ok((stream, _)) = listener.accept().await {
                kept.connections.fetch_add(1, Ordering::SeqCst);
                let _ = stream.set_nodelay(true);
                let (memory, behaviour) = (Arc::clone(&kept), Arc::clone(&behaviour));
                let tls = tls.clone();
                RUNTIME.spawn(async move {
                    match tls {
                        None => serve(stream, memory, behaviour).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, memory, behaviour).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, memory }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections arrived, whatever came of them.
    pub(crate) fn connections(&self) -> usize {
        self.memory.connections.load(Ordering::SeqCst)
    }

    /// Every request so far.
    pub(crate) fn seen(&self) -> Vec<Arc<Seen>> {
        self.memory.seen.lock().unwrap().clone()
    }

    /// The newest request; fails when none came.
    pub(crate) fn last(&self) -> Arc<Seen> {
        self.seen().pop().expect("a request reached the origin")
    }
}

impl Seen {
    /// The values of a field, joined by `, `; empty when there is none.
    pub(crate) fn field(&self, name: &str) -> String {
        let values = self.head.headers.get_all(name).iter();
        let texts: Vec<_> = values
            .map(|v| String::from_utf8_lossy(v.as_bytes()))
            .collect();
        texts.join(", ")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.head.headers.contains_key(name)
    }

    /// The host that was asked for: `:authority` or `Host`.
    pub(crate) fn authority(&self) -> String {
        match self.head.uri.authority() {
            Some(authority) => authority.to_string(),
            None => self.field("host"),
        }
    }

    pub(crate) fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// The path with the query.
    pub(crate) fn target(&self) -> &str {
        self.head
            .uri
            .path_and_query()
            .map_or("", |both| both.as_str())
    }

    pub(crate) fn method(&self) -> &str {
        self.head.method.as_str()
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.head.version == Version::HTTP_2
    }
}

/// An answer with a whole body.
pub(crate) fn answer(status: u16, kind: &str, body: impl Into<Bytes>) -> Answer {
    Response::builder()
        .status(status)
        .header("content-type", kind)
        .body(Full::new(body.into()).boxed())
        .unwrap()
}

/// A JSON answer.
pub(crate) fn json(status: u16, body: &serde_json::Value) -> Answer {
    answer(status, "application/json", body.to_string())
}

async fn serve<S>(stream: S, memory: Arc<Memory>, behaviour: Behaviour)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (memory, behaviour) = (Arc::clone(&memory), Arc::clone(&behaviour));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let seen = Arc::new(Seen { head, body });
            memory.seen.lock().unwrap().push(Arc::clone(&seen));
            let answer = tokio::task::spawn_blocking(move || behaviour(&seen)).await;
            Ok::<_, hyper::Error>(answer.expect("the stand-in's behaviour returns"))
        }
    });
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
