//! Which tool chains in the owner's home the sandbox sees, found through `PATH`.
//!
//! An allowlist: a tool's programs and libraries, never its settings, caches or credentials.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A tool chain: how its `PATH` entries begin, and what of it is shown, relative to the home.
struct Tool {
    entry: &'static str,
    shown: &'static [&'static str],
}

const TOOLS: &[Tool] = &[
    Tool {
        entry: ".cargo/bin",
        shown: &[".cargo/bin", ".rustup/toolchains", ".rustup/settings.toml"],
    },
    Tool {
        entry: ".rustup/toolchains",
        shown: &[".rustup/toolchains"],
    },
    Tool {
        entry: ".pyenv",
        shown: &[".pyenv/versions"],
    },
    Tool {
        entry: ".rbenv",
        shown: &[".rbenv/versions"],
    },
    Tool {
        entry: ".nvm/versions",
        shown: &[".nvm/versions"],
    },
    Tool {
        entry: ".local/share/fnm",
        shown: &[".local/share/fnm/node-versions"],
    },
    Tool {
        entry: ".local/bin",
        shown: &[
            ".local/bin",
            ".local/share/uv/python",
            ".local/share/uv/tools",
            ".local/share/pipx/venvs",
        ],
    },
    Tool {
        entry: ".local/share/uv/python",
        shown: &[".local/share/uv/python"],
    },
    Tool {
        entry: ".deno/bin",
        shown: &[".deno/bin"],
    },
    Tool {
        entry: ".bun/bin",
        shown: &[".bun/bin", ".bun/install/global"],
    },
    Tool {
        entry: ".volta/bin",
        shown: &[".volta/bin", ".volta/tools"],
    },
    Tool {
        entry: ".asdf",
        shown: &[
            ".asdf/bin",
            ".asdf/shims",
            ".asdf/installs",
            ".asdf/plugins",
            ".asdf/lib",
            ".asdf/asdf.sh",
        ],
    },
    Tool {
        entry: ".local/share/mise",
        shown: &[".local/share/mise/installs", ".local/share/mise/shims"],
    },
    Tool {
        entry: ".sdkman/candidates",
        shown: &[".sdkman/candidates"],
    },
    Tool {
        entry: "go/bin",
        shown: &["go/bin"],
    },
    Tool {
        entry: ".local/go/bin",
        shown: &[".local/go"],
    },
    Tool {
        entry: ".local/share/pnpm",
        shown: &[".local/share/pnpm"],
    },
];

/// What of a conda installation is shown, relative to it.
const CONDA: &[&str] = &[
    "bin",
    "condabin",
    "conda-meta",
    "envs",
    "etc/fonts",
    "include",
    "lib",
    "libexec",
    "share",
    "ssl",
];

/// What the sandbox sees and where it looks for programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Toolchains {
    /// Host paths to show read-only.
    pub(crate) shown: BTreeSet<PathBuf>,
    /// The sandbox's `PATH`.
    pub(crate) path: Vec<PathBuf>,
    /// Entries that were left out.
    pub(crate) dropped: Vec<PathBuf>,
}

/// Works out the tool chains from the owner's `PATH`. `workspace` may name versions of them.
pub(crate) fn find(path: &OsStr, home: &Path, workspace: Option<&Path>) -> Toolchains {
    let mut found = Toolchains::default();
    for entry in std::env::split_paths(path) {
        // A relative entry means whatever folder one is in.
        if !entry.is_absolute() {
            continue;
        }
        let in_workspace = workspace.is_some_and(|workspace| entry.starts_with(workspace));
        match entry.strip_prefix(home) {
            _ if in_workspace => found.path.push(entry),
            Ok(below) => in_home(&mut found, home, below, workspace),
            Err(_) if is_system(&entry) => found.path.push(entry),
            Err(_) => found.dropped.push(entry),
        }
    }
    for standard in ["/usr/local/bin", "/usr/bin", "/bin"] {
        let standard = PathBuf::from(standard);
        if !found.path.contains(&standard) {
            found.path.push(standard);
        }
    }
    found
}

