//! Certificates for the origin and for the proxies that are compared.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Panics
    /// When no key can be generated.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be generated");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("the key signs");
        Self {
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// TLS settings of a server of these names.
    ///
    /// # Panics
    /// When a name is none.
    pub fn server(&self, names: &[&str], alpn: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key can be generated");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("the names are names");
        params.use_authority_key_identifier_extension = true;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("the authority signs");
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring knows the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .expect("the key fits the certificate");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}
