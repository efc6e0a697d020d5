//! What can go wrong with the proxy as a whole, by who has to act on it.

use std::path::PathBuf;

/// Why a proxy cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's file of extra roots cannot be read.
    #[error("the root certificates in `{path}` cannot be read")]
    Roots {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls_pki_types::pem::Error,
    },
    /// A root certificate is not one.
    #[error("a root certificate in `{path}` is not valid")]
    Root {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::Error,
    },
    /// There is no root certificate at all, so no upstream could be verified.
    #[error("this machine has no root certificates, and `upstream.roots` names none")]
    NoRoots,
    /// The DNS server of the operator's settings cannot be used.
    #[error("the resolver cannot be set up")]
    Resolver(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A listener cannot be used.
    #[error("a listener cannot be used")]
    Listener(#[source] std::io::Error),
    /// The run has ended, so it has no doors.
    #[error("the run has ended")]
    RunEnded,
    /// The probe that has to be refused was not refused, or was refused for another reason.
    #[error("a host outside every policy was not refused as it must be")]
    ProbeNotRefused,
    /// The broker cannot do what the proxy needs.
    #[error("the broker cannot be used")]
    Broker(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The key of the leaf certificates cannot be made.
    #[error("the key of the leaf certificates cannot be made")]
    LeafKey(#[source] rcgen::Error),
}
