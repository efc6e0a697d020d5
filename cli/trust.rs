//! Which certificate authorities programs in a sandbox trust: the system's, and the run's own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The system's authorities followed by the run's, in PEM.
///
/// Variables such as `SSL_CERT_FILE` replace a client's roots, so the system's must be in the file too: connections in
/// tunnel mode end at the real server.
pub(crate) fn with_system(ca_pem: &str) -> Vec<u8> {
    let mut pem = system();
    if pem.last().is_some_and(|byte| *byte != b'\n') {
        pem.push(b'\n');
    }
    pem.extend_from_slice(ca_pem.as_bytes());
    pem
}

/// Writes the bundle into a run's folder, for sandboxes that are not ours. Certificates are public.
pub(crate) fn write_bundle(folder: &Path, ca_pem: &str) -> Result<PathBuf, Failure> {
    let file = folder.join("ca-bundle.pem");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&file, with_system(ca_pem)))
        .map_err(|error| {
            Failure::ours(format!("cannot write `{}`", file.display())).because(error)
        })?;
    Ok(file)
}

/// The system's authorities, or nothing where the system has no bundle.
fn system() -> Vec<u8> {
    let asked = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    asked
        .into_iter()
        .chain(BUNDLES.iter().map(Into::into))
        .find_map(|file| fs::read(file).ok())
        .unwrap_or_default()
}

const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
