//! Which addresses a name has.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use broker::Upstream;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use policies::Name;
use tokio::sync::Semaphore;

use crate::Error;

/// Finds addresses of names; absolute names only, so no search list is ever tried.
pub(crate) enum Resolver {
    /// The system's.
    System,
    /// A DNS server that the owner chose.
    Server(Box<TokioResolver>),
}

impl Resolver {
    pub(crate) fn new(upstream: &Upstream) -> Result<Self, Error> {
        let Some(server) = upstream.resolver else {
            return Ok(Self::System);
        };
        let connections =
            [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                connection.port = server.port();
                connection
            });
        let server = NameServerConfig::new(server.ip(), true, connections.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        builder.options_mut().use_hosts_file = hickory_resolver::config::ResolveHosts::Never;
        let resolver = builder
            .build()
            .map_err(|error| Error::Resolver(Box::new(error)))?;
        Ok(Self::Server(Box::new(resolver)))
    }

    /// The addresses of a name, not yet checked.
    ///
    /// A lookup of the system's takes a thread until it ends, also when nobody waits for it any more; `lookups` is how
    /// many a run may have.
    pub(crate) async fn resolve(
        &self,
        name: &Name,
        port: u16,
        lookups: &Arc<Semaphore>,
    ) -> io::Result<Vec<SocketAddr>> {
        let place = Arc::clone(lookups).acquire_owned().await;
        let absolute = format!("{name}.");
        let mut addresses: Vec<SocketAddr> = match self {
            Self::System => {
                let listed = from_hosts_file(name).await;
                if listed.is_empty() {
                    let looking = tokio::task::spawn_blocking(move || {
                        let _place = place;
                        (absolute.as_str(), port)
                            .to_socket_addrs()
                            .map(Iterator::collect)
                    });
                    looking.await.map_err(io::Error::other)??
                } else {
                    listed
                        .into_iter()
                        .map(|address| SocketAddr::new(address, port))
                        .collect()
                }
            }
            Self::Server(resolver) => resolver
                .lookup_ip(absolute)
                .await
                .map_err(io::Error::other)?
                .iter()
                .map(|address| SocketAddr::new(address, port))
                .collect(),
        };
        addresses.truncate(MOST);
        Ok(addresses)
    }
}

/// The system does not find an absolute name in its hosts file, and a relative one it may complete.
async fn from_hosts_file(name: &Name) -> Vec<IpAddr> {
    let Ok(text) = tokio::fs::read_to_string("/etc/hosts").await else {
        return Vec::new();
    };
    text.lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words
                .any(|word| {
                    word.trim_end_matches('.')
                        .eq_ignore_ascii_case(name.as_str())
                })
                .then_some(address)
        })
        .collect()
}

/// More addresses than this are not a service, but an attack.
const MOST: usize = 16;
