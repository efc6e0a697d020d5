//! Which error a failed step of the set-up is: the part, and what to do about it.

use std::path::PathBuf;

use crate::error::Error;
use crate::message::{Other, Step};
use crate::plan::{Op, Plan, Source};

/// The error that a failed step of the set-up is.
pub(crate) fn failure(plan: &Plan, step: Step, errno: i32) -> Error {
    let source = std::io::Error::from_raw_os_error(errno);
    let host_path = |index: u32| match plan.source(index as usize) {
        Some(Source::Path { path, .. }) => PathBuf::from(path.to_string_lossy().into_owned()),
        Some(Source::Tree) | None => PathBuf::from("?"),
    };
    let (part, advice) = match step {
        Step::Exchanged(index) => {
            return Error::View {
                what: "path",
                path: host_path(index),
                why: "it was exchanged for something else while the sandbox was built".into(),
            };
        }
        Step::Source(index) => (
            format!("copying the mount of `{}`", host_path(index).display()),
            crate::advice::tree(false, &source),
        ),
        Step::Op(index) => match plan.op(index as usize) {
            Some(Op::Overlay { .. }) if NOT_LAID.contains(&errno) => {
                let why = format!("the kernel refuses it ({source})");
                return Error::NoOverlay { why };
            }
            Some(op) => (op.describe(), crate::advice::op(op, errno)),
            None => return Error::Fault("an unknown step failed".into()),
        },
        Step::Other(which) => return other(which, errno),
    };
    Error::Machine {
        part,
        advice,
        source,
    }
}

/// What the kernel says where the file systems, its version or its rules do not let an overlay be, but for what may pass.
const NOT_LAID: &[i32] = &[
    libc::EPERM,
    libc::EACCES,
    libc::EINVAL,
    libc::ENODEV,
    libc::EOPNOTSUPP,
    libc::ENOSYS,
    libc::EREMOTE,
    libc::ESTALE,
    libc::EXDEV,
];
/// The error that a failed step around the file system is.
pub(crate) fn other(other: Other, errno: i32) -> Error {
    let (part, advice) = other_failure(other, errno);
    Error::Machine {
        part,
        advice,
        source: std::io::Error::from_raw_os_error(errno),
    }
}

fn other_failure(other: Other, errno: i32) -> (String, String) {
    let doctor = || String::from("run `valetkey doctor`");
    let (part, advice) = match other {
        Other::Namespaces => ("making namespaces", crate::advice::user_namespace()),
        Other::Maps => (
            "writing the maps of the new user namespace",
            crate::advice::user_namespace(),
        ),
        Other::Descriptors => ("passing descriptors", doctor()),
        Other::User => ("taking the sandbox's user", crate::advice::step(errno)),
        Other::Private => ("making mounts private", crate::advice::step(errno)),
        Other::Root => ("mounting a new root", crate::advice::step(errno)),
        Other::Pivot => ("changing to the new root", crate::advice::step(errno)),
        Other::Loopback => ("bringing loopback up", crate::advice::network(errno)),
        Other::Routes => ("making every address local", crate::advice::network(errno)),
        Other::Capture => ("capturing connections", crate::advice::network(errno)),
        Other::Listeners => ("making the run's listeners", crate::advice::network(errno)),
        Other::Name => ("setting the host's name", doctor()),
        Other::Init => ("making the sandbox's processes", doctor()),
        Other::Workdir => (
            "changing to the working directory",
            "it is not in the sandbox's view: start in the workspace or in /tmp".into(),
        ),
        Other::Rlimits => ("setting limits", doctor()),
        Other::Privileges => ("giving up privileges", doctor()),
        Other::Landlock => ("restricting by Landlock", doctor()),
        Other::Filter => (
            "installing the system call filter",
            "the kernel needs CONFIG_SECCOMP_FILTER".into(),
        ),
        Other::Handover => ("handing descriptors over", doctor()),
        Other::Terminal => ("making the command's terminal", doctor()),
        Other::Asking => (
            "installing the filter whose questions are answered here",
            crate::advice::asking(errno),
        ),
    };
    (part.into(), advice)
}
