//! Finds, checks and dials the address of a permitted destination.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use policies::{Host, Scheme};
use rustls_pki_types::ServerName;
use sdk::Code;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::{Vetted, vet};
use crate::authz::Permit;
use crate::core::Core;
use crate::refusal::Refusal;

/// A connection to an upstream.
pub(crate) enum Dialled {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Connects as the permit says, over verified TLS where its scheme is https.
pub(crate) async fn dial(
    core: &Core,
    permit: &Permit,
    deadline: Instant,
) -> Result<(Vetted, Dialled), Refusal> {
    let (address, stream) = dial_tcp(core, permit, deadline).await?;
    let destination = permit.destination();
    match destination.scheme() {
        Scheme::Http => Ok((address, Dialled::Plain(stream))),
        Scheme::Https => {
            let config = permit.principal().client_tls(core).await.map_err(|error| {
                tracing::error!(%error, "no upstream can be verified");
                Refusal::new(Code::UpstreamTls)
            })?;
            let connector = TlsConnector::from(config);
            let name = server_name(destination.host())?;
            let stream = timeout_at(deadline, connector.connect(name, stream))
                .await
                .map_err(|_| Refusal::new(Code::UpstreamTimeout))?
                .map_err(|error| {
                    tracing::debug!(%error, host = %destination.host(), "TLS with an upstream failed");
                    Refusal::new(Code::UpstreamTls)
                })?;
            Ok((address, Dialled::Tls(Box::new(stream))))
        }
    }
}

/// Connects as the permit says, without TLS.
pub(crate) async fn dial_tcp(
    core: &Core,
    permit: &Permit,
    deadline: Instant,
) -> Result<(Vetted, TcpStream), Refusal> {
    let addresses = timeout_at(deadline, addresses(core, permit))
        .await
        .map_err(|_| Refusal::new(Code::UpstreamTimeout))??;
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for (place, address) in addresses.iter().enumerate() {
        // One that does not answer must not use up the time of those after it.
        let share = if place + 1 == addresses.len() {
            deadline.saturating_duration_since(Instant::now())
        } else {
            ATTEMPT
        };
        // The address we checked is the address we dial. Resolving again here would let a second answer through.
        match timeout(share, TcpStream::connect(address.socket())).await {
            Ok(Ok(stream)) => {
                // Without it the first byte of an event comes 40 ms late.
                let _ = stream.set_nodelay(true);
                return Ok((*address, stream));
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    tracing::debug!(error = %last, host = %permit.destination().host(), "no address of an upstream answers");
    Err(Refusal::new(if last.kind() == io::ErrorKind::TimedOut {
        Code::UpstreamTimeout
    } else {
        Code::UpstreamUnreachable
    }))
}

async fn addresses(core: &Core, permit: &Permit) -> Result<Vec<Vetted>, Refusal> {
    let destination = permit.destination();
    let (host, port) = (destination.host(), destination.port());
    let found: Vec<SocketAddr> = match (core.override_of(host, port), host) {
        (Some(address), _) => vec![address],
        (None, Host::V4(address)) => vec![SocketAddr::new((*address).into(), port)],
        (None, Host::V6(address)) => vec![SocketAddr::new((*address).into(), port)],
        (None, Host::Name(name)) => core
            .resolver
            .resolve(name, port, &permit.principal().bounds.lookups)
            .await
            .map_err(|error| {
                tracing::debug!(%error, %name, "a name does not resolve");
                Refusal::with_hint(
                    Code::UpstreamUnreachable,
                    "the host's name does not resolve",
                )
            })?,
    };
    if found.is_empty() {
        return Err(Refusal::new(Code::UpstreamUnreachable));
    }
    let (ranges, own) = (core.allowed_ranges(host), core.own_addresses());
    let vetted: Vec<Vetted> = found
        .into_iter()
        .filter_map(|address| vet(address, ranges, own))
        .collect();
    if vetted.is_empty() {
        return Err(Refusal::new(Code::AddressNotAllowed));
    }
    Ok(vetted)
}

fn server_name(host: &Host) -> Result<ServerName<'static>, Refusal> {
    Ok(match host {
        Host::Name(name) => ServerName::try_from(name.as_str().to_owned())
            .map_err(|_| Refusal::ambiguous("the host is no name that TLS has"))?,
        Host::V4(address) => ServerName::IpAddress((*address).into()),
        Host::V6(address) => ServerName::IpAddress((*address).into()),
    })
}

const ATTEMPT: Duration = Duration::from_secs(2);
