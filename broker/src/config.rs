//! How this machine reaches the network and keeps its log: `config.toml`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use policies::{Authority, Host};

use crate::Durability;

/// The owner's settings for this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// How upstreams are reached.
    pub upstream: Upstream,
    /// How durable a line of the log is, if the file says so.
    pub durability: Option<Durability>,
}

/// How upstreams are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    /// Files with extra root certificates, in PEM.
    pub roots: Vec<PathBuf>,
    /// The DNS server to ask instead of the system's.
    pub resolver: Option<SocketAddr>,
    /// Special address ranges that may be dialled, by host. Without an entry, only public addresses are.
    pub addresses: BTreeMap<Host, Vec<IpNet>>,
    /// Where a name is dialled instead of where it resolves to. The address is still checked against `addresses`, and
    /// the name is still the one that TLS verifies.
    pub connect: BTreeMap<Authority, SocketAddr>,
}
