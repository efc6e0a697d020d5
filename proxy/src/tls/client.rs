//! Whom to believe to be an upstream.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::{ClientSessionMemoryCache, Resumption, WebPkiServerVerifier};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::sync::OnceCell;

use crate::Error;

/// The roots that upstreams' certificates must lead to.
pub(crate) struct Trust {
    /// The owner's.
    extra: RootCertStore,
    /// The system's too, read when the first upstream is dialled: many runs dial none.
    verifier: OnceCell<Arc<WebPkiServerVerifier>>,
}

impl Trust {
    /// The owner's roots, and, once they are needed, the system's.
    pub(crate) fn new(files: &[PathBuf]) -> Result<Self, Error> {
        let mut extra = RootCertStore::empty();
        for path in files {
            let certificates = CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|source| Error::Roots {
                    path: path.clone(),
                    source,
                })?;
            for certificate in certificates {
                extra.add(certificate).map_err(|source| Error::Root {
                    path: path.clone(),
                    source,
                })?;
            }
        }
        Ok(Self {
            extra,
            verifier: OnceCell::new(),
        })
    }

    /// What checks upstreams' certificates.
    pub(crate) async fn verifier(&self) -> Result<&Arc<WebPkiServerVerifier>, Error> {
        self.verifier
            .get_or_try_init(|| async {
                let extra = self.extra.clone();
                tokio::task::spawn_blocking(|| with_system(extra))
                    .await
                    .unwrap_or(Err(Error::NoRoots))
            })
            .await
    }

    /// TLS towards upstreams for one run; tickets are not shared between runs.
    pub(crate) async fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = ClientConfig::builder_with_provider(super::provider())
            .with_safe_default_protocol_versions()
            .map_err(Error::Tls)?
            .with_webpki_verifier(Arc::clone(self.verifier().await?))
            .with_no_client_auth();
        config.alpn_protocols = super::alpn();
        config.resumption = Resumption::store(Arc::new(ClientSessionMemoryCache::new(SESSIONS)));
        Ok(Arc::new(config))
    }
}

fn with_system(mut roots: RootCertStore) -> Result<Arc<WebPkiServerVerifier>, Error> {
    let native = rustls_native_certs::load_native_certs();
    for error in native.errors {
        tracing::debug!(%error, "a system root was not read");
    }
    roots.add_parsable_certificates(native.certs);
    if roots.is_empty() {
        return Err(Error::NoRoots);
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), super::provider())
        .build()
        .map_err(|_| Error::NoRoots)
}

const SESSIONS: usize = 256;
