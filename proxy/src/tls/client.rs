//! Whom to believe to be an upstream.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::Error;

/// The roots that upstreams' certificates must lead to.
pub(crate) struct Trust {
    verifier: Arc<WebPkiServerVerifier>,
}

impl Trust {
    /// The system's roots and the owner's.
    pub(crate) fn new(extra: &[PathBuf]) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        let native = rustls_native_certs::load_native_certs();
        for error in native.errors {
            tracing::debug!(%error, "a system root was not read");
        }
        roots.add_parsable_certificates(native.certs);
        for path in extra {
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|source| Error::Roots {
                    path: path.clone(),
                    source,
                })?;
            for certificate in certificates {
                roots.add(certificate).map_err(|source| Error::Root {
                    path: path.clone(),
                    source,
                })?;
            }
        }
        if roots.is_empty() {
            return Err(Error::NoRoots);
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), super::provider())
                .build()
                .map_err(|_| Error::NoRoots)?;
        Ok(Self { verifier })
    }

    /// TLS towards upstreams for one run; tickets are not shared between runs.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = ClientConfig::builder_with_provider(super::provider())
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?
            .with_webpki_verifier(Arc::clone(&self.verifier))
            .with_no_client_auth();
        config.alpn_protocols = super::alpn();
        config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS)));
        Ok(Arc::new(config))
    }
}

const SESSIONS: usize = 256;
