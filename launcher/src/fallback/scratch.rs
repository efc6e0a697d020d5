//! A private folder of one sandbox: its `/tmp`, its home, and its copy of the workspace.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::Error;

/// The folder. It is removed when this goes out of scope; what a killed supervisor left is removed by the next one.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one with a `tmp` and a `home` in it, where a disk is if there is one.
    pub(crate) fn new() -> Result<Self, Error> {
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for above in ["/var/tmp", "/tmp"] {
            match Path::new(above)
                .canonicalize()
                .and_then(|above| Self::below(&above))
            {
                Ok(scratch) => return Ok(scratch),
                Err(error) => last = error,
            }
        }
        Err(Error::Machine {
            part: "making a folder for the sandbox's /tmp and home".into(),
            advice: "make /var/tmp or /tmp writable".into(),
            source: last,
        })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves it where it is: somebody works in it.
    pub(crate) fn leave(mut self) -> PathBuf {
        let place = std::mem::take(&mut self.0);
        std::mem::forget(self);
        place
    }

    fn below(above: &Path) -> std::io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        sweep(above);
        let pid = std::process::id();
        let started = crate::usage::started(pid).unwrap_or(0);
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
        let mut private = fs::DirBuilder::new();
        private.mode(0o700);
        for _ in 0..MOST {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let folder = above.join(format!("{PREFIX}{namespace}-{pid}-{started}-{number}"));
            match private.create(&folder) {
                Ok(()) => {
                    let scratch = Self(folder);
                    private.create(scratch.0.join("tmp"))?;
                    private.create(scratch.0.join("home"))?;
                    return Ok(scratch);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = crate::changes::remove_folder(&self.0);
    }
}

/// Removes our own folders whose makers are gone.
fn sweep(above: &Path) {
    let user = rustix::process::geteuid().as_raw();
    let here = fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
    for entry in fs::read_dir(above).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let mut parts = rest.split('-').map(str::parse::<u64>);
        let (Some(Ok(namespace)), Some(Ok(pid)), Some(Ok(started))) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let is_own = entry
            .path()
            .symlink_metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == user);
        let maker = u32::try_from(pid).ok().and_then(crate::usage::started);
        // In another process namespace the number would mean another process.
        if is_own && namespace == here && maker != Some(started) {
            let _ = crate::changes::remove_folder(&entry.path());
        }
    }
}

const PREFIX: &str = "valetkey-run-";
const MOST: u32 = 1000;
