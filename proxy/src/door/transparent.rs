//! A connection that a sandbox's own network captured: its original destination says where it was meant to go.

use std::net::SocketAddr;
use std::sync::Arc;

use policies::{Authority, Host, Scheme};
use sdk::Code;
use sdk::audit::Door;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::inner::{self, Spoken};
use super::tunnel;
use crate::authz::{self, Connection};
use crate::core::Core;
use crate::destination::Destination;
use crate::dns;
use crate::inbound::Leads;
use crate::names::Meaning;
use crate::principal::Principal;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::respond::UNRECOGNIZED_NAME;
use crate::stream::Stream;
use crate::tls::read_hello;

/// Serves one captured connection.
pub(crate) async fn serve(
    core: Arc<Core>,
    stream: Stream,
    principal: Arc<Principal>,
    original: SocketAddr,
) {
    if original.port() == DNS {
        return dns::serve_tcp(&core, &principal, stream).await;
    }
    let mut record = Record::new(&core.broker, Door::Transparent, "CONNECT");
    record.of(&principal, &principal.policy());
    match principal.names.meaning(original.ip()) {
        Meaning::Name(host) => {
            to_host(core, stream, principal, host, original.port(), record).await
        }
        Meaning::Foreign => to_address(core, stream, principal, original, record).await,
        // No name of this run leads here, so no rule can.
        Meaning::Unassigned => {
            let host = address_host(original);
            let _ = with_destination(&mut record, host, original.port());
            inner::note(record, Refusal::new(Code::HostNotAllowed)).await;
        }
    }
}

/// A name of the run was meant; whatever is said inside must be the same.
async fn to_host(
    core: Arc<Core>,
    stream: Stream,
    principal: Arc<Principal>,
    host: Host,
    port: u16,
    mut record: Record,
) {
    let destination = match with_destination(&mut record, host, port) {
        Ok(destination) => destination,
        Err(refusal) => return inner::note(record, refusal).await,
    };
    match authz::authorize_connection(&principal, &destination) {
        Connection::Tunnel(permit) => tunnel::serve_captured(core, stream, permit, record).await,
        Connection::Refused(refusal) if !inner::is_inspected_port(port) => {
            inner::note(record, refusal).await;
        }
        // A refusal is told inside, where it can be read.
        Connection::Inspected | Connection::Refused(_) => {
            inner::serve(
                core,
                stream,
                principal,
                destination,
                record,
                Door::Transparent,
            )
            .await;
        }
    }
}

/// An address was dialled that means nothing to us. What names a host inside is believed, and that name is resolved;
/// the address itself is dialled only if a rule names it.
async fn to_address(
    core: Arc<Core>,
    mut stream: Stream,
    principal: Arc<Principal>,
    original: SocketAddr,
    mut record: Record,
) {
    let port = original.port();
    match inner::spoken(&core, &mut stream).await {
        Spoken::Tls => {
            let Ok(Ok(hello)) = timeout(core.limits.first_byte, read_hello(&mut stream)).await
            else {
                return inner::note(record, Refusal::ambiguous("TLS cannot be read")).await;
            };
            let host = match hello.server_name() {
                Some(name) => Host::parse(&name).ok(),
                None => Some(address_host(original)),
            };
            let destination = host
                .ok_or_else(|| Refusal::ambiguous("the name in TLS is no host"))
                .and_then(|host| with_destination(&mut record, host, port));
            let destination = match destination {
                Ok(destination) => destination,
                Err(refusal) => {
                    inner::note(record, refusal).await;
                    let _ = stream.write_all(&UNRECOGNIZED_NAME).await;
                    return;
                }
            };
            match authz::authorize_connection(&principal, &destination) {
                Connection::Tunnel(permit) => {
                    // The bytes that were read to find the name are the first to pass.
                    let rest = stream.ahead().split();
                    stream.ahead().extend_from_slice(&hello.bytes);
                    stream.ahead().extend_from_slice(&rest);
                    tunnel::serve_captured(core, stream, permit, record).await;
                }
                Connection::Inspected | Connection::Refused(_) => {
                    let door = Door::Transparent;
                    inner::terminate(core, stream, hello, principal, destination, record, door)
                        .await;
                }
            }
        }
        Spoken::Http => {
            record.forget();
            let leads = Leads::ByHost(Scheme::Http, port);
            inner::serve_plain(core, stream, principal, leads, Door::Transparent).await;
        }
        // Nothing names a host, so only a rule for the address could match.
        spoken @ (Spoken::Other | Spoken::Nothing) => {
            match with_destination(&mut record, address_host(original), port) {
                Err(refusal) => inner::note(record, refusal).await,
                Ok(destination) if matches!(spoken, Spoken::Nothing) => {
                    inner::note_nothing(&principal, &destination, record).await;
                }
                Ok(destination) => inner::note_other(&principal, &destination, record).await,
            }
        }
    }
}

fn with_destination(
    record: &mut Record,
    host: Host,
    port: u16,
) -> Result<Arc<Destination>, Refusal> {
    let destination = Destination::new(Scheme::Https, Authority { host, port })?;
    record.to(&destination);
    Ok(Arc::new(destination))
}

fn address_host(address: SocketAddr) -> Host {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(address) => Host::V4(address),
        std::net::IpAddr::V6(address) => Host::V6(address),
    }
}

const DNS: u16 = 53;
