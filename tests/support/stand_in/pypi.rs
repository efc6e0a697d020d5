//! A Python package index with one tiny package, made on the fly.

use std::io::{Cursor, Write};
use std::sync::Arc;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::origin::{Behaviour, answer};

/// The name of the package; `import valetkey_tiny; valetkey_tiny.ANSWER == 42`.
pub(crate) const PACKAGE: &str = "valetkey-tiny";

const WHEEL: &str = "valetkey_tiny-1.0-py3-none-any.whl";

/// The index at `/simple/`; it wants no credential.
pub(crate) fn behaviour() -> Behaviour {
    let wheel = wheel();
    Arc::new(move |seen| match seen.path() {
        "/simple/valetkey-tiny/" => answer(
            200,
            "text/html",
            format!("<!DOCTYPE html><a href=\"/files/{WHEEL}\">{WHEEL}</a>"),
        ),
        path if path == format!("/files/{WHEEL}") => {
            answer(200, "application/octet-stream", wheel.clone())
        }
        _ => answer(404, "text/plain", "no such package\n"),
    })
}

fn wheel() -> Vec<u8> {
    let files = [
        ("valetkey_tiny.py", "ANSWER = 42\n"),
        (
            "valetkey_tiny-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: valetkey-tiny\nVersion: 1.0\n",
        ),
        (
            "valetkey_tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        (
            "valetkey_tiny-1.0.dist-info/RECORD",
            "valetkey_tiny.py,,\nvaletkey_tiny-1.0.dist-info/METADATA,,\nvaletkey_tiny-1.0.dist-info/WHEEL,,\n\
             valetkey_tiny-1.0.dist-info/RECORD,,\n",
        ),
    ];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in files {
        let stored =
            SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        archive.start_file(name, stored).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    archive.finish().unwrap().into_inner()
}
