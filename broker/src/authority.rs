//! The certificate authority of one run, which dies with the run.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use policies::Host;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sdk::RunId;
use zeroize::Zeroizing;

use crate::{Error, random};

/// The certificate authority of one run.
///
/// Its key is made in memory. It leaves it for one purpose: to be sealed, so that a served run survives its process. It signs
/// names for this run only.
pub struct Authority {
    /// None for a run that never meets TLS.
    issuer: Option<Issuer<'static, KeyPair>>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    /// Makes the authority of a run.
    pub(crate) fn new(run: &RunId, now: Timestamp, lifetime: Duration) -> Result<Self, Error> {
        let key = KeyPair::generate().map_err(Error::Certificate)?;
        let mut params = authority_params(run);
        let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
        set_validity(&mut params, now, lifetime.saturating_add(DAY))?;
        let certificate = params.self_signed(&key).map_err(Error::Certificate)?;
        Ok(Self {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Some(Issuer::new(params, key)),
        })
    }

    /// The authority that a run had before, from its key (PKCS #8) and its certificate.
    pub(crate) fn again(run: &RunId, key: &[u8], pem: &str) -> Result<Self, Error> {
        let key = KeyPair::try_from(key).map_err(Error::Certificate)?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| Error::SealBroken)?;
        Ok(Self {
            pem: pem.to_owned(),
            der,
            // A leaf names its issuer and the issuer's key; both follow from these.
            issuer: Some(Issuer::new(authority_params(run), key)),
        })
    }

    /// The authority's key (PKCS #8), to be sealed.
    pub(crate) fn danger_expose_key(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let issuer = self.issuer.as_ref().ok_or(Error::NoAuthority)?;
        Ok(Zeroizing::new(issuer.key().serialize_der()))
    }

    /// The authority of a run that never meets TLS: it signs nothing, and has no certificate.
    pub(crate) fn of_nothing() -> Self {
        Self {
            issuer: None,
            pem: String::new(),
            der: CertificateDer::from(Vec::new()),
        }
    }

    /// The authority's certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.pem
    }

    /// The authority's certificate, in DER.
    pub fn ca_der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// Signs a certificate for a host, for a key that the caller has.
    ///
    /// # Errors
    /// If the random generator or the signature fails; nothing that a run sends makes it fail.
    pub fn issue(
        &self,
        host: &Host,
        leaf_key: &KeyPair,
        now: Timestamp,
    ) -> Result<CertificateDer<'static>, Error> {
        let issuer = self.issuer.as_ref().ok_or(Error::NoAuthority)?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(
                name.as_str()
                    .to_owned()
                    .try_into()
                    .map_err(Error::Certificate)?,
            ),
            Host::V4(address) => SanType::IpAddress((*address).into()),
            Host::V6(address) => SanType::IpAddress((*address).into()),
        }];
        // A common name holds 64 characters at most (RFC 5280, appendix A); clients read the alternative name.
        params.distinguished_name = name("Valetkey");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, DAY)?;
        let certificate = params
            .signed_by(leaf_key, issuer)
            .map_err(Error::Certificate)?;
        Ok(certificate.der().clone())
    }
}

/// What makes a certificate a run's authority; how long it is good is not said here.
fn authority_params(run: &RunId) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(&format!("Valetkey {run}"));
    // It signs leaves only, and says what for; OpenSSL's strict mode wants both extensions.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// From a day ago, because a sandbox's clock may be behind, until a while from now; with a random serial number.
