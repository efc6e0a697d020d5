//! What comes through an opened tunnel: TLS, which is ended here, or plain HTTP.

use std::sync::{Arc, Mutex};

use policies::{Authority, Host, Scheme};
use sdk::Code;
use sdk::audit::Door;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use tokio_rustls::server::StartHandshake;

use crate::authz::{Connection, authorize_connection};
use crate::core::Core;
use crate::destination::Destination;
use crate::inbound::{Inbound, Leads, Owner};
use crate::principal::Principal;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::respond::UNRECOGNIZED_NAME;
use crate::serve;
use crate::stream::Stream;
use crate::tls::{Hello, read_hello};
use crate::watch::Activity;

/// Whether a client that asks for this port is expected to speak first, so that it can be told why it is refused.
pub(crate) fn is_inspected_port(port: u16) -> bool {
    port == 443 || port == 80 || port >= 1024
}

/// What is spoken, judged by the first byte.
pub(crate) enum Spoken {
    Tls,
    Http,
    Other,
    Nothing,
}

/// Looks at the first byte without taking it.
pub(crate) async fn spoken(core: &Core, stream: &mut Stream) -> Spoken {
    if stream.ahead().is_empty() {
        match timeout(core.limits.first_byte, stream.read_ahead()).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false) | Err(_)) | Err(_) => return Spoken::Nothing,
        }
    }
    let begin = &*stream.ahead();
    match begin.first() {
        Some(0x16) => Spoken::Tls,
        Some(byte) if byte.is_ascii_alphabetic() && may_be_request(begin) => Spoken::Http,
        Some(_) => Spoken::Other,
        None => Spoken::Nothing,
    }
}

/// Whether bytes that begin with a letter can still become a request line: a space ends the method (RFC 9112,
/// section 3). An SSH banner, for instance, ends its line first.
fn may_be_request(begin: &[u8]) -> bool {
    let end = begin
        .iter()
        .take(LONGEST_METHOD)
        .find(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    match end {
        Some(byte) => *byte == b' ',
        None => begin.len() < LONGEST_METHOD,
    }
}

/// Serves what comes through a tunnel to one place. The record is of the tunnel itself; it is written only if no
/// request comes of it.
pub(crate) async fn serve(
    core: Arc<Core>,
    mut stream: Stream,
    principal: Arc<Principal>,
    destination: Arc<Destination>,
    mut record: Record,
    door: Door,
) {
    match spoken(&core, &mut stream).await {
        Spoken::Tls => {
            let Ok(Ok(hello)) = timeout(core.limits.first_byte, read_hello(&mut stream)).await
            else {
                return note(record, Refusal::ambiguous("TLS cannot be read")).await;
            };
            let name = hello.server_name();
            if let Some(name) = &name
                && Host::parse(name).ok().as_ref() != Some(destination.host())
            {
                note(record, Refusal::new(Code::AuthorityMismatch)).await;
                let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
                return;
            }
            terminate(core, stream, hello, principal, destination, record, door).await;
        }
        Spoken::Http => {
            // The same place in clear.
            let authority = Authority {
                host: destination.host().clone(),
                port: destination.port(),
            };
            match Destination::new(Scheme::Http, authority) {
                Ok(plain) => {
                    record.forget();
                    let leads = Leads::To(Arc::new(plain));
                    serve_plain(core, stream, principal, leads, door).await;
                }
                Err(refusal) => note(record, refusal).await,
            }
        }
        Spoken::Other => note_other(&principal, &destination, record).await,
        Spoken::Nothing => note_nothing(&principal, &destination, record).await,
    }
}

/// Records that something else than TLS or HTTP was spoken.
pub(crate) async fn note_other(
    principal: &Arc<Principal>,
    destination: &Arc<Destination>,
    record: Record,
) {
    let refusal = match authorize_connection(principal, destination) {
        Connection::Refused(refusal) => refusal,
        Connection::Inspected | Connection::Tunnel(_) => {
            Refusal::ambiguous("neither TLS nor HTTP comes through the tunnel")
        }
    };
    note(record, refusal).await;
}

/// Some clients open tunnels in store. Only one that would have been refused is worth telling of.
pub(crate) async fn note_nothing(
    principal: &Arc<Principal>,
    destination: &Arc<Destination>,
    mut record: Record,
) {
    match authorize_connection(principal, destination) {
        Connection::Refused(refusal) => note(record, refusal).await,
        Connection::Inspected | Connection::Tunnel(_) => record.forget(),
    }
}

/// Ends TLS here, and serves what is inside.
pub(crate) async fn terminate(
    core: Arc<Core>,
    mut stream: Stream,
    hello: Hello,
    principal: Arc<Principal>,
    destination: Arc<Destination>,
    mut record: Record,
    door: Door,
) {
    let refusal = match authorize_connection(&principal, &destination) {
        Connection::Refused(refusal) => Some(refusal),
        Connection::Inspected | Connection::Tunnel(_) => None,
    };
    let has_name = hello.server_name().is_some();
    let config = principal
        .server_tls
        .config(destination.host(), has_name, refusal.is_some());
    let Some(config) = config else {
        return note(record, Refusal::new(Code::CredentialUnavailable)).await;
    };
    let activity = Activity::new();
    stream.watched_by(activity.clone());
    let handshake = StartHandshake::from_parts(hello.accepted, stream).into_stream(config);
    let Ok(Ok(stream)) = timeout(core.limits.first_byte, handshake).await else {
        // Most often a client that does not trust the run's authority.
        record.detail("the client ended the TLS handshake");
        if let Some(refusal) = refusal {
            note(record, refusal).await;
        }
        return;
    };
    record.forget();
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let inbound = Arc::new(Inbound {
        core,
        door,
        activity,
        owner: Owner::Known(principal),
        leads: Leads::To(destination),
        ended: Arc::default(),
        stranger: Mutex::new(None),
    });
    if is_http2 {
        serve::http2(inbound, stream).await;
    } else {
        serve::http1(inbound, stream).await;
    }
}

/// Serves HTTP in clear.
pub(crate) async fn serve_plain(
    core: Arc<Core>,
    mut stream: Stream,
    principal: Arc<Principal>,
    leads: Leads,
    door: Door,
) {
    let activity = Activity::new();
    activity.received();
    stream.watched_by(activity.clone());
    let inbound = Inbound {
        core,
        door,
        activity,
        owner: Owner::Known(principal),
        leads,
        ended: Arc::default(),
        stranger: Mutex::new(None),
    };
    serve::http1(Arc::new(inbound), stream).await;
}

pub(crate) async fn note(mut record: Record, refusal: Refusal) {
    if record.refuse(&refusal).await.is_err() {
        tracing::error!("the audit log cannot be written");
    }
}

/// Longer than every method in IANA's registry.
const LONGEST_METHOD: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_told_from_other_protocols() {
        for begin in ["GET / HTTP/1.1\r\n", "M-SEARCH * HTTP/1.1\r\n", "PO"] {
            assert!(may_be_request(begin.as_bytes()), "{begin}");
        }
        for begin in ["SSH-2.0-agent\r\n", "EHLO\r\n", &"a".repeat(32)] {
            assert!(!may_be_request(begin.as_bytes()), "{begin}");
        }
    }
}
