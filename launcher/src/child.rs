//! The sandbox's first process: it builds the sandbox from the plan, then watches over the command.
//!
//! It is a copy of one thread of a threaded process, so it allocates nothing and takes no lock.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount as mnt;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{DumpableBehavior, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::child_terminal::{self, Pair};
use crate::message::{Other, Report, Step, Stopped, Word};
use crate::plan::{INNER, Network, Plan, Source};
use crate::sys::{self, Side};
use crate::weaken::{Layer, Weaken};
use crate::{child_command, child_files, child_network};

/// The descriptors of the child, by number: they are the parent's, copied.
#[derive(Debug)]
pub(crate) struct Wires {
    /// The channel to the supervisor.
    pub(crate) control: RawFd,
    /// The command's standard input, output and error.
    pub(crate) stdio: [RawFd; 3],
    /// What to close first: everything but the above and the plan's trees.
    pub(crate) close: Vec<(u32, u32)>,
}

/// How many host trees one sandbox can show.
pub(crate) const MAX_SOURCES: usize = 256;

/// Builds the sandbox, runs the command and ends.
pub(crate) fn run(plan: &Plan, wires: &Wires) -> ! {
    sys::block_signals();
    let control = sys::borrowed(wires.control);
    let terminal = match build(plan, wires, control) {
        Ok(terminal) => terminal,
        Err((step, errno)) => {
            tell(control, Report::Failed(step, errno.raw_os_error()));
            sys::exit(125);
        }
    };
    if !wait_for_word(control) {
        sys::exit(125);
    }
    let child = match sys::fork() {
        Ok(Side::Child) => {
            let terminal = terminal.as_ref().map(|pair| pair.slave.as_fd());
            child_command::become_it(plan, wires, terminal, control)
        }
        Ok(Side::Parent(child, _)) => child,
        Err(errno) => {
            tell(control, failed(Other::Init, errno));
            sys::exit(125);
        }
    };
    watch(child, terminal.as_ref(), control, plan.weaken)
}

/// Sends a report. If nobody listens any more, the next wait finds that out.
pub(crate) fn tell(control: BorrowedFd<'_>, report: Report) {
    let _ = rustix::net::send(control, &report.encode(), SendFlags::NOSIGNAL);
}

/// A report of a failed step.
pub(crate) fn failed(other: Other, errno: Errno) -> Report {
    Report::Failed(Step::Other(other), errno.raw_os_error())
}

/// Gives up the ability to gain a right by running a program that carries one.
pub(crate) fn gain_nothing() -> Result<(), Errno> {
    rustix::thread::set_no_new_privs(true)
}

/// Gives up every capability.
pub(crate) fn drop_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )
}

fn build(plan: &Plan, wires: &Wires, control: BorrowedFd<'_>) -> Result<Option<Pair>, Stopped> {
    let other = |which| move |errno| (Step::Other(which), errno);
    for (first, last) in &wires.close {
        sys::close_range(*first, *last).map_err(other(Other::Descriptors))?;
    }
    // An undumpable process (the supervisor holds secrets) owns nothing under /proc, and so its maps could not be
    // written. Nothing of the command runs yet.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(other(Other::User))?;
    tell(control, Report::Born);
    if !wait_for_word(control) {
        sys::exit(125);
    }
    take_user(plan.started_by_root).map_err(other(Other::User))?;
    let from_now_on = if plan.weaken.is_off(Layer::Undumpable) {
        DumpableBehavior::Dumpable
    } else {
        DumpableBehavior::NotDumpable
    };
    rustix::process::set_dumpable_behavior(from_now_on).map_err(other(Other::User))?;

    let private = mnt::MountPropagationFlags::PRIVATE | mnt::MountPropagationFlags::REC;
    mnt::mount_change(c"/", private).map_err(other(Other::Private))?;
    let mut trees = [-1; MAX_SOURCES];
    open_sources(plan, &mut trees)?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let site = child_files::Site::open(&plan.stage).map_err(other(Other::Root))?;
    let mut scratch = None;
    for (index, op) in plan.ops.iter().enumerate() {
        child_files::perform(op, &site, &trees, &mut scratch)
            .map_err(|errno| (Step::Op(index as u32), errno))?;
    }
    child_files::enter_root(site.root.as_fd(), plan.weaken).map_err(other(Other::Pivot))?;
    if !plan.weaken.is_off(Layer::HostName) {
        rustix::system::sethostname(b"sandbox").map_err(other(Other::Name))?;
    }
    if let Some(rules) = &plan.landlock {
        child_files::allow(rules).map_err(other(Other::Landlock))?;
    }

    let doors = match &plan.network {
        Network::Hosts => None,
        Network::None { up } => {
            child_network::route(up).map_err(other(Other::Loopback))?;
            None
        }
        Network::Captured {
            up,
            routes,
            capture,
            names,
            with_v6,
        } => {
            child_network::route(up).map_err(other(Other::Loopback))?;
            for route in routes {
                child_network::route(route).map_err(other(Other::Routes))?;
            }
            if !plan.weaken.is_off(Layer::Capture) {
                child_network::filter(capture).map_err(other(Other::Capture))?;
            }
            // See `nft`: without connection tracking these questions are refused.
            let _ = child_network::filter(names);
            Some(child_network::listen(*with_v6).map_err(other(Other::Listeners))?)
        }
    };
    let terminal = match plan.terminal {
        Some(size) => Some(child_terminal::make(size).map_err(other(Other::Terminal))?),
        None => None,
    };
    hand_over(control, scratch.as_ref(), terminal.as_ref(), doors.as_ref())
        .map_err(other(Other::Handover))?;
    Ok(terminal)
}

