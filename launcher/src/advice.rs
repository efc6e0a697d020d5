//! What to do when the machine does not let a sandbox be built.

use std::io;

/// What tells why a user namespace cannot be made or used. It explains a refusal that was met; nothing is tried less or
/// more because of it.
#[derive(Debug, Default)]
struct Clues {
    apparmor_restricts: bool,
    most_is_zero: bool,
    unprivileged_is_off: bool,
    in_sandbox: bool,
    program: String,
}

impl Clues {
    fn find() -> Self {
        let says = |path: &str, value: &str| {
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
        };
        Self {
            apparmor_restricts: says(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1",
            ),
            most_is_zero: says("/proc/sys/user/max_user_namespaces", "0"),
            unprivileged_is_off: says("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            in_sandbox: std::env::var_os("VALETKEY_RUN").is_some(),
            program: std::env::current_exe()
                .map(|path| path.display().to_string())
                .unwrap_or_else(|_| "/usr/local/bin/valetkey".into()),
        }
    }
}

/// Advice about a user namespace that cannot be made or used.
pub(crate) fn user_namespace() -> String {
    from_clues(&Clues::find())
}

fn from_clues(clues: &Clues) -> String {
    if clues.in_sandbox {
        return "this is a sandbox of Valetkey already, and none can be started in another: start both from outside, \
                as two runs"
            .into();
    }
    if clues.apparmor_restricts {
        let program = &clues.program;
        return format!(
            "AppArmor keeps programs from using user namespaces here; allow it for this program: put\n\
             abi <abi/4.0>,\ninclude <tunables/global>\nprofile valetkey {program} flags=(unconfined) {{\n  userns,\n}}\n\
             into /etc/apparmor.d/valetkey and run `sudo apparmor_parser -r /etc/apparmor.d/valetkey`"
        );
    }
    if clues.most_is_zero {
        return "user namespaces are turned off here; run `sudo sysctl user.max_user_namespaces=10000`"
            .into();
    }
    if clues.unprivileged_is_off {
        return "user namespaces are turned off here; run `sudo sysctl kernel.unprivileged_userns_clone=1`"
            .into();
    }
    "a system call filter or a container keeps namespaces from being made: in Docker, run the container with \
     `--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined` \
     (or put the whole container behind `valetkey serve`, or take less isolation with `--isolation landlock`)"
        .into()
}

/// Advice about what is used up, whatever it is needed for.
fn scarce(errno: i32) -> Option<String> {
    Some(match errno {
        libc::EMFILE => "raise the limit of open files (`ulimit -n 1024`)".into(),
        libc::ENFILE => "this machine has as many open files as it may: raise `fs.file-max`".into(),
        libc::ENOMEM => {
            "this machine is out of memory, or a limit of this process's memory is too small".into()
        }
        _ => return None,
    })
}

/// Advice about a step around the file system, by what the kernel said.
pub(crate) fn step(errno: i32) -> String {
    if let Some(advice) = scarce(errno) {
        return advice;
    }
    match errno {
        libc::ENOSYS => too_old(),
        _ => user_namespace(),
    }
}

fn too_old() -> String {
    "this kernel, or a system call filter, does not know a call that is needed: use Linux 5.12 or newer; in Docker, version \
     23 or newer"
        .into()
}

/// Advice about Landlock, by the version that is there.
pub(crate) fn landlock(version: Result<u32, rustix::io::Errno>) -> String {
    use rustix::io::Errno;
    match version {
        Ok(version) if version >= LANDLOCK => "run `valetkey doctor`".into(),
        Ok(version) => format!(
            "this kernel has version {version} of Landlock, and version {LANDLOCK} (Linux 6.12) is needed: older ones do \
             not keep signals apart"
        ),
        Err(Errno::OPNOTSUPP) => {
            "Landlock is turned off here: add `landlock` to the `lsm=` list of the kernel's command line".into()
        }
        Err(Errno::PERM | Errno::ACCESS) => {
            "a system call filter refuses Landlock: in Docker, use version 23 or newer, or \
             `--security-opt seccomp=unconfined`"
                .into()
        }
        Err(_) => {
            "this kernel has no Landlock (gVisor has none; elsewhere Linux 6.12 with CONFIG_SECURITY_LANDLOCK is needed): \
             use `--isolation namespaces`, or put the whole container behind `valetkey serve`"
                .into()
        }
    }
}

/// Advice about a filter whose questions the supervisor answers.
pub(crate) fn asking(errno: i32) -> String {
    match errno {
        libc::EBUSY => {
            "this process is in a sandbox of this kind already, and there can be one only: start it outside".into()
        }
        libc::EINVAL => {
            "the kernel cannot pass system calls on (gVisor cannot; elsewhere Linux 5.19 is needed): use \
             `--isolation namespaces`"
                .into()
        }
        _ => "the kernel needs CONFIG_SECCOMP_FILTER, and whatever confines this process has to allow seccomp".into(),
    }
}

/// Whether the supervisor may read what the command asks for.
pub(crate) fn can_ask() -> Result<(), crate::Error> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let by_root = rustix::process::geteuid().is_root();
    if !by_root && matches!(scope.trim(), "2" | "3") || scope.trim() == "3" {
        return Err(crate::Error::Machine {
            part: "reading what the command asks for".into(),
            advice: "run `sudo sysctl kernel.yama.ptrace_scope=1`".into(),
            source: io::ErrorKind::PermissionDenied.into(),
        });
    }
    Ok(())
}

