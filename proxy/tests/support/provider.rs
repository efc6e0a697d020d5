//! A provider that answers 401 unless exactly the real key arrives.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use super::KEY;

/// A certificate authority of the outside world.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    pub(crate) der: rustls_pki_types::CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).unwrap();
        Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }
}

/// What kind of provider.
#[derive(Clone, Copy)]
pub(crate) struct Provider {
    pub(crate) is_http2: bool,
    pub(crate) is_tls: bool,
    /// Whether its certificate is for another name.
    pub(crate) is_impostor: bool,
}

impl Default for Provider {
    fn default() -> Self {
        Self {
            is_http2: false,
            is_tls: true,
            is_impostor: false,
        }
    }
}

/// What arrived at a provider.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) target: String,
    pub(crate) version: http::Version,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// A provider that runs.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    connections: Mutex<usize>,
    /// Sends what `/events` answers with.
    events: Mutex<Option<mpsc::Sender<Bytes>>>,
}

impl Running {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// Sends an event to whoever asked for `/events` last.
    pub(crate) async fn send(&self, event: &'static str) {
        let sender = self.state.events.lock().unwrap().clone().unwrap();
        sender
            .send(Bytes::from_static(event.as_bytes()))
            .await
            .unwrap();
    }

    /// Returns once nobody listens to `/events` any more.
    pub(crate) async fn unheard(&self) {
        let sender = self.state.events.lock().unwrap().clone().unwrap();
        sender.closed().await;
    }
}

impl Provider {
    pub(crate) async fn start(self, authority: &Authority, names: &[&str]) -> Running {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let names = if self.is_impostor {
            &["impostor.test"][..]
        } else {
            names
        };
        let acceptor = TlsAcceptor::from(self.tls(authority, names));
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *serving.connections.lock().unwrap() += 1;
                let (acceptor, state) = (acceptor.clone(), Arc::clone(&serving));
                tokio::spawn(async move { self.serve(acceptor, state, stream).await });
            }
        });
        Running { address, state }
    }

    async fn serve(self, acceptor: TlsAcceptor, state: Arc<State>, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let service = service_fn(move |request| answer(Arc::clone(&state), request));
        if !self.is_tls {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
            return;
        }
        let Ok(stream) = acceptor.accept(stream).await else {
            return;
        };
        let io = TokioIo::new(stream);
        if self.is_http2 {
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(io, service)
                .await;
        } else {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(io, service)
                .await;
        }
    }

    fn tls(self, authority: &Authority, names: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &authority.issuer).unwrap();
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .unwrap();
        let alpn: &[u8] = if self.is_http2 { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(config)
    }
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().unwrap().as_str().to_owned();
    let Ok(body) = body.collect().await else {
        return Ok(Response::new(Answer::Whole(None)));
    };
    let trailers = body.trailers().cloned();
    let seen = Seen {
        target: target.clone(),
        version: parts.version,
        fields: parts.headers.clone(),
        body: body.to_bytes(),
        trailers,
    };
    let is_known = is_authorized(&seen);
    state.seen.lock().unwrap().push(seen);
    if !is_known {
        let mut response = Response::new(Answer::Whole(Some(Bytes::from_static(b"no key"))));
        *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        return Ok(response);
    }
    if target == "/events" {
        let (sender, receiver) = mpsc::channel(8);
        *state.events.lock().unwrap() = Some(sender);
        return Ok(Response::builder()
            .header("content-type", "text/event-stream")
            .body(Answer::Stream(receiver))
            .unwrap());
    }
    let response = Response::builder()
        .header("alt-svc", "h3=\":443\"")
        .header("x-answer", "yes")
        .body(Answer::Whole(Some(Bytes::from_static(b"welcome"))))
        .unwrap();
    Ok(response)
}

/// Exactly the real key, in one of the places where keys stand.
fn is_authorized(seen: &Seen) -> bool {
    use base64::Engine;
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("git:{KEY}"));
    let is = |name: &str, value: &str| {
        let values: Vec<_> = seen.fields.get_all(name).iter().collect();
        values.len() == 1 && values[0] == value
    };
    is("authorization", &format!("Bearer {KEY}"))
        || is("authorization", &format!("Basic {basic}"))
        || is("x-api-key", KEY)
        || is("cookie", &format!("a=1; session={KEY}"))
        || is("cookie", &format!("session={KEY}"))
        || seen.target.ends_with(&format!("?key={KEY}"))
        || seen.target.ends_with(&format!("&key={KEY}"))
        || seen.target.starts_with(&format!("/bot{KEY}/"))
        || seen.target.starts_with("/open")
}

enum Answer {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Bytes>),
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(receiver) => receiver
                .poll_recv(cx)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Stream(_) => http_body::SizeHint::default(),
        }
    }
}
