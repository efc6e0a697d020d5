//! Which files of the workspace hold credentials, going by their names and, for keys, by what they hold.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::glob::name_matches;
use crate::names::Names;

/// What a name says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// It is hidden.
    Hidden,
    /// It is hidden if it holds one of these.
    IfItHolds(&'static [&'static [u8]]),
    /// It is shown.
    None,
}

/// Names of files that are hidden.
const FILES: &[&str] = &[
    ".env*",
    ".dev.vars*",
    ".renviron",
    ".vault_pass*",
    "kubeconfig*",
    "master.key",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".pypirc",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    ".vault-token",
    ".boto",
    ".rclone.conf",
    ".claude.json",
    ".*_history",
    ".s3cfg",
    ".databrickscfg",
    ".terraformrc",
    "terraform.rc",
    "*.tfstate",
    "*.tfstate.backup",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
    "*.ppk",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "client_secret*.json",
    "service-account*.json",
    "service_account*.json",
    "application_default_credentials.json",
];

/// Names of folders that are hidden.
const FOLDERS: &[&str] = &[
    ".env*",
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".gcloud",
    ".kube",
    ".oci",
    ".password-store",
    ".terraform.d",
    ".mozilla",
    ".thunderbird",
    ".vault",
];

/// Paths, of which the last parts count.
const PATHS: &[&str] = &[
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/sops",
    ".config/valetkey",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/keyrings",
    ".local/share/valetkey",
    ".local/state/valetkey",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".streamlit/secrets.toml",
    ".config/rclone",
    ".config/containers/auth.json",
    ".config/git/credentials",
    ".config/github-copilot",
    ".config/doctl",
    ".config/stripe",
    ".local/share/fish/fish_history",
    ".pulumi/credentials.json",
    ".gemini/oauth_creds.json",
    ".subversion/auth",
    ".android/adbkey",
    ".codex/auth.json",
    ".claude/.credentials.json",
    ".config/claude",
];

/// Names that are hidden if the file holds one of these.
const BY_CONTENT: &[(&str, &[&[u8]])] = &[
    // A `.pem` may as well be a certificate bundle that programs need.
    ("*.pem", PRIVATE_KEY),
    ("*.key", PRIVATE_KEY),
    // As Composer keeps them; before what holds for every other file of that kind.
    (
        "auth.json",
        &[
            b"http-basic",
            b"oauth",
            b"token",
            b"-----begin private key-----",
        ],
    ),
    ("*.json", &[b"-----begin private key-----"]),
    ("*.tfvars", SECRET_WORDS),
    ("key.properties", SECRET_WORDS),
    (".npmrc", &[b"_auth", b"_password"]),
    (".yarnrc.yml", &[b"npmauth"]),
    ("pip.conf", &[b"@"]),
    (".pip.conf", &[b"@"]),
    ("nuget.config", &[b"password"]),
    ("gradle.properties", SECRET_WORDS),
    // `prod.env`; `.env*` is hidden whatever it holds.
    ("*.env", SECRET_WORDS),
    ("credentials", SECRET_WORDS),
    ("credentials.*", SECRET_WORDS),
];

// In lower case, as the file is compared.
const PRIVATE_KEY: &[&[u8]] = &[b"private key", b"openssh private", b"putty-user-key"];
const SECRET_WORDS: &[&[u8]] = &[
    b"secret",
    b"token",
    b"passw",
    b"private_key",
    b"api_key",
    b"apikey",
    b"access_key",
];

/// The lists above, made to be asked for each file of a large workspace.
struct Rules {
    files: Names,
    folders: Names,
    by_content: Names,
    /// By their last part.
    paths: HashMap<&'static [u8], Vec<&'static str>>,
}

fn rules() -> &'static Rules {
    static RULES: LazyLock<Rules> = LazyLock::new(|| {
        let mut paths: HashMap<_, Vec<_>> = HashMap::new();
        for path in PATHS {
            let name = path.rsplit('/').next().unwrap_or(path);
            paths.entry(name.as_bytes()).or_default().push(*path);
        }
        Rules {
            files: Names::new(FILES.iter().copied()),
            folders: Names::new(FOLDERS.iter().copied()),
            by_content: Names::new(BY_CONTENT.iter().map(|(pattern, _)| *pattern)),
            paths,
        }
    });
    &RULES
}

