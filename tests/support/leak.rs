//! The search for planted secrets: every file and every output of a test, in every form a value may take.

use std::fmt;
use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// A value that may only ever be at the upstream. It has no `Debug`.
pub(crate) struct Planted {
    name: String,
    value: String,
}

/// Where a planted value was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Leak {
    pub(crate) secret: String,
    pub(crate) form: &'static str,
    pub(crate) place: String,
}

impl Planted {
    /// Plants `test-secret-NAME-` and 32 random hexadecimal digits.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            value: format!("test-secret-{name}-{}", random_hex()),
        }
    }

    pub(crate) fn value(&self) -> &str {
        &self.value
    }

    /// Looks for the value in `text`, in all its forms.
    pub(crate) fn find(&self, text: &[u8], place: &str) -> Option<Leak> {
        let found = self
            .forms()
            .into_iter()
            .find(|(_, form)| contains(text, form))?;
        Some(Leak {
            secret: self.name.clone(),
            form: found.0,
            place: place.to_owned(),
        })
    }

    fn forms(&self) -> Vec<(&'static str, Vec<u8>)> {
        let raw = self.value.as_bytes();
        let mut forms = vec![
            ("as it is", raw.to_vec()),
            ("backwards", raw.iter().rev().copied().collect()),
            ("upper case", raw.to_ascii_uppercase()),
            ("percent-encoded", percent(raw)),
            (
                "hexadecimal",
                raw.iter()
                    .flat_map(|b| format!("{b:02x}").into_bytes())
                    .collect(),
            ),
            ("UTF-16", raw.iter().flat_map(|b| [*b, 0]).collect()),
            // The random part alone, so that a cut-off prefix does not hide it.
            ("its random part", raw[raw.len() - 32..].to_vec()),
        ];
        for shift in 0..3 {
            let mut padded = vec![b'x'; shift];
            padded.extend_from_slice(raw);
            for (form, engine) in [("base64", &STANDARD), ("base64url", &URL_SAFE)] {
                // The characters that depend on neighbours are cut off.
                let text = engine.encode(&padded).into_bytes();
                forms.push((form, text[4..text.len() - 4].to_vec()));
            }
        }
        forms
    }
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "secret `{}` ({}) is in {}",
            self.secret, self.form, self.place
        )
    }
}

/// Searches a folder, names included. What is in `except` may hold the values: it is where the owner keeps them.
pub(crate) fn search_folder(folder: &Path, planted: &[Planted], except: &[&Path]) -> Vec<Leak> {
    let mut leaks = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        if except.contains(&path.as_path()) {
            continue;
        }
        let name = path.display().to_string();
        leaks.extend(
            planted
                .iter()
                .filter_map(|p| p.find(name.as_bytes(), &name)),
        );
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            open.extend(entries.map(|entry| entry.path()));
        } else if metadata.is_file() {
            let text = fs::read(&path).unwrap_or_default();
            leaks.extend(planted.iter().filter_map(|p| p.find(&text, &name)));
        }
    }
    leaks
}

fn contains(text: &[u8], form: &[u8]) -> bool {
    text.windows(form.len()).any(|window| window == form)
}

fn percent(raw: &[u8]) -> Vec<u8> {
    raw.iter()
        .flat_map(|b| format!("%{b:02X}").into_bytes())
        .collect()
}

/// 32 random hexadecimal digits.
pub(crate) fn random_hex() -> String {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).unwrap();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
