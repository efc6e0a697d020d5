//! What leads out of a sandbox, or opens something of the owner's, in what is shown whole: system folders and tool chains.
//!
//! They are too large to be looked through for each run, so sockets are asked of the kernel; `/opt`, where anything may be
//! installed, is searched as a folder that a policy names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::layout::{Layout, open};
use crate::search::Search;

/// Covers it. To be called before anything else is shown.
pub(crate) fn cover(layout: &mut Layout) -> Result<(), Error> {
    let opt = Path::new("/opt");
    if layout.is_shown(opt) {
        cover_credentials(layout, opt)?;
    }
    let table = match std::fs::read("/proc/net/unix") {
        Ok(table) => table,
        // Without sockets there is no such file.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(Error::Machine {
                part: "looking for sockets of the host".into(),
                advice: "see that /proc/net/unix can be read".into(),
                source,
            });
        }
    };
    for path in bound(&table) {
        if !layout.is_shown(&path) || layout.covered.iter().any(|above| path.starts_with(above)) {
            continue;
        }
        layout.cover(&path, false)?;
    }
    Ok(())
}

fn cover_credentials(layout: &mut Layout, folder: &Path) -> Result<(), Error> {
    let (place, _) = open("system folder", folder, layout.weaken)?;
    match Search::run(folder, &place, &[]) {
        Ok(found) => {
            for (path, is_dir) in &found.hidden {
                layout.cover(&folder.join(path), *is_dir)?;
            }
            for (path, bytes) in found.git_configs {
                layout.git_config(folder.join(path), bytes)?;
            }
        }
        // No run depends on it as on its workspace.
        Err(error) => {
            layout
                .notes
                .push(format!("`{}` is hidden: {error}", folder.display()));
            layout.cover(folder, true)?;
        }
    }
    Ok(())
}

/// The sockets in the kernel's table that are files, by their real paths.
fn bound(table: &[u8]) -> BTreeSet<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        Path::new(OsStr::from_bytes(&line[start..]))
            .canonicalize()
            .ok()
    });
    paths
        .filter(|path| {
            path.symlink_metadata()
                .is_ok_and(|found| found.file_type().is_socket())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn bound_sockets_are_found_by_their_real_paths_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        let _listener = UnixListener::bind(real.join("link/a name")).unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        let line = |path: &str| format!("0000: 00000002 00000000 00010000 0001 01 1234 {path}\n");
        let table = [
            "Num       RefCount Protocol Flags    Type St Inode Path\n".to_owned(),
            line(&format!("{}/link/a name", real.display())),
            line(&format!("{}/file", real.display())),
            line("/no/such/socket"),
            line("@abstract"),
            line(""),
        ];
        let expected = BTreeSet::from([real.join("a name")]);
        assert_eq!(bound(table.concat().as_bytes()), expected);
        let now = std::fs::read("/proc/net/unix").unwrap();
        assert!(bound(&now).contains(&real.join("a name")));
    }
}