/// The longest name that Linux's file systems have, in bytes (pathconf(3), `NAME_MAX`).
const LONGEST_NAME: usize = 255;

/// What the built-in rules say about something called `name`, which `whole` tells the whole path of.
pub(crate) fn suspicion(name: &[u8], is_dir: bool, whole: impl FnOnce() -> PathBuf) -> Suspicion {
    let rules = rules();
    // `.ENV` is one too, and on some file systems the same file.
    let mut lower = [0; LONGEST_NAME];
    let Some(lower) = lower.get_mut(..name.len()) else {
        // No file system that we know has such a name, so nobody can say what is in it.
        return Suspicion::Hidden;
    };
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let named = if is_dir { &rules.folders } else { &rules.files };
    if named.first(lower).is_some() {
        return Suspicion::Hidden;
    }
    if let Some(ends) = rules.paths.get(&*lower) {
        let whole = PathBuf::from(whole().into_os_string().to_ascii_lowercase());
        if ends.iter().any(|end| whole.ends_with(end)) {
            return Suspicion::Hidden;
        }
    }
    if is_dir {
        return Suspicion::None;
    }
    let by_content = rules.by_content.first(lower);
    by_content.map_or(Suspicion::None, |index| {
        Suspicion::IfItHolds(BY_CONTENT[index].1)
    })
}

/// The built-in pattern that a hidden path relative to the workspace meets.
pub(crate) fn pattern(path: &Path) -> Option<&'static str> {
    let path = PathBuf::from(path.as_os_str().to_ascii_lowercase());
    let name = path.file_name()?.as_bytes();
    let named = FILES.iter().chain(FOLDERS).copied();
    named
        .chain(BY_CONTENT.iter().map(|(pattern, _)| *pattern))
        .find(|pattern| name_matches(pattern.as_bytes(), name))
        .or_else(|| PATHS.iter().copied().find(|end| path.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, is_dir: bool) -> Suspicion {
        let path = Path::new(path);
        let name = path.file_name().unwrap().as_bytes();
        suspicion(name, is_dir, || path.to_owned())
    }

    fn file(path: &str) -> Suspicion {
        of(path, false)
    }

    #[test]
    fn environment_files_and_keys_are_hidden() {
        for path in [
            ".env",
            "api/.env.production",
            ".envrc",
            "deploy/id_ed25519",
            ".netrc",
            "worker/.dev.vars.local",
            "config/master.key",
            "kubeconfig.yaml",
            ".Renviron",
        ] {
            assert_eq!(file(path), Suspicion::Hidden, "{path}");
        }
        assert_eq!(of("home/.ssh", true), Suspicion::Hidden);
        assert_eq!(file(".docker/config.json"), Suspicion::Hidden);
    }

    #[test]
    fn the_case_of_a_name_does_not_matter() {
        for path in [".ENV", "ID_RSA", "Key.PFX", ".Docker/Config.json"] {
            assert_eq!(file(path), Suspicion::Hidden, "{path}");
        }
        assert_ne!(file("auth.json"), Suspicion::None);
        assert_eq!(file("prod.tfvars"), Suspicion::IfItHolds(SECRET_WORDS));
        assert_eq!(file("Prod.Env"), Suspicion::IfItHolds(SECRET_WORDS));
        assert_eq!(file("ENVIRONMENT"), Suspicion::None);
    }

    #[test]
    fn sources_are_shown() {
        for path in ["env.py", "src/main.rs", "config.toml", "docker/Dockerfile"] {
            assert_eq!(file(path), Suspicion::None, "{path}");
        }
        assert_eq!(of("src", true), Suspicion::None);
    }

    #[test]
    fn a_certificate_is_told_from_a_key_by_what_it_holds() {
        assert_eq!(
            file("certifi/cacert.pem"),
            Suspicion::IfItHolds(PRIVATE_KEY)
        );
    }
}
