//! Refusals become responses here, and nowhere else.

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;
use policies::Host;
use sdk::{Code, Denial, RequestId, RunId};

use crate::body::Body;
use crate::refusal::{Refusal, advice};

/// What is known of a refused request.
pub(crate) struct Asked<'r> {
    pub(crate) request: &'r RequestId,
    pub(crate) run: Option<&'r RunId>,
    pub(crate) host: Option<&'r Host>,
    pub(crate) method: Option<&'r str>,
    pub(crate) policy: Option<&'r str>,
    pub(crate) is_grpc: bool,
}

/// The answer to a request inside HTTP.
pub(crate) fn refuse(refusal: &Refusal, asked: &Asked<'_>) -> Response<Body> {
    if asked.is_grpc {
        return refuse_grpc(refusal);
    }
    let body = document(refusal, asked);
    let mut response = Response::new(Body::whole(body.into()));
    *response.status_mut() = status(refusal);
    let fields = response.headers_mut();
    for (name, value) in fields_of(refusal.code) {
        fields.insert(name, value);
    }
    if refusal.is_final() {
        fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(reason) = ReasonPhrase::try_from(reason(refusal.code, asked.host)) {
        response.extensions_mut().insert(reason);
    }
    response
}

/// The answer to a CONNECT, byte for byte; its reason phrase is all that most clients show.
pub(crate) fn refuse_connect(refusal: &Refusal, asked: &Asked<'_>) -> Vec<u8> {
    let body = document(refusal, asked);
    let mut answer = format!(
        "HTTP/1.1 {} {}\r\n",
        status(refusal).as_u16(),
        reason(refusal.code, asked.host)
    )
    .into_bytes();
    for (name, value) in fields_of(refusal.code) {
        answer.extend_from_slice(name.as_str().as_bytes());
        answer.extend_from_slice(b": ");
        answer.extend_from_slice(value.as_bytes());
        answer.extend_from_slice(b"\r\n");
    }
    if refusal.is_final() {
        answer.extend_from_slice(b"connection: close\r\n");
    }
    answer.extend_from_slice(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
    answer.extend_from_slice(&body);
    answer
}

fn refuse_grpc(refusal: &Refusal) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let fields = response.headers_mut();
    fields.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    // PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAUTHENTICATED, UNAVAILABLE.
    let number = match status(refusal).as_u16() {
        407 => "16",
        429 => "8",
        502..=504 => "14",
        _ => "7",
    };
    fields.insert("grpc-status", HeaderValue::from_static(number));
    fields.insert(
        "grpc-message",
        HeaderValue::from_static(refusal.code.as_str()),
    );
    fields.insert(DENIAL, HeaderValue::from_static(refusal.code.as_str()));
    response
}

fn document(refusal: &Refusal, asked: &Asked<'_>) -> Vec<u8> {
    let code = refusal.code;
    let denial = Denial {
        kind: format!("urn:valetkey:denial:{code}"),
        title: code.title().to_owned(),
        status: refusal.status(),
        code,
        run: asked.run.cloned(),
        request: asked.request.clone(),
        host: asked.host.map(ToString::to_string),
        method: asked.method.map(str::to_owned),
        policy: asked.policy.map(str::to_owned),
        retryable: code.is_retryable(),
        hint: refusal
            .hint
            .clone()
            .unwrap_or_else(|| advice(code, asked.host))
            .into_owned(),
    };
    // A struct of texts and numbers always has a JSON form.
    serde_json::to_vec(&denial).unwrap_or_default()
}

fn fields_of(code: Code) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let is_auth = code.status() == 407;
    let proxy_status = format!("valetkey; error={}; details=\"{code}\"", error_type(code));
    [
        Some((
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        )),
        Some((DENIAL, HeaderValue::from_static(code.as_str()))),
        HeaderValue::try_from(proxy_status)
            .ok()
            .map(|value| (PROXY_STATUS, value)),
        is_auth.then(|| {
            (
                header::PROXY_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"valetkey\""),
            )
        }),
        Some((header::CACHE_CONTROL, HeaderValue::from_static("no-store"))),
    ]
    .into_iter()
    .flatten()
}

/// The code and the host asked for, in one line of ASCII.
fn reason(code: Code, host: Option<&Host>) -> String {
    match host {
        Some(host) => format!("{code}: {host}"),
        None => code.as_str().to_owned(),
    }
}

/// The error types of RFC 9209, section 2.3.
fn error_type(code: Code) -> &'static str {
    match code {
        Code::UpstreamUnreachable => "destination_unavailable",
        Code::UpstreamTls => "tls_certificate_error",
        Code::UpstreamTimeout => "connection_timeout",
        Code::AddressNotAllowed => "destination_ip_prohibited",
        Code::AmbiguousRequest | Code::AuthorityMismatch => "http_request_error",
        Code::AuditUnavailable | Code::CredentialUnavailable | Code::PolicyReloading => {
            "proxy_internal_error"
        }
        _ => "http_request_denied",
    }
}

fn status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN)
}

const DENIAL: HeaderName = HeaderName::from_static("valetkey-denial");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// A 200 that opens a tunnel.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A fatal TLS alert `unrecognized_name` (RFC 8446, section 6.2), in a record of its own.
pub(crate) const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x70];
