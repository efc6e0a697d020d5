//! How a proxy reaches upstreams, and how much it lets one run have.

use std::net::SocketAddr;
use std::time::Duration;

use broker::Upstream;

/// What a proxy is made with.
#[derive(Clone, Debug, Default)]
pub struct ProxySettings {
    /// How upstreams are reached: extra roots, resolver, special addresses, overrides.
    pub upstream: Upstream,
    /// How much one run may have.
    pub limits: ProxyLimits,
    /// Addresses that are never dialled, whatever the owner's settings say: our own listeners.
    pub own_addresses: Vec<SocketAddr>,
}

/// How much the proxy lets one run, and one upstream, have. Every default is safe.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Connections of one run at a time. More wait; they are not refused.
    pub connections: usize,
    /// Connections that have not shown a token yet, at the doors of all. More wait.
    pub strangers: usize,
    /// Requests of one run in flight at a time, on all its connections together. More wait; they are not refused.
    pub requests: usize,
    /// How long the first byte of a connection, or of a TLS handshake, may take.
    pub first_byte: Duration,
    /// How long a request's header may take once it has begun.
    pub header: Duration,
    /// How long a connection may stay open without a request.
    pub idle: Duration,
    /// How long a request may stay without a byte in either direction. Streams of events are slow, models think long.
    pub stalled: Duration,
    /// How long finding and connecting to an upstream may take, TLS included.
    pub connect: Duration,
    /// How long an upstream may take until its answer begins.
    pub answer: Duration,
    /// The most bytes in a header, in either direction.
    pub header_bytes: usize,
    /// Concurrent streams of one HTTP/2 connection.
    pub streams: u32,
    /// Connections of HTTP/2 of one run with that many streams; others get four, with small windows.
    pub wide: usize,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            // npm opens hundreds of tunnels at once.
            connections: 4096,
            // A token comes with the first request.
            strangers: 1024,
            // Each holds up to two windows of HTTP/2; this many bound them to a gibibyte.
            requests: 1024,
            first_byte: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            stalled: Duration::from_secs(600),
            connect: Duration::from_secs(10),
            answer: Duration::from_secs(600),
            header_bytes: 64 * 1024,
            streams: 100,
            // With their windows full, 25 MiB each.
            wide: 16,
        }
    }
}
