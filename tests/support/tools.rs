//! Where the clients are that `tests/run` installed.

use std::path::PathBuf;

use super::root;

/// The folder of the installed clients.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("VALETKEY_TEST_TOOLS")
        .map_or_else(|| root().join("target/test-tools"), PathBuf::from)
}

/// A Python that has the client packages.
pub(crate) fn python() -> String {
    installed("python/bin/python3")
}

/// The folder in which Node finds the client packages.
pub(crate) fn node_modules() -> String {
    installed("node/node_modules")
}

fn installed(path: &str) -> String {
    let path = folder().join(path);
    assert!(
        path.exists(),
        "{} is missing: start `tests/run` once",
        path.display()
    );
    path.to_str().unwrap().to_owned()
}
