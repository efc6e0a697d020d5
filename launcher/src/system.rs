//! The part of the view that every sandbox has: system folders, devices, `/proc`, `/tmp` and an empty home.

use std::path::{Path, PathBuf};

use crate::child_files::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::error::Error;
use crate::layout::{Access, Layout, Ownership, c_string};
use crate::plan::{IfMissing, Op, UserNamespaces};
use crate::weaken::Layer;

/// Shows the system folders.
pub(crate) fn folders(layout: &mut Layout) -> Result<(), Error> {
    for name in ["/usr", "/opt", "/nix/store", "/gnu/store"] {
        let path = Path::new(name);
        if is_real_dir(path) {
            layout.show("system folder", path, Access::ReadOnly, Ownership::Host)?;
        }
    }
    for name in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        let path = Path::new(name);
        match std::fs::read_link(path) {
            Ok(target) => layout.link(path, &target)?,
            Err(_) if is_real_dir(path) => {
                layout.show("system folder", path, Access::ReadOnly, Ownership::Host)?;
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Mounts one memory file system and puts `/tmp`, the home and `/dev/shm` on it, so that they share one bound.
pub(crate) fn scratch(layout: &mut Layout, home: &Path, bytes: u64) -> Result<(), Error> {
    let scratch = Path::new("/.sandbox/scratch");
    layout.dir(scratch, 0o755)?;
    // A file takes about a kilobyte of kernel memory that the size does not count.
    let inodes = (bytes / 4096).clamp(1024, 1 << 20);
    layout.push(Op::Scratch {
        at: relative(scratch)?,
        size: c_string(bytes.to_string())?,
        inodes: c_string(inodes.to_string())?,
    });
    let parts = [
        ("tmp", Path::new("/tmp"), 0o1777, NOSUID | NODEV),
        ("var-tmp", Path::new("/var/tmp"), 0o1777, NOSUID | NODEV),
        // After both: a home may lie in one of them.
        ("home", home, 0o700, NOSUID | NODEV),
        (
            "shm",
            Path::new("/dev/shm"),
            0o1777,
            NOSUID | NODEV | NOEXEC,
        ),
    ];
    for (name, at, mode, attributes) in parts {
        layout.dir(&scratch.join(name), mode)?;
        layout.dir(at, 0o755)?;
        layout.push(Op::ShowAgain {
            from: relative(&scratch.join(name))?,
            at: relative(at)?,
            attributes,
            if_missing: IfMissing::Fail,
        });
    }
    layout.dir(Path::new("/run"), 0o755)?;
    layout.link(Path::new("/var/run"), Path::new("/run"))
}

/// The devices that programs expect, and terminals of the sandbox's own.
pub(crate) fn devices(layout: &mut Layout, with_terminal: bool) -> Result<(), Error> {
    if layout.weaken.is_off(Layer::Devices) {
        let all = Path::new("/dev");
        layout.show("device", all, Access::Device, Ownership::Host)?;
        return Ok(());
    }
    layout.dir(Path::new("/dev"), 0o755)?;
    let mut names = vec!["null", "zero", "full", "random", "urandom"];
    // It leads to the terminal of the session that opens it, which is one of the sandbox's own.
    if with_terminal && Path::new("/dev/tty").exists() {
        names.push("tty");
    }
    for name in names {
        let device = Path::new("/dev").join(name);
        layout.show("device", &device, Access::Device, Ownership::Host)?;
    }
    layout.dir(Path::new("/dev/pts"), 0o755)?;
    layout.push(Op::Terminals {
        at: c"dev/pts".into(),
    });
    for (at, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        layout.link(&Path::new("/dev").join(at), Path::new(target))?;
    }
    Ok(())
}

/// A `/proc` of the sandbox's own processes, without the parts that tell about or change the machine.
pub(crate) fn processes(layout: &mut Layout) -> Result<(), Error> {
    let weaken = layout.weaken;
    if weaken.is_off(Layer::ProcessNamespace) {
        let all = Path::new("/proc");
        return layout.show("process folder", all, Access::Writable, Ownership::Host);
    }
    layout.dir(Path::new("/proc"), 0o755)?;
    layout.push(Op::Processes {
        at: c"proc".into(),
        users: if weaken.is_off(Layer::NestedUsers) {
            UserNamespaces::AsOnHost
        } else {
            UserNamespaces::None
        },
    });
    if weaken.is_off(Layer::ProcCovers) {
        return Ok(());
    }
    for (name, is_dir) in COVERED {
        layout.cover(&Path::new("/proc").join(name), *is_dir)?;
    }
    for name in READ_ONLY {
        let at = relative(&Path::new("/proc").join(name))?;
        layout.push(Op::ShowAgain {
            from: at.clone(),
            at,
            attributes: RDONLY | NOSUID | NODEV | NOEXEC,
            if_missing: IfMissing::Skip,
        });
    }
    Ok(())
}

/// Where the sandbox's home stands: where the owner's is, so that paths of tool chains stay true.
pub(crate) fn home(wanted: &Path) -> PathBuf {
    let usable = wanted.is_absolute()
        && wanted.parent().is_some()
        && ![
            "/usr", "/opt", "/etc", "/dev", "/proc", "/sys", "/nix", "/bin", "/sbin", "/lib",
        ]
        .iter()
        .any(|system| wanted.starts_with(system));
    let real = wanted.canonicalize().ok();
    match real {
        Some(real) if usable => real,
        _ => PathBuf::from("/home/user"),
    }
}

fn is_real_dir(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn relative(path: &Path) -> Result<std::ffi::CString, Error> {
    crate::layout::relative(path)
}

/// Entries of `/proc` that read as nothing, and whether each is a folder. They tell about the machine or its other
/// users, or change it.
const COVERED: &[(&str, bool)] = &[
    ("kcore", false),
    ("keys", false),
    ("key-users", false),
    ("kmsg", false),
    ("kallsyms", false),
    ("config.gz", false),
    ("interrupts", false),
    ("latency_stats", false),
    ("sched_debug", false),
    ("sysrq-trigger", false),
    ("timer_list", false),
    ("timer_stats", false),
    ("vmallocinfo", false),
    ("acpi", true),
    ("asound", true),
    ("driver", true),
    ("scsi", true),
];

/// Entries of `/proc` that cannot be written.
const READ_ONLY: &[&str] = &["bus", "fs", "irq", "sys"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_what_is_covered() {
        let page = include_str!("../../docs/sandbox.md");
        for name in COVERED.iter().map(|(name, _)| name).chain(READ_ONLY) {
            assert!(page.contains(&format!("`/proc/{name}`")), "{name}");
        }
    }
}
