//! The rules that the shape of the code must keep. See ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::root;

/// The crates, each with the crates it may depend on.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("policies", &[]),
    ("sdk/rust", &["policies"]),
    ("broker", &["policies", "sdk"]),
    ("proxy", &["broker", "policies", "sdk"]),
    ("launcher", &["policies", "sdk"]),
];

/// The most lines a source file may have.
const MAX_LINES: usize = 500;

#[test]
fn dependencies_point_one_way() {
    let crates: BTreeSet<&str> = MAY_DEPEND_ON
        .iter()
        .map(|(folder, _)| folder.split('/').next().unwrap())
        .collect();
    for (name, allowed) in MAY_DEPEND_ON {
        let manifest = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
        let found: BTreeSet<&str> = manifest
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            // A crate may depend on itself: with a feature that only its tests have.
            .filter(|key| crates.contains(key) && key != name)
            .collect();
        for dependency in found {
            assert!(
                allowed.contains(&dependency),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

#[test]
fn unsafe_code_lives_in_one_file() {
    for file in sources() {
        if file.ends_with("launcher/src/sys.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let found = text
            .lines()
            .any(|line| !line.trim_start().starts_with("//") && line.contains("unsafe {"));
        assert!(!found, "{} holds unsafe code", file.display());
    }
}

#[test]
fn files_stay_readable_in_one_sitting() {
    for file in sources() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        assert!(
            lines <= MAX_LINES,
            "{} has {lines} lines; split it by concern",
            file.display()
        );
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.starts_with("//! "),
            "{} does not begin with a `//!` line",
            file.display()
        );
    }
}

/// Every Rust source file of the product.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(&root().join("cli"), &mut files);
    for (name, _) in MAY_DEPEND_ON {
        collect(&root().join(name).join("src"), &mut files);
    }
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
}
