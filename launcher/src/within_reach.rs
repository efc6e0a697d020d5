//! What leads out of a sandbox, or opens something of the owner's, in what is shown whole: system folders and tool chains.
//!
//! They are too large to be looked through for each run, so sockets are asked of the kernel; `/opt`, where anything may be
//! installed, is searched as a folder that a policy names.

use std::collections::{BTreeSet, HashMap};
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
    for path in bound(&table, |path| layout.is_shown(path)) {
        if layout.covered.iter().any(|above| path.starts_with(above)) {
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

/// The sockets in the kernel's table that are files below what is shown, by their real paths.
fn bound(table: &[u8], is_shown: impl Fn(&Path) -> bool) -> BTreeSet<PathBuf> {
    // A machine has many in few folders.
    let mut folders: HashMap<&Path, Option<PathBuf>> = HashMap::new();
    let lines = table.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        let path = Path::new(OsStr::from_bytes(&line[start..]));
        let (folder, name) = (path.parent()?, path.file_name()?);
        let real = folders
            .entry(folder)
            .or_insert_with(|| folder.canonicalize().ok());
        let path = real.as_ref()?.join(name);
        let kind = path.symlink_metadata().ok()?.file_type();
        if kind.is_symlink() {
            // It was moved since, and left a link.
            let real = path.canonicalize().ok()?;
            let is_socket = real.metadata().is_ok_and(|it| it.file_type().is_socket());
            return is_socket.then_some(real);
        }
        kind.is_socket().then_some(path)
    });
    paths.filter(|path| is_shown(path)).collect()
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
        assert_eq!(bound(table.concat().as_bytes(), |_| true), expected);
        assert!(bound(table.concat().as_bytes(), |_| false).is_empty());
        let now = std::fs::read("/proc/net/unix").unwrap();
        assert!(bound(&now, |_| true).contains(&real.join("a name")));
        std::fs::rename(real.join("a name"), real.join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", real.join("a name")).unwrap();
        assert!(bound(&now, |_| true).contains(&real.join("moved")));
    }
}
