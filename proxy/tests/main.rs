//! The proxy as a whole, against real servers on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod addresses;
mod bridging;
mod captured;
mod credentials;
mod doors;
mod identity;
mod limits;
mod names;
mod refusals;
mod smuggling;
mod streaming;
mod support;
mod tunnels;
mod upstreams;
