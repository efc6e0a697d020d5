//! What stands behind every proxy: an HTTPS server that wants a key, and answers a kibibyte or as much as is asked for.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Channel, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

/// The key that it wants.
pub const KEY: &str = "bench-real-key-0123456789abcdef";

/// Starts it on a free port. It runs in the given runtime.
///
/// # Errors
/// When no port can be had.
pub fn start(
    runtime: &tokio::runtime::Handle,
    config: Arc<ServerConfig>,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let acceptor = TlsAcceptor::from(config);
    runtime.spawn(async move {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
            return;
        };
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let _ = stream.set_nodelay(true);
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                }
            });
        }
    });
    Ok(address)
}

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let has_key = request
        .headers()
        .get("authorization")
        .is_some_and(|value| value.as_bytes().strip_prefix(b"Bearer ") == Some(KEY.as_bytes()));
    let body = match request.uri().path().strip_prefix("/stream/") {
        Some(mebibytes) => stream(mebibytes.parse().unwrap_or(0)),
        None => Full::new(Bytes::from_static(&[b'x'; 1024])).boxed(),
    };
    let mut response = Response::new(body);
    if !has_key {
        *response.status_mut() = http::StatusCode::UNAUTHORIZED;
    }
    Ok(response)
}

fn stream(mebibytes: usize) -> BoxBody<Bytes, Infallible> {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(4);
    tokio::spawn(async move {
        let block = Bytes::from(vec![b'y'; 64 * 1024]);
        for _ in 0..mebibytes * 16 {
            if sender.send_data(block.clone()).await.is_err() {
                return;
            }
        }
    });
    body.boxed()
}