/// The version of Landlock that keeps signals apart.
pub(crate) const LANDLOCK: u32 = 6;

/// Advice about a mount of the host that cannot be copied.
pub(crate) fn tree(id_mapped: bool, error: &io::Error) -> String {
    if let Some(advice) = error.raw_os_error().and_then(scarce) {
        return advice;
    }
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EUSERS) => user_namespace(),
        Some(libc::EPERM) => {
            "this root may not mount (a container?): run as an ordinary user, give the container CAP_SYS_ADMIN with \
             `--cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined`, put the whole \
             container behind `valetkey serve`, or take less isolation with `--isolation landlock`"
                .into()
        }
        Some(libc::ENOSYS) => too_old(),
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
    if let Some(advice) = scarce(errno) {
        return advice;
    }
    match op {
        // Where it can be none at all, a copy takes its place.
        Op::Overlay { .. } => {
            "set `workspace.mode` to \"read-only\" or \"read-write\", or run `valetkey doctor`".into()
        }
        Op::Processes { .. } if errno == libc::EPERM => {
            "parts of /proc are covered on this host, as in a container, so a new one cannot be mounted: in Docker, \
             run the container with `--security-opt systempaths=unconfined`"
                .into()
        }
        Op::ShowAgain { .. } if errno == libc::ELOOP => {
            "a folder was exchanged for a symbolic link meanwhile; run it again".into()
        }
        _ if errno == libc::EPERM => user_namespace(),
        _ if errno == libc::ENOSYS => too_old(),
        _ => "run `valetkey doctor`".into(),
    }
}

/// Advice about the network.
pub(crate) fn network(errno: i32) -> String {
    if let Some(advice) = scarce(errno) {
        return advice;
    }
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

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use rustix::io::Errno;

    use super::*;
    use crate::plan::Op;

    fn clues(change: impl FnOnce(&mut Clues)) -> String {
        let mut clues = Clues {
            program: "/opt/valetkey".into(),
            ..Clues::default()
        };
        change(&mut clues);
        from_clues(&clues)
    }

    #[test]
    fn a_refused_user_namespace_is_explained_by_what_refuses_it() {
        let apparmor = clues(|clues| clues.apparmor_restricts = true);
        assert!(
            apparmor.contains("profile valetkey /opt/valetkey flags=(unconfined) {\n  userns,")
        );
        assert!(apparmor.contains("sudo apparmor_parser -r /etc/apparmor.d/valetkey"));
        assert!(clues(|clues| clues.most_is_zero = true).contains("sudo sysctl user.max_user"));
        let off = clues(|clues| clues.unprivileged_is_off = true);
        assert!(off.contains("sudo sysctl kernel.unprivileged_userns_clone=1"));
        let container = clues(|_| {});
        assert!(container.contains("--security-opt seccomp=unconfined"));
        assert!(container.contains("--isolation landlock"));
        // What is true inside a sandbox of ours says more than what the machine says.
        let nested = clues(|clues| (clues.in_sandbox, clues.apparmor_restricts) = (true, true));
        assert!(nested.contains("start both from outside"));
    }

    #[test]
    fn what_is_used_up_is_not_taken_for_what_is_missing() {
        let op = Op::Link {
            at: CString::default(),
            target: CString::default(),
        };
        let errno = libc::EMFILE;
        let error = io::Error::from_raw_os_error(errno);
        for advice in [
            step(errno),
            tree(true, &error),
            network(errno),
            super::op(&op, errno),
        ] {
            assert!(advice.contains("`ulimit -n"), "{advice}");
        }
    }

    #[test]
    fn an_old_kernel_is_named_for_what_it_lacks() {
        for advice in [
            step(libc::ENOSYS),
            tree(false, &io::Error::from_raw_os_error(libc::ENOSYS)),
        ] {
            assert!(advice.contains("Linux 5.12"), "{advice}");
        }
        let terminals = Op::Terminals {
            at: CString::default(),
        };
        assert!(op(&terminals, libc::ENOSYS).contains("Linux 5.12"));
        // Without id-mapped mounts for the file system.
        let mapped = tree(true, &io::Error::from_raw_os_error(libc::EINVAL));
        assert!(mapped.contains("ext4, xfs or btrfs"), "{mapped}");
    }

    #[test]
    fn a_covered_proc_and_an_overlay_in_a_container_have_answers_of_their_own() {
        let processes = Op::Processes {
            at: CString::default(),
            users: crate::plan::UserNamespaces::None,
        };
        assert!(op(&processes, libc::EPERM).contains("systempaths=unconfined"));
        assert!(!op(&processes, libc::ENOMEM).contains("systempaths"));
        assert!(network(libc::EOPNOTSUPP).contains("modprobe nf_tables"));
    }

    #[test]
    fn landlock_is_missing_for_several_reasons() {
        assert!(landlock(Ok(4)).contains("version 4"));
        assert!(landlock(Err(Errno::OPNOTSUPP)).contains("`lsm=`"));
        assert!(landlock(Err(Errno::NOSYS)).contains("gVisor"));
        assert!(landlock(Err(Errno::PERM)).contains("system call filter"));
        assert!(landlock(Ok(LANDLOCK)).contains("doctor"));
    }

    #[test]
    fn a_filter_that_asks_is_missing_for_several_reasons() {
        assert!(asking(libc::EBUSY).contains("start it outside"));
        assert!(asking(libc::EINVAL).contains("gVisor"));
        assert!(asking(libc::ENOSYS).contains("CONFIG_SECCOMP_FILTER"));
    }
}
