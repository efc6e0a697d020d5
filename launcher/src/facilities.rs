//! What of the kernel a sandbox is made from, each thing tried by itself: which one is refused says what to do.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount as mnt;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Signal, WaitId, WaitIdOptions};

use crate::answer::Check;
use crate::child_network;
use crate::netlink::loopback_up;
use crate::owner::Owner;
use crate::sys::{self, Side};

/// One thing to try in a new user namespace, beside making it.
#[derive(Clone, Copy)]
enum Act {
    /// Nothing.
    Nothing,
    /// Bringing loopback up.
    Loopback,
    /// Making mounts private.
    Private,
    /// A `proc` of its own.
    Proc,
    /// The host's name.
    Name,
}

const FACILITIES: &[(&str, i32, Act, &str)] = &[
    (
        FIRST,
        0,
        Act::Nothing,
        "no sandbox of namespaces can be built",
    ),
    (
        "mount namespace",
        libc::CLONE_NEWNS,
        Act::Private,
        "files cannot be hidden",
    ),
    (
        "process namespace",
        libc::CLONE_NEWPID,
        Act::Nothing,
        "processes cannot be kept apart",
    ),
    (
        "network namespace",
        libc::CLONE_NEWNET,
        Act::Loopback,
        "connections cannot be captured",
    ),
    (
        "IPC namespace",
        libc::CLONE_NEWIPC,
        Act::Nothing,
        "shared memory cannot be kept apart",
    ),
    (
        "host name namespace",
        libc::CLONE_NEWUTS,
        Act::Name,
        "the host's name cannot be hidden",
    ),
    (
        "control group namespace",
        libc::CLONE_NEWCGROUP,
        Act::Nothing,
        "control groups cannot be hidden",
    ),
    (
        "proc mount",
        libc::CLONE_NEWNS | libc::CLONE_NEWPID,
        Act::Proc,
        "there can be no /proc of the sandbox's own processes",
    ),
];

/// Tries each.
pub(crate) fn check() -> Vec<Check> {
    let up = loopback_up();
    let mut first: Option<Result<(), (&str, Errno)>> = None;
    FACILITIES
        .iter()
        .map(|(name, flags, act, lost)| {
            let flags = (libc::CLONE_NEWUSER | flags) as u64;
            let tried = attempt(flags, *act, &up);
            let before = *first.get_or_insert(tried);
            match tried {
                Ok(()) => Check {
                    name,
                    ok: true,
                    optional: true,
                    detail: "works".into(),
                    advice: String::new(),
                },
                Err(_) if before == tried && *name != FIRST => Check {
                    name,
                    ok: false,
                    optional: true,
                    detail: format!("refused alike; {lost}"),
                    advice: "as for the first of them".into(),
                },
                Err((part, errno)) => Check {
                    name,
                    ok: false,
                    optional: true,
                    detail: format!("{part}: {}; {lost}", std::io::Error::from(errno)),
                    advice: match act {
                        Act::Proc if part == MADE => {
                            let at = std::ffi::CString::default();
                            crate::advice::op(
                                &crate::plan::Op::Processes {
                                    at,
                                    users: crate::plan::UserNamespaces::AsOnHost,
                                },
                                errno.raw_os_error(),
                            )
                        }
                        // A container's filter says that the call is not known.
                        _ if part == MAKING => crate::advice::user_namespace(),
                        _ => crate::advice::step(errno.raw_os_error()),
                    },
                },
            }
        })
        .collect()
}

fn attempt(flags: u64, act: Act, up: &[u8]) -> Result<(), (&'static str, Errno)> {
    let pair = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    );
    let (ours, theirs) = pair.map_err(|errno| ("making a channel", errno))?;
    match sys::clone3(flags, None).map_err(|errno| (MAKING, errno))? {
        Side::Child => in_child(act, up, &theirs, &ours),
        Side::Parent(pid, pidfd) => {
            drop(theirs);
            let answer = ask(&ours, pid);
            if let Some(pidfd) = pidfd {
                let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                let _ =
                    rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
            }
            answer
        }
    }
}

fn ask(channel: &OwnedFd, pid: i32) -> Result<(), (&'static str, Errno)> {
    let mut answer = [0_u8; 4];
    let mut hear = || match rustix::net::recv(channel, &mut answer, RecvFlags::empty()) {
        Ok((_, 4)) => Ok(i32::from_ne_bytes(answer)),
        Ok(_) => Err(("using it", Errno::PIPE)),
        Err(errno) => Err(("using it", errno)),
    };
    hear()?;
    Owner::new().map(pid.unsigned_abs()).map_err(|error| {
        let source = std::error::Error::source(&error)
            .and_then(|source| source.downcast_ref::<std::io::Error>());
        let number = source
            .and_then(std::io::Error::raw_os_error)
            .unwrap_or(libc::EPERM);
        ("writing its user map", Errno::from_raw_os_error(number))
    })?;
    rustix::net::send(channel, &[1], SendFlags::NOSIGNAL).map_err(|errno| ("using it", errno))?;
    match hear()? {
        0 => Ok(()),
        number => Err((MADE, Errno::from_raw_os_error(number))),
    }
}

fn in_child(act: Act, up: &[u8], channel: &OwnedFd, parents: &OwnedFd) -> ! {
    use std::os::fd::AsRawFd;
    let _stays = crate::child::Stays;
    let number = parents.as_raw_fd().unsigned_abs();
    let _ = sys::close_range(number, number);
    // As in the sandbox's first process: otherwise its maps could not be written.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable);
    let tell = |answer: Result<(), Errno>| {
        let number = answer.err().map_or(0, Errno::raw_os_error);
        let _ = rustix::net::send(channel, &number.to_ne_bytes(), SendFlags::NOSIGNAL);
    };
    tell(Ok(()));
    let mut word = [0_u8; 1];
    if !rustix::net::recv(channel, &mut word, RecvFlags::empty())
        .is_ok_and(|(_, length)| length > 0)
    {
        sys::exit(125);
    }
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    tell(match act {
        Act::Nothing => Ok(()),
        Act::Loopback => child_network::route(up),
        Act::Private => {
            let private = mnt::MountPropagationFlags::PRIVATE | mnt::MountPropagationFlags::REC;
            mnt::mount_change(c"/", private)
        }
        Act::Proc => mount_proc(),
        Act::Name => rustix::system::sethostname(b"sandbox"),
    });
    sys::exit(0)
}

fn mount_proc() -> Result<(), Errno> {
    let context = mnt::fsopen(c"proc", mnt::FsOpenFlags::FSOPEN_CLOEXEC)?;
    mnt::fsconfig_create(&context)?;
    let attributes = mnt::MountAttrFlags::empty();
    mnt::fsmount(&context, mnt::FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(|_| ())
}

const FIRST: &str = "user namespace";
const MAKING: &str = "making it";
/// It was made, and then not usable.
const MADE: &str = "using it";