fn in_home(found: &mut Toolchains, home: &Path, below: &Path, workspace: Option<&Path>) {
    let entry = home.join(below);
    if let Some(tool) = TOOLS.iter().find(|tool| below.starts_with(tool.entry)) {
        let shown = tool.shown.iter().map(|part| home.join(part));
        found.shown.extend(shown.filter(|part| part.exists()));
        match tool.entry {
            // The shims are scripts that need all of pyenv; the versions they choose do without.
            ".pyenv" | ".rbenv" if !below.starts_with(Path::new(tool.entry).join("versions")) => {
                let versions = home.join(tool.entry).join("versions");
                let named = chosen_versions(home, tool.entry, workspace);
                for bin in named.iter().map(|name| versions.join(name).join("bin")) {
                    if bin.is_dir() && !found.path.contains(&bin) {
                        found.path.push(bin);
                    }
                }
            }
            _ => found.path.push(entry),
        }
        return;
    }
    let installation = entry.parent().filter(|folder| *folder != home);
    if let Some(folder) = installation.filter(|folder| folder.join("conda-meta").is_dir()) {
        let shown = CONDA.iter().map(|part| folder.join(part));
        found.shown.extend(shown.filter(|part| part.exists()));
        found.path.push(entry);
        return;
    }
    // ~/sdk/go1.22/bin, as `go install golang.org/dl/…` makes it.
    if below.starts_with("sdk") && entry.ends_with("bin") {
        found.shown.extend(installation.map(Path::to_owned));
        found.path.push(entry);
        return;
    }
    found.dropped.push(entry);
}

/// The versions that `pyenv` or `rbenv` would take: the environment's, the workspace's, or the global ones.
fn chosen_versions(home: &Path, tool: &str, workspace: Option<&Path>) -> Vec<OsString> {
    let (variable, file) = match tool {
        ".rbenv" => ("RBENV_VERSION", ".ruby-version"),
        _ => ("PYENV_VERSION", ".python-version"),
    };
    let local = workspace
        .into_iter()
        .flat_map(Path::ancestors)
        .map(|folder| folder.join(file))
        .chain([home.join(tool).join("version")])
        .find_map(|file| small_file(&file));
    let text = std::env::var_os(variable)
        .map(|value| value.as_bytes().to_vec())
        .or(local)
        .unwrap_or_default();
    text.split(|byte| byte.is_ascii_whitespace() || *byte == b':')
        .filter(|name| is_name(name))
        .map(|name| OsStr::from_bytes(name).to_owned())
        .collect()
}

/// What a small file holds. The file may be the agent's: a FIFO would hold us up, an endless device fill our memory.
fn small_file(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_VERSION_FILE)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

/// Whether a version's name is one, and not a path: the file may be the agent's.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b".."
}

fn is_system(entry: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store"]
        .iter()
        .any(|system| entry.starts_with(system))
}

const LARGEST_VERSION_FILE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(folders: &[&str]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for folder in folders {
            std::fs::create_dir_all(home.path().join(folder)).unwrap();
        }
        home
    }

    fn path(entries: &[PathBuf]) -> OsString {
        std::env::join_paths(entries).unwrap()
    }

    #[test]
    fn a_tool_chain_is_shown_without_its_credentials() {
        let home = home_with(&[".cargo/bin", ".rustup/toolchains"]);
        std::fs::write(home.path().join(".cargo/credentials.toml"), "").unwrap();
        let found = find(&path(&[home.path().join(".cargo/bin")]), home.path(), None);
        let shown: Vec<_> = found.shown.iter().collect();
        assert_eq!(
            shown,
            [
                &home.path().join(".cargo/bin"),
                &home.path().join(".rustup/toolchains")
            ]
        );
    }

    #[test]
    fn another_folder_in_the_home_is_dropped_and_listed() {
        let home = home_with(&["secret-tools/bin"]);
        let entry = home.path().join("secret-tools/bin");
        let found = find(&path(std::slice::from_ref(&entry)), home.path(), None);
        assert_eq!(found.dropped, [entry]);
        assert!(found.shown.is_empty());
    }

    #[test]
    fn shims_are_replaced_by_the_versions_they_choose() {
        let home = home_with(&[".pyenv/versions/3.12.1/bin", ".pyenv/shims"]);
        std::fs::write(home.path().join(".pyenv/version"), "3.12.1\n").unwrap();
        let found = find(
            &path(&[home.path().join(".pyenv/shims")]),
            home.path(),
            None,
        );
        assert_eq!(
            found.path[0],
            home.path().join(".pyenv/versions/3.12.1/bin")
        );
    }

    #[test]
    fn a_version_file_that_never_ends_is_passed_over() {
        let home = home_with(&[".pyenv/versions/3.12.1/bin", ".pyenv/shims", "project"]);
        std::fs::write(home.path().join(".pyenv/version"), "3.12.1\n").unwrap();
        let project = home.path().join("project");
        let file = project.join(".python-version");
        let expected = home.path().join(".pyenv/versions/3.12.1/bin");
        let entry = path(&[home.path().join(".pyenv/shims")]);
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        let found = find(&entry, home.path(), Some(&project));
        assert_eq!(found.path[0], expected);
        std::fs::remove_file(&file).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &file, fifo, 0o600.into(), 0).unwrap();
        let found = find(&entry, home.path(), Some(&project));
        assert_eq!(found.path[0], expected);
    }

    #[test]
    fn a_version_file_cannot_name_a_path() {
        assert!(!is_name(b"../../.ssh"));
        assert!(is_name(b"3.12.1"));
    }
}
