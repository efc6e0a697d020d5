//! The doors through which requests of runs come in.

mod accept;
mod explicit;
mod inner;
mod transparent;
mod tunnel;

pub(crate) use accept::{accept_dns, accept_run, accept_shared, serve_captured, serve_taken};
pub(crate) use explicit::{Entrance, serve};