/// Takes the one user and group that the namespace knows, and nothing else.
fn take_user(started_by_root: bool) -> Result<(), Errno> {
    use rustix::process::{Gid, Uid};
    if started_by_root {
        // Before the user changes: root's groups would go on opening files.
        rustix::thread::set_thread_groups(&[])?;
    }
    let (user, group) = (Uid::from_raw(INNER), Gid::from_raw(INNER));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// Opens the trees that the child has to open itself, before anything is mounted over their paths.
fn open_sources(plan: &Plan, trees: &mut [RawFd; MAX_SOURCES]) -> Result<(), Stopped> {
    for (index, (source, tree)) in plan.sources.iter().zip(trees).enumerate() {
        let index = index as u32;
        *tree = match source {
            Source::Tree(tree) => tree.as_raw_fd(),
            Source::Path {
                path,
                device,
                inode,
                recursive,
                attributes,
            } => {
                let tree = child_files::clone_path(path, *recursive, *attributes)
                    .map_err(|errno| (Step::Source(index), errno))?;
                let found =
                    rustix::fs::fstat(&tree).map_err(|errno| (Step::Source(index), errno))?;
                if found.st_dev != *device || found.st_ino != *inode {
                    return Err((Step::Exchanged(index), Errno::STALE));
                }
                child_files::keep(tree)
            }
        };
    }
    Ok(())
}

/// Sends the scratch file system, the terminal and the listeners with the word that the sandbox stands.
fn hand_over(
    control: BorrowedFd<'_>,
    scratch: Option<&OwnedFd>,
    terminal: Option<&Pair>,
    doors: Option<&child_network::Listeners>,
) -> Result<(), Errno> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    // A place is never empty, so that the order says what is what.
    let scratch = scratch.map_or(control, |scratch| scratch.as_fd());
    let mut descriptors = [scratch; 6];
    let mut count = 1;
    let mut add = |descriptor| {
        descriptors[count] = descriptor;
        count += 1;
    };
    if let Some(terminal) = terminal {
        add(terminal.master.as_fd());
    }
    if let Some(doors) = doors {
        add(doors.v4.as_fd());
        add(doors.names_udp.as_fd());
        add(doors.names_tcp.as_fd());
        if let Some(v6) = &doors.v6 {
            add(v6.as_fd());
        }
    }
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors[..count])) {
        return Err(Errno::NOBUFS);
    }
    let bytes = Report::Ready.encode();
    sendmsg(
        control,
        &[std::io::IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Waits until the supervisor says to go on. `false` means that it is gone, or wants no command any more.
pub(crate) fn wait_for_word(control: BorrowedFd<'_>) -> bool {
    next_word(control) == Some(Word::Go)
}

/// The next word of the supervisor; none if it is gone.
pub(crate) fn next_word(control: BorrowedFd<'_>) -> Option<Word> {
    let mut byte = [0; 1];
    loop {
        match rustix::net::recv(control, &mut byte, RecvFlags::empty()) {
            Ok((_, length)) => return Word::decode(&byte[..length.min(1)]),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// The rest of the first process's life: reaps what ends, passes signals on, and ends with the command or with the
/// supervisor.
///
/// When it ends, the kernel kills everything left in the process namespace and only then lets it be waited for.
fn watch(command: i32, terminal: Option<&Pair>, control: BorrowedFd<'_>, weaken: Weaken) -> ! {
    // It keeps neither the command's streams nor a right. First of all, for the next descriptor may get such a number.
    for number in 0..3 {
        let _ = sys::close_range(number, number);
    }
    let Ok(signals) = sys::child_signals() else {
        sys::exit(125)
    };
    if let Err(errno) = gain_nothing().and_then(|()| drop_capabilities()) {
        tell(control, failed(Other::Privileges, errno));
        sys::exit(125);
    }
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == command => {
                    tell(control, Report::Ended(status.as_raw()));
                    sys::exit(0);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // No child left, which cannot be while the command was not reaped.
                Err(_) => sys::exit(125),
            }
        }
        let mut waiting = [
            PollFd::new(&signals, PollFlags::IN),
            PollFd::new(&control, PollFlags::IN),
        ];
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => sys::exit(125),
        }
        if !waiting[1].revents().is_empty() {
            match next_word(control) {
                Some(Word::Signal(signal)) => child_terminal::pass_on(signal, command, terminal),
                Some(Word::Go) => {}
                None if weaken.is_off(Layer::SupervisorsDeath) => {}
                None => sys::exit(125),
            }
        }
        let mut information = [0_u8; 1024];
        let _ = rustix::io::read(&signals, &mut information);
    }
}
