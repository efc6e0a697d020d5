//! A Node package registry with a package that needs hundreds of others, so that npm opens many connections.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest;
use serde_json::{Map, Value, json};

use crate::support::origin::{self, Behaviour, answer};

/// The package that needs the others.
pub(crate) const ROOT: &str = "valetkey-tree";

/// How many packages it needs.
pub(crate) const LEAVES: usize = 300;

/// The registry, reached as `https://HOST`; it wants no credential.
pub(crate) fn behaviour(host: &str) -> Behaviour {
    let host = host.to_owned();
    Arc::new(move |seen| {
        let path = seen.path().trim_start_matches('/').to_owned();
        let (name, wants_archive) = match path.split_once("/-/") {
            Some((name, _)) => (name, true),
            None => (path.as_str(), false),
        };
        match (is_known(name), wants_archive) {
            (false, _) => origin::json(404, &json!({"error": "not found"})),
            (true, true) => answer(200, "application/octet-stream", archive(name)),
            (true, false) => origin::json(200, &packument(name, &host)),
        }
    })
}

fn is_known(name: &str) -> bool {
    let number = name
        .strip_prefix("valetkey-leaf-")
        .and_then(|n| n.parse::<usize>().ok());
    name == ROOT || number.is_some_and(|number| number < LEAVES)
}

fn dependencies(name: &str) -> Map<String, Value> {
    let count = if name == ROOT { LEAVES } else { 0 };
    let leaf = |number| (format!("valetkey-leaf-{number}"), json!("1.0.0"));
    (0..count).map(leaf).collect()
}

fn packument(name: &str, host: &str) -> Value {
    let integrity = digest::digest(&digest::SHA512, &archive(name));
    json!({
        "name": name,
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {
            "name": name,
            "version": "1.0.0",
            "dependencies": dependencies(name),
            "dist": {
                "tarball": format!("https://{host}/{name}/-/{name}-1.0.0.tgz"),
                "integrity": format!("sha512-{}", STANDARD.encode(integrity)),
            },
        }},
    })
}

fn archive(name: &str) -> Vec<u8> {
    let manifest = json!({
        "name": name, "version": "1.0.0", "main": "index.js", "dependencies": dependencies(name),
    })
    .to_string();
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in [
        ("package/package.json", manifest.as_str()),
        ("package/index.js", "module.exports = 42;\n"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, path, text.as_bytes())
            .unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}
