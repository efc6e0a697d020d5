//! What to do when the machine does not let a sandbox be built.

use std::io;

/// Advice about a user namespace that cannot be made or used.
pub(crate) fn user_namespace() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").trim() == "1" {
        let program = std::env::current_exe()
            .map(|path| path.display().to_string())
            .unwrap_or_else(|_| "/usr/local/bin/valetkey".into());
        return format!(
            "AppArmor keeps programs from using user namespaces here; allow it for this program: put\n\
             abi <abi/4.0>,\ninclude <tunables/global>\nprofile valetkey {program} flags=(unconfined) {{\n  userns,\n}}\n\
             into /etc/apparmor.d/valetkey and run `sudo apparmor_parser -r /etc/apparmor.d/valetkey`"
        );
    }
    if read("/proc/sys/user/max_user_namespaces").trim() == "0" {
        return "user namespaces are turned off here; run `sudo sysctl user.max_user_namespaces=10000`"
            .into();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone").trim() == "0" {
        return "user namespaces are turned off here; run `sudo sysctl kernel.unprivileged_userns_clone=1`"
            .into();
    }
    "a system call filter or a container keeps namespaces from being made: in Docker, run the container with \
     `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined` \
     (or put the whole container behind `valetkey serve`)"
        .into()
}

/// Advice about a mount of the host that cannot be copied.
pub(crate) fn tree(id_mapped: bool, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EUSERS) => user_namespace(),
        Some(libc::EPERM) => {
            "this root may not mount (a container?): run as an ordinary user, or give the container \
             CAP_SYS_ADMIN"
                .into()
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) if id_mapped => {
            "the file system cannot be shown as another user's (an id-mapped mount): run as the ordinary user who \
             owns the folder, or move it to ext4, xfs or btrfs"
                .into()
        }
        _ => "the kernel refused; Linux 5.12 or newer is needed".into(),
    }
}

/// Advice about a step of the file system.
pub(crate) fn op(op: &crate::plan::Op, errno: i32) -> String {
    use crate::plan::Op;
    match op {
        Op::Overlay { .. } => match errno {
            libc::EINVAL => {
                "the layer's folder is on a file system that cannot hold an overlay's upper layer (another overlay, as \
                 in a container, or a network file system), or something is mounted below the workspace: put the \
                 state folder on a disk or a volume, or set `workspace.mode` to \"read-only\" or \"read-write\""
                    .into()
            }
            libc::EPERM | libc::ENODEV => {
                "overlays are not allowed here: Linux 5.11 or newer is needed for ordinary users; or set \
                 `workspace.mode` to \"read-only\" or \"read-write\""
                    .into()
            }
            _ => "set `workspace.mode` to \"read-only\" or \"read-write\", or run `valetkey doctor`".into(),
        },
        Op::Processes { .. } if errno == libc::EPERM => {
            "parts of /proc are covered on this host, as in a container, so a new one cannot be mounted: in Docker, \
             run the container with `--security-opt systempaths=unconfined`"
                .into()
        }
        Op::ShowAgain { .. } if errno == libc::ELOOP => {
            "a folder was exchanged for a symbolic link meanwhile; run it again".into()
        }
        _ if errno == libc::EPERM => user_namespace(),
        _ => "run `valetkey doctor`".into(),
    }
}

/// Advice about the network.
pub(crate) fn network(errno: i32) -> String {
    match errno {
        libc::EPERM | libc::EACCES => user_namespace(),
        libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT => {
            "the kernel lacks nf_tables or its tproxy: load them with `sudo modprobe nf_tables nft_tproxy`, or set \
             `network = \"none\"`"
                .into()
        }
        _ => "run `valetkey doctor`".into(),
    }
}
