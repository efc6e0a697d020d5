//! TLS on both sides: which library, which keys, whom to trust.

mod client;
mod hello;
mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub(crate) use client::Trust;
pub(crate) use hello::{Hello, read_hello};
pub(crate) use server::{LeafKey, ServerTls};

/// The one place where the cryptography of TLS is chosen.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What both sides speak, best first.
pub(crate) fn alpn() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}
