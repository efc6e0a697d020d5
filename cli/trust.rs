//! Which certificate authorities programs in a sandbox trust: the system's, and the run's own.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The system's authorities followed by the run's, in PEM.
///
/// Variables such as `SSL_CERT_FILE` replace a client's roots, so the system's must be in the file too: connections in
/// tunnel mode end at the real server.
fn with_system(ca_pem: &str) -> std::io::Result<Vec<u8>> {
    let mut pem = match system() {
        Some(file) => fs::read(file)?,
        None => Vec::new(),
    };
    pem.extend(after_system(ca_pem));
    Ok(pem)
}

/// The run's authority as it follows the system's, whose last line may not be ended.
pub(crate) fn after_system(ca_pem: &str) -> Vec<u8> {
    format!("\n{ca_pem}").into_bytes()
}

/// Writes the bundle into a run's folder, for sandboxes that are not ours. Certificates are public.
pub(crate) fn write_bundle(folder: &Path, ca_pem: &str) -> Result<PathBuf, Failure> {
    let file = folder.join("ca-bundle.pem");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&file, with_system(ca_pem)?))
        .map_err(|error| {
            Failure::ours(format!("cannot write `{}`", file.display())).because(error)
        })?;
    Ok(file)
}

/// The file of the system's authorities, where it has one.
pub(crate) fn system() -> Option<PathBuf> {
    let asked = std::env::var_os("SSL_CERT_FILE").map(std::path::PathBuf::from);
    asked
        .into_iter()
        .chain(BUNDLES.iter().map(Into::into))
        .find(|file| {
            // A pipe would hold up whoever opens it.
            fs::metadata(file).is_ok_and(|found| found.is_file()) && fs::File::open(file).is_ok()
        })
}

const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
