//! A stand-in for a paid provider, on loopback: it answers 401 unless exactly the real key arrives.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;

/// The stand-in, while it runs.
#[derive(Debug)]
pub(crate) struct Provider {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The authority that signed its certificate, in PEM.
    pub(crate) ca_pem: String,
    /// What it saw.
    pub(crate) seen: Arc<Seen>,
}

/// How often the stand-in was called.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    with_real_key: AtomicU64,
    without: AtomicU64,
}

impl Seen {
    /// Calls that carried exactly the real key.
    pub(crate) fn with_real_key(&self) -> u64 {
        self.with_real_key.load(Ordering::Relaxed)
    }

    /// Calls that did not.
    pub(crate) fn without(&self) -> u64 {
        self.without.load(Ordering::Relaxed)
    }
}

impl Provider {
    /// Begins to serve `host` with `key` on a free port of loopback.
    pub(crate) async fn start(host: &str, key: &str) -> Result<Self, Failure> {
        let (config, ca_pem) = certificate(host).map_err(|error| {
            Failure::ours("cannot make a certificate for the demo").because(error)
        })?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(|error| {
                Failure::ours("cannot listen on loopback for the demo").because(error)
            })?;
        let address = listener.local_addr().map_err(|error| {
            Failure::ours("cannot listen on loopback for the demo").because(error)
        })?;
        let seen = Arc::new(Seen::default());
        let expected: Arc<str> = format!("Bearer {key}").into();
        tokio::spawn(accept(
            listener,
            TlsAcceptor::from(config),
            expected,
            Arc::clone(&seen),
        ));
        Ok(Self {
            address,
            ca_pem,
            seen,
        })
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, expected: Arc<str>, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, expected, seen) = (tls.clone(), Arc::clone(&expected), Arc::clone(&seen));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let service = service_fn(move |request| {
                answer(request, Arc::clone(&expected), Arc::clone(&seen))
            });
            // A client that breaks off is no concern of a stand-in.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    expected: Arc<str>,
    seen: Arc<Seen>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_real = request
        .headers()
        .get(header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes() == expected.as_bytes());
    if !is_real {
        seen.without.fetch_add(1, Ordering::Relaxed);
        let body = json!({"error": {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}});
        return Ok(reply(StatusCode::UNAUTHORIZED, &body));
    }
    seen.with_real_key.fetch_add(1, Ordering::Relaxed);
    let path = request.uri().path().to_owned();
    let Ok(body) = Limited::new(request.into_body(), MAX_BODY).collect().await else {
        return Ok(reply(
            StatusCode::PAYLOAD_TOO_LARGE,
            &json!({"error": {"message": "the body is too large"}}),
        ));
    };
    let asked: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
    let (status, body) = match path.as_str() {
        "/v1/responses" => (StatusCode::OK, response(&summary(&asked))),
        "/v1/chat/completions" => (StatusCode::OK, completion(&summary(&asked))),
        _ => (
            StatusCode::NOT_FOUND,
            json!({"error": {"message": "no such endpoint", "type": "invalid_request_error"}}),
        ),
    };
    Ok(reply(status, &body))
}

fn reply(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

/// What a model might say of the table in the request: it adds up the last column.
fn summary(asked: &Value) -> String {
    let text = asked.to_string();
    let mut rows = 0_u32;
    let mut total = 0.0_f64;
    for line in text.split("\\n") {
        let last = line.rsplit(',').next().unwrap_or_default();
        let number: String = last
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        if line.contains(',')
            && let Ok(value) = number.parse::<f64>()
        {
            rows += 1;
            total += value;
        }
    }
    format!("{rows} rows; the last column adds up to {total:.2}.")
}

fn response(text: &str) -> Value {
    json!({
        "id": "resp_demo", "object": "response", "created_at": 0, "status": "completed", "model": "demo",
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {}, "parallel_tool_calls": true,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "output": [{"id": "msg_demo", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}],
        "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2},
    })
}

fn completion(text: &str) -> Value {
    json!({
        "id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": "demo",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    })
}

/// A certificate for `host`, and the authority that signed it.
fn certificate(
    host: &str,
) -> Result<(Arc<rustls::ServerConfig>, String), Box<dyn std::error::Error + Send + Sync>> {
    let ca_key = rcgen::KeyPair::generate()?;
    let mut ca = rcgen::CertificateParams::new(Vec::new())?;
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    ca.distinguished_name
        .push(rcgen::DnType::CommonName, "Valetkey demo provider");
    let ca_pem = ca.self_signed(&ca_key)?.pem();
    let issuer = rcgen::Issuer::new(ca, ca_key);

    let key = rcgen::KeyPair::generate()?;
    let mut leaf = rcgen::CertificateParams::new(vec![host.to_owned()])?;
    leaf.use_authority_key_identifier_extension = true;
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let leaf = leaf.signed_by(&key, &issuer)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)?;
    Ok((Arc::new(config), ca_pem))
}

const MAX_BODY: usize = 1024 * 1024;
