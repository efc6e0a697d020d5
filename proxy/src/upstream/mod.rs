//! Carries a permitted request to its upstream.

mod connection;
mod dial;
mod pool;
mod received;
mod resolve;
mod send;
mod shared;
mod uploading;

pub(crate) use dial::dial_tcp;
pub(crate) use pool::{Lease, Pool};
pub(crate) use received::Received;
pub(crate) use resolve::Resolver;
pub(crate) use send::{Outgoing, send};
