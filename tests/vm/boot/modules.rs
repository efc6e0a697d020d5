//! The kernel's modules, each after what it depends on.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A module to load.
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The modules that are asked for and what they need, in the order in which they load. What is built in is left out.
pub(crate) fn find(folder: &Path, asked: &[&str]) -> Vec<Module> {
    let mut found = Vec::new();
    for name in asked {
        add(folder, name, &mut found);
    }
    found
}

fn add(folder: &Path, name: &str, found: &mut Vec<Module>) {
    if found.iter().any(|module| module.name == name) {
        return;
    }
    let Some(bytes) = search(folder, &format!("{name}.ko")) else {
        return;
    };
    for needed in depends(&bytes) {
        add(folder, &needed, found);
    }
    found.push(Module {
        name: name.to_owned(),
        bytes,
    });
}

fn search(folder: &Path, name: &str) -> Option<Vec<u8>> {
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        // A name is written with `-` in some files and with `_` in others.
        let file = entry.file_name().to_string_lossy().replace('-', "_");
        let found = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            search(&path, name)
        } else if file == name {
            fs::read(&path).ok()
        } else if file.strip_suffix(".zst") == Some(name) {
            let unpacked = Command::new("zstd")
                .arg("-dcq")
                .arg(&path)
                .output()
                .unwrap();
            assert!(unpacked.status.success(), "{}", path.display());
            Some(unpacked.stdout)
        } else {
            None
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// What a module names in its `depends=`.
fn depends(bytes: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = bytes.windows(KEY.len()).position(|part| part == KEY) else {
        return Vec::new();
    };
    let rest = &bytes[at + KEY.len()..];
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&rest[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
