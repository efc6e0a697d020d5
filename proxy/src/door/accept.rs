//! Takes connections from listeners, for as long as there are any to take.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;

use super::explicit::{self, Entrance};
use super::transparent;
use crate::core::Core;
use crate::dns;
use crate::principal::Principal;
use crate::proxy::{Listener, TakenConnection};
use crate::stream::{Stream, Transport};

/// Serves a door of all runs.
pub(crate) async fn accept_shared(core: Arc<Core>, listener: Listener) {
    loop {
        // Whoever shows no token waits outside, so that those who do find descriptors.
        let Ok(stranger) = Arc::clone(&core.strangers).acquire_owned().await else {
            return;
        };
        let accepted = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| tcp(stream)),
            Listener::Unix(listener) => listener
                .accept()
                .await
                .map(|(stream, _)| Transport::Unix(stream)),
        };
        match accepted {
            Ok(transport) => {
                let core = Arc::clone(&core);
                let stream = Stream::new(transport);
                tokio::spawn(async move {
                    explicit::serve(core, stream, Entrance::Shared(stranger)).await;
                });
            }
            Err(error) => {
                drop(stranger);
                back_off(&error).await;
            }
        }
    }
}

/// Serves a door of one run.
pub(crate) async fn accept_run(core: Arc<Core>, listener: TcpListener, principal: Arc<Principal>) {
    let Ok(own) = listener.local_addr() else {
        return;
    };
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                back_off(&error).await;
                continue;
            }
        };
        // A run with as many connections as it may have waits for one to end. The place is taken only now: a door that
        // nobody comes through would hold one that another step's door waits for.
        let Ok(place) = Arc::clone(&principal.bounds.connections)
            .acquire_owned()
            .await
        else {
            return;
        };
        let Ok(original) = stream.local_addr() else {
            continue;
        };
        let core = Arc::clone(&core);
        let owner = Arc::clone(&principal);
        let stream = Stream::new(tcp(stream));
        principal.spawn(async move {
            if original == own {
                explicit::serve(core, stream, Entrance::OfRun(owner)).await;
            } else {
                transparent::serve(core, stream, owner, original).await;
            }
            drop(place);
        });
    }
}

/// Serves one connection that was taken for a run.
pub(crate) fn serve_taken(
    core: &Arc<Core>,
    principal: &Arc<Principal>,
    taken: TakenConnection,
    place: OwnedSemaphorePermit,
) {
    let prepared = taken
        .stream
        .set_nonblocking(true)
        .and_then(|()| TcpStream::from_std(taken.stream));
    // It is gone already, or the proxy ends.
    let Ok(stream) = prepared else { return };
    let core = Arc::clone(core);
    let owner = Arc::clone(principal);
    let stream = Stream::new(tcp(stream));
    principal.spawn(async move {
        match taken.destination {
            None => explicit::serve(core, stream, Entrance::OfRun(owner)).await,
            Some(original) => transparent::serve(core, stream, owner, original).await,
        }
        drop(place);
    });
}

/// Serves one captured connection of a run.
pub(crate) async fn serve_captured(
    core: Arc<Core>,
    stream: TcpStream,
    principal: Arc<Principal>,
    original: SocketAddr,
) {
    let Ok(_place) = Arc::clone(&principal.bounds.connections)
        .acquire_owned()
        .await
    else {
        return;
    };
    transparent::serve(core, Stream::new(tcp(stream)), principal, original).await;
}

/// Serves DNS over TCP for one run.
pub(crate) async fn accept_dns(core: Arc<Core>, listener: TcpListener, principal: Arc<Principal>) {
    loop {
        let Ok(place) = Arc::clone(&principal.bounds.dns_connections)
            .acquire_owned()
            .await
        else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let core = Arc::clone(&core);
                let owner = Arc::clone(&principal);
                let stream = Stream::new(tcp(stream));
                principal.spawn(async move {
                    dns::serve_tcp(&core, &owner, stream).await;
                    drop(place);
                });
            }
            Err(error) => back_off(&error).await,
        }
    }
}

fn tcp(stream: TcpStream) -> Transport {
    // Without it the first byte of an event comes 40 ms late.
    let _ = stream.set_nodelay(true);
    Transport::Tcp(stream)
}

/// A client that gave up is nothing; descriptors that ran out come back when connections end.
async fn back_off(error: &io::Error) {
    if matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    ) {
        return;
    }
    tracing::warn!(%error, "a connection cannot be accepted");
    tokio::time::sleep(PAUSE).await;
}

const PAUSE: Duration = Duration::from_millis(100);
