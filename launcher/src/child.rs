//! The sandbox's first process: it builds the sandbox from the plan, then watches over the command.
//!
//! It is a copy of the zygote, which has one thread and holds nothing of the owner's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::vec::IntoIter;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mount as mnt;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{DumpableBehavior, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::de::DeserializeOwned;

use crate::channel::send_with;
use crate::child_terminal::{self, Pair};
use crate::message::{Other, Report, Step, Stopped, Word};
use crate::plan::{Files, First, INNER, Network, Rest, Source};
use crate::sys;
use crate::weaken::{Layer, Weaken};
use crate::{child_command, child_files, child_network, given};

/// Builds the sandbox, runs the command and ends.
pub(crate) fn run(control: &OwnedFd) -> ! {
    let _stays = Stays;
    let control = control.as_fd();
    let (first, trees) = wait_for_part(control);
    let made = match begin(&first, trees) {
        Ok(made) => made,
        Err(stopped) => stop(control, stopped),
    };
    let (rest, descriptors) = wait_for_part(control);
    let (given, terminal) = match finish(&first, &rest, made, descriptors, control) {
        Ok(standing) => standing,
        Err(stopped) => stop(control, stopped),
    };
    let (command, _) = wait_for_part(control);
    // The command must not meet it with rights. It inherits nothing that it does not give up itself; only where a test lets
    // it keep something, that has to be there.
    let keeps =
        [Layer::Capabilities, Layer::NoNewPrivileges].map(|layer| first.weaken.is_off(layer));
    if keeps == [false; 2]
        && let Err(errno) = drop_capabilities()
    {
        stop(control, (Step::Other(Other::Privileges), errno));
    }
    let mut become_it = || {
        let terminal = terminal.as_ref().map(|pair| pair.slave.as_fd());
        let kept = (&rest.landlock, &given);
        child_command::become_it(&command, kept, first.weaken, terminal, control)
    };
    let child = match sys::fork_to_execute(&mut become_it) {
        Ok(child) => child,
        Err(errno) => {
            tell(control, failed(Other::Init, errno));
            sys::exit(125);
        }
    };
    watch(child, terminal.as_ref(), control, first.weaken)
}

/// Ends a copied process that panics: unwinding would go on into the copy of what its parent was about to do.
pub(crate) struct Stays;

impl Drop for Stays {
    fn drop(&mut self) {
        sys::exit(125);
    }
}

/// Waits for a part of the plan. If none comes, nobody wants a sandbox any more.
fn wait_for_part<T: DeserializeOwned>(control: BorrowedFd<'_>) -> (T, IntoIter<OwnedFd>) {
    match given::take_over(control) {
        Ok(Some(taken)) => taken,
        Ok(None) => sys::exit(125),
        Err(errno) => stop(control, (Step::Other(Other::Descriptors), errno)),
    }
}

fn stop(control: BorrowedFd<'_>, (step, errno): Stopped) -> ! {
    tell(control, Report::Failed(step, errno.raw_os_error()));
    sys::exit(125);
}

/// The descriptors of the command.
pub(crate) struct Given {
    /// Its standard input, output and error.
    pub(crate) stdio: [OwnedFd; 3],
    /// Landlock's set of rules, if there is any.
    pub(crate) rules: Option<OwnedFd>,
}

/// What was made so far.
struct Made {
    site: child_files::Site,
    trees: Vec<OwnedFd>,
    ops: u32,
    scratch: Option<OwnedFd>,
    doors: Option<child_network::Listeners>,
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

/// Makes what does not depend on the rest.
fn begin(first: &First, trees: IntoIter<OwnedFd>) -> Result<Made, Stopped> {
    let other = |which| move |errno| (Step::Other(which), errno);
    take_user(first.started_by_root).map_err(other(Other::User))?;
    let from_now_on = if first.weaken.is_off(Layer::Undumpable) {
        DumpableBehavior::Dumpable
    } else {
        DumpableBehavior::NotDumpable
    };
    rustix::process::set_dumpable_behavior(from_now_on).map_err(other(Other::User))?;
    let private = mnt::MountPropagationFlags::PRIVATE | mnt::MountPropagationFlags::REC;
    mnt::mount_change(c"/", private).map_err(other(Other::Private))?;
    let mut opened = Vec::new();
    open_sources(&first.files, trees, &mut opened, first.weaken)?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut made = Made {
        site: child_files::Site::open(&first.stage).map_err(other(Other::Root))?,
        trees: opened,
        ops: 0,
        scratch: None,
        doors: None,
    };
    perform(&first.files, &mut made)?;
    if !first.weaken.is_off(Layer::HostName) {
        rustix::system::sethostname(b"sandbox").map_err(other(Other::Name))?;
    }
    made.doors = match &first.network {
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
            if !first.weaken.is_off(Layer::Capture) {
                child_network::filter(capture).map_err(other(Other::Capture))?;
            }
            // See `nft`: without connection tracking these questions are refused.
            let _ = child_network::filter(names);
            Some(child_network::listen(*with_v6).map_err(other(Other::Listeners))?)
        }
    };
    Ok(made)
}