fn set_validity(
    params: &mut CertificateParams,
    now: Timestamp,
    lifetime: SignedDuration,
) -> Result<(), Error> {
    let end = now.saturating_add(lifetime).map_err(Error::Clock)?;
    let start = now.saturating_sub(DAY).map_err(Error::Clock)?;
    let date = |at: Timestamp| {
        let since = Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
        rcgen::date_time_ymd(1970, 1, 1) + since
    };
    params.not_before = date(start);
    params.not_after = date(end);
    let mut serial: [u8; 16] = random::bytes()?;
    // Positive and never zero (RFC 5280, section 4.1.2.2).
    serial[0] = (serial[0] & 0x7f) | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

const DAY: SignedDuration = SignedDuration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::*;

    fn authority() -> Authority {
        let run = RunId::new(1, 2);
        Authority::new(&run, Timestamp::now(), Duration::from_secs(900)).unwrap()
    }

    fn leaf(host: &str) -> Vec<u8> {
        let key = KeyPair::generate().unwrap();
        let host = Host::parse(host).unwrap();
        authority()
            .issue(&host, &key, Timestamp::now())
            .unwrap()
            .to_vec()
    }

    #[test]
    fn the_authority_has_what_strict_clients_ask_for() {
        let authority = authority();
        let (_, certificate) = parse_x509_certificate(authority.ca_der()).unwrap();
        assert!(certificate.is_ca());
        assert!(certificate.validity().is_valid());
        assert!(
            certificate
                .key_usage()
                .unwrap()
                .unwrap()
                .value
                .key_cert_sign()
        );
        let is_there = |wanted: fn(&ParsedExtension<'_>) -> bool| {
            certificate
                .extensions()
                .iter()
                .any(|extension| wanted(extension.parsed_extension()))
        };
        assert!(is_there(|extension| matches!(
            extension,
            ParsedExtension::SubjectKeyIdentifier(_)
        )));
    }

    #[test]
    fn a_leaf_is_for_its_host_and_for_servers_only() {
        let der = leaf("api.openai.com");
        let (_, certificate) = parse_x509_certificate(&der).unwrap();
        assert!(!certificate.is_ca());
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        assert_eq!(
            names.value.general_names,
            [GeneralName::DNSName("api.openai.com")]
        );
        let usage = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth && !usage.any);
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && !usage.key_cert_sign());
        assert!(certificate.validity().is_valid());
        let has_key_identifier = certificate.extensions().iter().any(|extension| {
            matches!(
                extension.parsed_extension(),
                ParsedExtension::AuthorityKeyIdentifier(_)
            )
        });
        assert!(has_key_identifier);
    }

    #[test]
    fn an_address_is_named_as_an_address() {
        for host in ["192.0.2.1", "[2001:db8::1]"] {
            let der = leaf(host);
            let (_, certificate) = parse_x509_certificate(&der).unwrap();
            let names = certificate.subject_alternative_name().unwrap().unwrap();
            assert!(matches!(
                names.value.general_names[..],
                [GeneralName::IPAddress(_)]
            ));
        }
    }

    #[test]
    fn the_authority_again_signs_what_the_first_ones_certificate_verifies() {
        let (run, key) = (RunId::new(1, 2), KeyPair::generate().unwrap());
        let first = authority();
        let pkcs8 = first.danger_expose_key().unwrap();
        let again = Authority::again(&run, &pkcs8, first.ca_pem()).unwrap();
        assert_eq!(again.ca_der(), first.ca_der());
        let host = Host::parse("api.openai.com").unwrap();
        let (one, two) = [&first, &again]
            .map(|by| by.issue(&host, &key, Timestamp::now()))
            .into();
        let (one, two) = (one.unwrap(), two.unwrap());
        let (_, ca) = parse_x509_certificate(first.ca_der()).unwrap();
        let leaves = [&one, &two].map(|der| parse_x509_certificate(der).unwrap().1);
        for leaf in &leaves {
            assert!(leaf.verify_signature(Some(ca.public_key())).is_ok());
            assert_eq!(leaf.issuer(), ca.subject());
        }
        // Clients find the issuer by this.
        let identifier = |leaf: &X509Certificate<'_>| {
            let mut all = leaf.extensions().iter();
            all.find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(found) => {
                    Some(found.key_identifier.as_ref().unwrap().0.to_vec())
                }
                _ => None,
            })
        };
        assert_eq!(identifier(&leaves[0]), identifier(&leaves[1]));
    }

    #[test]
    fn the_authority_of_one_run_does_not_sign_for_another() {
        let key = KeyPair::generate().unwrap();
        let host = Host::parse("api.openai.com").unwrap();
        let (ours, other) = (authority(), authority());
        let der = ours.issue(&host, &key, Timestamp::now()).unwrap();
        let (_, leaf) = parse_x509_certificate(&der).unwrap();
        for (authority, is_issuer) in [(&ours, true), (&other, false)] {
            let (_, certificate) = parse_x509_certificate(authority.ca_der()).unwrap();
            let key = Some(certificate.public_key());
            assert_eq!(leaf.verify_signature(key).is_ok(), is_issuer);
        }
    }
}
