//! Certificates for the hosts that a run asks for, signed by the authority of that run.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use broker::Run;
use policies::Host;
use quick_cache::sync::Cache;
use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::Error;

/// The key of all leaf certificates of this process; it says nothing about anybody.
pub(crate) struct LeafKey {
    pair: KeyPair,
    signing: Arc<dyn SigningKey>,
}

impl LeafKey {
    /// P-256: browsers and some builds of gRPC take nothing newer.
    pub(crate) fn generate() -> Result<Self, Error> {
        let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(Error::LeafKey)?;
        let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let signing = rustls::crypto::ring::sign::any_ecdsa_type(&der).map_err(Error::Tls)?;
        Ok(Self { pair, signing })
    }
}

/// TLS towards one run.
pub(crate) struct ServerTls {
    /// For hosts that the policy has.
    inspected: Arc<ServerConfig>,
    /// For hosts that it has not, so that a flood of them pushes nothing else out.
    refused: Arc<ServerConfig>,
    inspected_leaves: Arc<Leaves>,
    refused_leaves: Arc<Leaves>,
}

impl ServerTls {
    pub(crate) fn new(run: &Arc<Run>, key: &Arc<LeafKey>) -> Result<Self, Error> {
        let leaves = |capacity| {
            Arc::new(Leaves {
                run: Arc::clone(run),
                key: Arc::clone(key),
                cache: Cache::new(capacity),
            })
        };
        let (inspected, refused) = (leaves(INSPECTED), leaves(REFUSED));
        Ok(Self {
            inspected: config(Arc::clone(&inspected) as _)?,
            refused: config(Arc::clone(&refused) as _)?,
            inspected_leaves: inspected,
            refused_leaves: refused,
        })
    }

    /// How to answer a handshake for a host.
    pub(crate) fn config(
        &self,
        host: &Host,
        has_sni: bool,
        is_refused: bool,
    ) -> Option<Arc<ServerConfig>> {
        let (config, leaves) = if is_refused {
            (&self.refused, &self.refused_leaves)
        } else {
            (&self.inspected, &self.inspected_leaves)
        };
        if has_sni {
            return Some(Arc::clone(config));
        }
        // Clients send no name with an address; the certificate is then chosen by the destination.
        let mut config = ServerConfig::clone(config);
        config.cert_resolver = Arc::new(Fixed(leaves.leaf(host)?));
        Some(Arc::new(config))
    }
}

fn config(leaves: Arc<dyn ResolvesServerCert>) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_no_client_auth()
        .with_cert_resolver(leaves);
    config.alpn_protocols = super::alpn();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // Keys of its own for each run: a ticket of one run is nothing to another.
    config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(Error::Tls)?;
    config.send_tls13_tickets = 1;
    Ok(Arc::new(config))
}

/// The leaf certificates of a run.
struct Leaves {
    run: Arc<Run>,
    key: Arc<LeafKey>,
    cache: Cache<Host, (Instant, Arc<CertifiedKey>)>,
}

impl Leaves {
    fn leaf(&self, host: &Host) -> Option<Arc<CertifiedKey>> {
        // One of many that ask at once signs; the others wait for it.
        let minted = self
            .cache
            .get_or_insert_with(host, || self.mint(host))
            .ok()?;
        if minted.0.elapsed() < RENEW_AFTER {
            return Some(minted.1);
        }
        let minted = self.mint(host).ok()?;
        self.cache.insert(host.clone(), minted.clone());
        Some(minted.1)
    }

    fn mint(&self, host: &Host) -> Result<(Instant, Arc<CertifiedKey>), broker::Error> {
        let now = jiff::Timestamp::now();
        let certificate = self.run.authority().issue(host, &self.key.pair, now)?;
        let certified = CertifiedKey::new(vec![certificate], Arc::clone(&self.key.signing));
        Ok((Instant::now(), Arc::new(certified)))
    }
}

impl ResolvesServerCert for Leaves {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.leaf(&Host::parse(hello.server_name()?).ok()?)
    }
}

impl fmt::Debug for Leaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaves").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

const INSPECTED: usize = 4096;
const REFUSED: usize = 256;
// Leaves live for a day.
const RENEW_AFTER: Duration = Duration::from_secs(12 * 3600);
