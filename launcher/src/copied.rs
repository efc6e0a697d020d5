//! The workspace as a copy, where no overlay can be laid over it: what is changed in the copy is written down as an
//! overlay's layer when the command has ended, so that it is shown, taken over and thrown away in the same way.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::changes;
use crate::error::Error;
use crate::fallback::{Copied, copy, write_layer};
use crate::layout::{Layout, refused};
use crate::search::Search;
use crate::spec::Workspace;
use crate::workspace::{WHAT, mounts_below};

/// A copy that a command works on, and where its changes go.
#[derive(Debug)]
pub(crate) struct Copy {
    copy: PathBuf,
    copied: Copied,
    upper: PathBuf,
    why: String,
    is_kept: bool,
}

/// Why no overlay can be laid over the folder `host` with this `upper` layer; `None` where nothing speaks against it.
pub(crate) fn obstacle(host: &Path, upper: &Path, work: &Path) -> Option<String> {
    if let Some(below) = mounts_below(host).first() {
        return Some(format!(
            "another file system is mounted in it, at `{}`",
            below.display()
        ));
    }
    let found = rustix::fs::statfs(upper).ok()?;
    let kind = u64::try_from(found.f_type).unwrap_or(0);
    if KNOWN_TO_WORK.contains(&kind) {
        return None;
    }
    if kind == OVERLAY {
        return Some("the state folder lies on an overlay itself".into());
    }
    if REMOTE.contains(&kind) {
        return Some(
            "the state folder lies on a file system that the kernel takes for no layer".into(),
        );
    }
    // As the kernel will try it.
    match rustix::fs::setxattr(work, PROBE, b"y", XattrFlags::empty()) {
        Ok(()) => {
            let _ = rustix::fs::removexattr(work, PROBE);
            None
        }
        Err(Errno::NOTSUP) => {
            Some("the file system of the state folder keeps no extended attributes".into())
        }
        // Another cause, which the start will tell.
        Err(_) => None,
    }
}

/// Shows a copy of the workspace in its place. What is hidden is not copied.
pub(crate) fn show(
    layout: &mut Layout,
    workspace: &Workspace,
    from: (&OwnedFd, &Search<'_>),
    (upper, below): (&Path, &[PathBuf]),
    most: Option<u64>,
    why: &str,
) -> Result<Copy, Error> {
    let host = &workspace.host;
    let layer = upper
        .parent()
        .ok_or_else(|| Error::Fault("a layer needs a folder of its own".into()))?;
    if layer.starts_with(host) {
        let why = "the copy of it would lie in the folder itself; choose another state folder (`--state-dir`)";
        return Err(refused(WHAT, host, why));
    }
    let unmade = |source: io::Error| Error::Machine {
        part: format!("making the copy of the workspace in `{}`", layer.display()),
        advice: "see that the state folder can be written".into(),
        source,
    };
    remove(layer).map_err(unmade)?;
    let to = layer.join(NAME);
    let copied = match copy(host, from, &workspace.protect, below, &to, most) {
        Ok(copied) => copied,
        Err(error) => {
            remove(layer).map_err(unmade)?;
            return Err(error);
        }
    };
    changes::mark_copy(layer).map_err(unmade)?;
    layout.place("copy of the workspace", &to, host)?;
    layout.note_shown(host);
    layout.notes.push(format!(
        "the command works on a copy of `{}`, as no overlay can be laid over it: {why}",
        host.display()
    ));
    Ok(Copy {
        copy: to,
        copied,
        upper: upper.to_owned(),
        why: why.to_owned(),
        is_kept: false,
    })
}

impl Copy {
    /// Where it is, and how many bytes of it the command did not write.
    pub(crate) fn place(&self) -> (PathBuf, u64) {
        (self.copy.clone(), self.copied.bytes())
    }

    /// Why there is no overlay.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Writes down what was changed in it, and removes it. Nothing runs in it any more.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        // What could not be written down is still in the copy.
        self.is_kept = true;
        write_layer(&self.copy, &self.copied, &self.upper)?;
        self.is_kept = false;
        Ok(())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.is_kept
            && let Some(layer) = self.copy.parent()
        {
            // What is left goes with the layers.
            let _ = remove(layer);
        }
    }
}

fn remove(layer: &Path) -> io::Result<()> {
    changes::remove(File::open(layer)?.as_fd(), OsStr::new(NAME))
}

const NAME: &str = "copy";
const PROBE: &str = "user.overlay.valetkey";
const OVERLAY: u64 = 0x794c_7630;
/// ext4, XFS, Btrfs.
const KNOWN_TO_WORK: &[u64] = &[0xef53, 0x5846_5342, 0x9123_683e];
/// NFS, SMB, 9p, FUSE, Ceph.
const REMOTE: &[u64] = &[
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x0102_1997,
    0x6573_5546,
    0x00c3_6400,
];
