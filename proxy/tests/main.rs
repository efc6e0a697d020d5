//! The proxy as a whole, against real servers on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod addresses;
mod bridging;
mod captured;
mod credentials;
mod doors;
mod floods;
mod identity;
mod leaks;
mod limits;
mod names;
mod refusals;
mod retries;
mod smuggling;
mod steps;
mod streaming;
mod support;
mod tunnels;
mod unreadable;
mod upstreams;
