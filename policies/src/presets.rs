//! Which presets `extends` knows.

/// Presets whose hosts come from the owner's own package managers: no host of a registry is written here, and
/// mirrors and private indexes work.
pub const PACKAGES: &[&str] = &[
    "python-packages",
    "node-packages",
    "rust-packages",
    "go-packages",
    "debian-packages",
];

/// Every preset, by its name.
pub fn names() -> impl Iterator<Item = &'static str> {
    let files = FILES.iter().map(|(name, _)| *name);
    PACKAGES.iter().copied().chain(files)
}

/// The text of a preset that is a file.
pub fn text(name: &str) -> Option<&'static str> {
    let found = FILES.iter().find(|(file, _)| *file == name);
    found.map(|(_, text)| *text)
}

const FILES: &[(&str, &str)] = &[
    ("quiet", include_str!("../presets/quiet.toml")),
    ("github-read", include_str!("../presets/github-read.toml")),
];
