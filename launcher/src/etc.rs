//! What stands in the sandbox's `/etc`: an allowlist of the host's, and files made up for the sandbox.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::error::Error;
use crate::layout::{Access, Layout, Ownership};
use crate::plan::INNER;
use crate::spec::CaBundle;

/// Files that programs and interpreters read and that hold nothing of the owner's.
const FILES: &[&str] = &[
    "bindresvport.blacklist",
    "debian_version",
    "ethertypes",
    "fedora-release",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "networks",
    "os-release",
    "protocols",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/openssl.cnf",
    "timezone",
    "pki/tls/openssl.cnf",
    "pki/tls/cert.pem",
];

/// Folders likewise.
const FOLDERS: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "fonts",
    "ld.so.conf.d",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "python",
    "sgml",
    "ssl/certs",
    "static",
    "terminfo",
    "xml",
];

/// Folders of language versions, by how their names begin.
const VERSIONED: &[&str] = &["java-", "python3", "php", "ruby"];

/// The same of the host, where nothing can be made up: files that every user of the machine may read.
pub(crate) fn readable() -> Vec<PathBuf> {
    const AS_THEY_ARE: &[&str] = &["group", "hosts", "nsswitch.conf", "passwd", "resolv.conf"];
    let etc = Path::new("/etc");
    let named = FILES.iter().chain(FOLDERS).chain(AS_THEY_ARE);
    named
        .map(|name| etc.join(name))
        .chain(versioned())
        .collect()
}

/// Builds `/etc`.
pub(crate) fn build(layout: &mut Layout, home: &Path) -> Result<(), Error> {
    let etc = Path::new("/etc");
    layout.dir(etc, 0o755)?;
    for name in FILES {
        copy(layout, &etc.join(name))?;
    }
    for name in FOLDERS {
        folder(layout, &etc.join(name))?;
    }
    for path in versioned() {
        folder(layout, &path)?;
    }
    for (name, text) in made_up(home) {
        layout.file(&etc.join(name), text.into_bytes())?;
    }
    Ok(())
}

/// The folders of language versions, looked for anew when something came or went.
fn versioned() -> Vec<PathBuf> {
    static FOUND: Mutex<Option<(SystemTime, Vec<PathBuf>)>> = Mutex::new(None);
    let changed = std::fs::metadata("/etc").and_then(|etc| etc.modified());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    match (&*found, changed) {
        (Some((when, list)), Ok(changed)) if *when == changed => list.clone(),
        (_, Ok(changed)) => {
            let list = look_for_versioned();
            *found = Some((changed, list.clone()));
            list
        }
        (_, Err(_)) => look_for_versioned(),
    }
}

fn look_for_versioned() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir("/etc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_versioned(&entry.file_name()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Puts the bundle at its own place and over the host's, where the view shows those.
pub(crate) fn certificates(layout: &mut Layout, bundle: &CaBundle) -> Result<(), Error> {
    let made = layout.joined(bundle.system.as_deref(), &bundle.pem)?;
    layout.show_made(&made, &bundle.at)?;
    let mut covered: Vec<PathBuf> = Vec::new();
    for place in &bundle.over {
        // Several names of one file are one place.
        let Ok(real) = place.canonicalize() else {
            continue;
        };
        if layout.is_shown(&real) && real.is_file() && !covered.contains(&real) {
            layout.show_made(&made, &real)?;
            covered.push(real);
        }
    }
    Ok(())
}

fn made_up(home: &Path) -> Vec<(&'static str, String)> {
    let home = home.display();
    vec![
        (
            "passwd",
            format!(
                "root:x:0:0:root:/:/usr/sbin/nologin\n\
                 user:x:{INNER}:{INNER}:user:{home}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
            ),
        ),
        (
            "group",
            format!("root:x:0:\nuser:x:{INNER}:\nnogroup:x:65534:\n"),
        ),
        (
            "hosts",
            "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n".into(),
        ),
        ("hostname", "sandbox\n".into()),
        // One question at a time and no long wait: the answer comes from this machine.
        (
            "resolv.conf",
            "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n".into(),
        ),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
             protocols: files\nservices: files\nethers: files\nrpc: files\n"
                .into(),
        ),
    ]
}

/// Shows a file of the host by copying what it holds; a link that leads into `/usr` stays one.
fn copy(layout: &mut Layout, path: &Path) -> Result<(), Error> {
    let real = match path.read_link() {
        Ok(target) => {
            let resolved = path.parent().unwrap_or(path).join(&target);
            let Ok(real) = resolved.canonicalize() else {
                return Ok(());
            };
            if real.starts_with("/usr") || real.starts_with("/etc/pki/ca-trust") {
                return layout.link(path, &target);
            }
            real
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(_) => path.to_owned(),
    };
    // A link to somewhere else is not followed out of the places that are shown anyway.
    if !real.starts_with("/etc") {
        return Ok(());
    }
    layout.copy(&real, path)
}

fn folder(layout: &mut Layout, path: &Path) -> Result<(), Error> {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            layout.show("system folder", path, Access::ReadOnly, Ownership::Host)
        }
        Ok(found) if found.is_symlink() => copy_link(layout, path),
        _ => Ok(()),
    }
}

fn copy_link(layout: &mut Layout, path: &Path) -> Result<(), Error> {
    match path.read_link() {
        Ok(target) => layout.link(path, &target),
        Err(_) => Ok(()),
    }
}

fn is_versioned(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| VERSIONED.iter().any(|start| name.starts_with(start)))
}