/// Makes the rest and says that the sandbox stands.
fn finish(
    first: &First,
    rest: &Rest,
    mut made: Made,
    mut descriptors: IntoIter<OwnedFd>,
    control: BorrowedFd<'_>,
) -> Result<(Given, Option<Pair>), Stopped> {
    let other = |which| move |errno| (Step::Other(which), errno);
    let mut next = || {
        let missing = (Step::Other(Other::Descriptors), Errno::BADMSG);
        descriptors.next().ok_or(missing)
    };
    let given = Given {
        stdio: [next()?, next()?, next()?],
        rules: match rest.landlock {
            Some(_) => Some(next()?),
            None => None,
        },
    };
    open_sources(&rest.files, descriptors, &mut made.trees, first.weaken)?;
    perform(&rest.files, &mut made)?;
    child_files::enter_root(made.site.root.as_fd(), first.weaken).map_err(other(Other::Pivot))?;
    if let (Some(rules), Some(set)) = (&rest.landlock, &given.rules) {
        child_files::allow(rules, set.as_fd()).map_err(other(Other::Landlock))?;
    }
    let terminal = match rest.terminal {
        Some(size) => Some(child_terminal::make(size).map_err(other(Other::Terminal))?),
        None => None,
    };
    let (scratch, doors) = (made.scratch.as_ref(), made.doors.as_ref());
    hand_over(control, scratch, terminal.as_ref(), doors).map_err(other(Other::Handover))?;
    Ok((given, terminal))
}

fn perform(files: &Files, made: &mut Made) -> Result<(), Stopped> {
    for op in &files.ops {
        child_files::perform(op, &made.site, &made.trees, &mut made.scratch)
            .map_err(|errno| (Step::Op(made.ops), errno))?;
        made.ops += 1;
    }
    Ok(())
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

/// Adds the trees of a part of the plan, in its order: the supervisor's, and those that the child has to open itself,
/// before anything is mounted over their paths.
fn open_sources(
    files: &Files,
    mut made: IntoIter<OwnedFd>,
    trees: &mut Vec<OwnedFd>,
    weaken: Weaken,
) -> Result<(), Stopped> {
    for source in &files.sources {
        let index = trees.len() as u32;
        let stopped = |errno| (Step::Source(index), errno);
        let tree = match source {
            Source::Tree => made.next().ok_or(stopped(Errno::BADMSG))?,
            Source::Path {
                path,
                device,
                inode,
                recursive,
                attributes,
            } => {
                let tree = child_files::clone_path(path, *recursive, *attributes, weaken)
                    .map_err(stopped)?;
                let found = rustix::fs::fstat(&tree).map_err(stopped)?;
                let is_other = found.st_dev != *device || found.st_ino != *inode;
                if is_other && !weaken.is_off(Layer::Exchange) {
                    return Err((Step::Exchanged(index), Errno::STALE));
                }
                tree
            }
        };
        trees.push(tree);
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
    send_with(control, &Report::Ready.encode(), &descriptors[..count])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Side;

    #[test]
    fn a_panic_in_a_copied_process_goes_no_further_than_that_process() {
        match sys::fork().unwrap() {
            Side::Child => {
                // Without a message: other threads of the tests may have held what it is written under.
                let panics = || {
                    let _stays = Stays;
                    std::panic::resume_unwind(Box::new(()))
                };
                let _ = std::panic::catch_unwind(panics);
                // Here it would be the parent's copy.
                sys::exit(1)
            }
            Side::Parent(pid, _) => {
                let pid = rustix::process::Pid::from_raw(pid);
                let ended = rustix::process::waitpid(pid, WaitOptions::empty()).unwrap();
                assert_eq!(ended.unwrap().1.exit_status(), Some(125));
            }
        }
    }
}
