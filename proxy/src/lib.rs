//! The policy enforcement point: it carries a run's requests to the upstreams its policy allows.
//!
//! Read `exchange` first; it is one request from beginning to end.

#![forbid(unsafe_code)]

mod environment;
mod error;
mod proxy;
mod settings;

pub use environment::{Places, environment};
pub use error::Error;
pub use proxy::{DoorsOfRun, Listener, Proxy};
pub use settings::{ProxyLimits, ProxySettings};
