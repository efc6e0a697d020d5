//! The policy enforcement point: it carries a run's requests to the upstreams its policy allows.
//!
//! Read `exchange` first; it is one request from beginning to end.

#![forbid(unsafe_code)]

mod address;
mod authn;
mod authz;
mod body;
mod core;
mod descriptors;
mod destination;
mod dns;
mod door;
mod environment;
mod error;
mod exchange;
mod fields;
mod inbound;
mod leak;
mod names;
mod principal;
mod probe;
mod proxy;
mod record;
mod refusal;
mod respond;
mod serve;
mod settings;
mod slots;
mod stream;
mod tls;
mod unread;
mod upstream;
mod watch;

pub use environment::{Places, environment};
pub use error::Error;
pub use proxy::{DoorsOfRun, Listener, OpenDoors, Proxy, TakenConnection};
pub use settings::{ProxyLimits, ProxySettings};
