//! What a proxy is to those who start it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use broker::{Broker, Run};
use policies::StepName;
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener};

use crate::core::Core;
use crate::principal::Principal;
use crate::{Error, ProxySettings, dns, door, probe};

/// Carries requests of runs. Cheap to clone.
#[derive(Clone)]
pub struct Proxy {
    core: Arc<Core>,
}

/// Where requests come in.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// The doors of one run. What comes through them belongs to the run, without a token.
#[derive(Debug, Default)]
pub struct DoorsOfRun {
    /// Connections whose own address is the listener's are requests to a proxy; of all others it is the original
    /// destination.
    pub listeners: Vec<std::net::TcpListener>,
    /// Where DNS queries come in.
    pub dns_udp: Vec<std::net::UdpSocket>,
    /// Where DNS queries come in over TCP.
    pub dns_tcp: Vec<std::net::TcpListener>,
}

/// Doors that are open. Dropping it closes them, and every connection that came through them.
#[must_use = "the doors are closed when it is dropped"]
pub struct OpenDoors {
    core: Arc<Core>,
    principal: Arc<Principal>,
}

/// One connection of a run, made for it by whoever started it, where the run has no network of its own.
#[derive(Debug)]
pub struct TakenConnection {
    /// The proxy's end of it.
    pub stream: std::net::TcpStream,
    /// Where the run wanted it to lead; `None` if to the proxy itself, which is then asked for something.
    pub destination: Option<SocketAddr>,
}

impl Proxy {
    /// A proxy for the runs of a broker.
    ///
    /// # Errors
    /// If the settings cannot be used.
    pub fn new(broker: Arc<Broker>, settings: ProxySettings) -> Result<Self, Error> {
        Ok(Self {
            core: Arc::new(Core::new(broker, settings)?),
        })
    }

    /// Reads the certificates of the authorities that upstreams are verified with; otherwise the first request does.
    ///
    /// # Errors
    /// If there are none, so that no upstream could be verified.
    pub async fn load_roots(&self) -> Result<(), Error> {
        self.core.trust.verifier().await.map(|_| ())
    }

    /// Serves a door that all runs share: every request needs a run token. Ends when `shutdown` does; connections that
    /// are open then go on until they or their runs end.
    pub async fn serve_shared(&self, listener: Listener, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            () = door::accept_shared(Arc::clone(&self.core), listener) => {}
            () = shutdown => {}
        }
    }

    /// Serves the doors of a run, or of one step of it, until they are closed or the run ends. Must be called within a
    /// tokio runtime.
    ///
    /// What comes through them is judged by what the policy leaves to the step, and written down under its name.
    ///
    /// # Errors
    /// If a listener cannot be used, or the run has ended.
    pub fn serve_run(
        &self,
        doors: DoorsOfRun,
        run: Arc<Run>,
        step: Option<StepName>,
    ) -> Result<OpenDoors, Error> {
        let core = &self.core;
        let open = OpenDoors {
            principal: core.behind_doors(run, step)?,
            core: Arc::clone(core),
        };
        let principal = &open.principal;
        for listener in doors.listeners {
            let (listener, owner) = (tcp(listener)?, Arc::clone(principal));
            principal.spawn(door::accept_run(Arc::clone(core), listener, owner));
        }
        for listener in doors.dns_tcp {
            let (listener, owner) = (tcp(listener)?, Arc::clone(principal));
            principal.spawn(door::accept_dns(Arc::clone(core), listener, owner));
        }
        for socket in doors.dns_udp {
            socket.set_nonblocking(true).map_err(Error::Listener)?;
            let socket = UdpSocket::from_std(socket).map_err(Error::Listener)?;
            let owner = Arc::clone(principal);
            principal.spawn(dns::serve_udp(Arc::clone(core), owner, socket));
        }
        Ok(open)
    }

    /// Asks for a host that no policy allows, and makes sure that it is refused. To be called before anything is served.
    ///
    /// # Errors
    /// If it is not refused.
    pub async fn negative_probe(&self) -> Result<(), Error> {
        probe::refused(&self.core).await
    }
}

impl OpenDoors {
    /// Serves one connection whose original destination is known by other means than its own address. Must be called
    /// within a tokio runtime.
    pub fn serve_captured(&self, stream: TcpStream, original: SocketAddr) {
        let owner = Arc::clone(&self.principal);
        let core = Arc::clone(&self.core);
        self.principal
            .spawn(door::serve_captured(core, stream, owner, original));
    }

    /// Serves connections as they are taken, until there are no more or the doors are closed. `next` waits for one. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn serve_taken(
        &self,
        mut next: impl FnMut() -> Option<TakenConnection> + Send + 'static,
    ) -> Result<(), Error> {
        let (core, principal) = (Arc::clone(&self.core), Arc::clone(&self.principal));
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("taken".to_owned())
            .spawn(move || {
                let _inside = runtime.enter();
                // A run with as many connections as it may have waits for one to end.
                while let Ok(place) = runtime.block_on(principal.place_for_connection()) {
                    let Some(taken) = next() else { return };
                    door::serve_taken(&core, &principal, taken, place);
                }
            })
            .map(|_| ())
            .map_err(Error::Listener)
    }
}

impl Drop for OpenDoors {
    fn drop(&mut self) {
        self.principal.end();
    }
}

fn tcp(listener: std::net::TcpListener) -> Result<TcpListener, Error> {
    listener.set_nonblocking(true).map_err(Error::Listener)?;
    TcpListener::from_std(listener).map_err(Error::Listener)
}
