//! The first process of a sandbox without namespaces: it starts the command, and ends all that came of it.
//!
//! It is a copy of one thread of a threaded process, so it allocates nothing and takes no lock. What the command starts
//! cannot get away from it: orphans become its children, and one signal reaches all of them, and nobody else, because
//! Landlock keeps its signals to its own descendants.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions};

use crate::child::{
    Stays, drop_capabilities, failed, gain_nothing, next_word, tell, wait_for_word,
};
use crate::child_command::{execute, lower, pin};
use crate::child_terminal;
use crate::message::{Other, Report, Word};
use crate::plan::Command;
use crate::sys::{self, Instruction, Side};

/// The descriptors of the guard, by number: they are the supervisor's, copied.
#[derive(Debug)]
pub(crate) struct Wires {
    /// The channel to the supervisor.
    pub(crate) control: RawFd,
    /// Readable once everything is to end.
    pub(crate) bell: RawFd,
    /// The Landlock rules of the guard.
    pub(crate) own_signals: RawFd,
    /// The Landlock rules of the command.
    pub(crate) view: RawFd,
    /// The command's standard input, output and error; above 2.
    pub(crate) stdio: [RawFd; 3],
    /// Everything else, to be closed.
    pub(crate) close: Vec<(u32, u32)>,
}

/// Watches over the command until it has ended, and everything with it.
pub(crate) fn run(command: &Command, asking: &[Instruction], wires: &Wires) -> ! {
    let _stays = Stays;
    let control = sys::borrowed(wires.control);
    let signals = match settle(wires) {
        Ok(signals) => signals,
        Err((other, errno)) => {
            tell(control, failed(other, errno));
            sys::exit(125);
        }
    };
    tell(control, Report::Ready);
    // It may be told to end before there is a command.
    let mut waiting = [
        PollFd::new(&control, PollFlags::IN),
        PollFd::from_borrowed_fd(sys::borrowed(wires.bell), PollFlags::IN),
    ];
    while poll(&mut waiting, None) == Err(Errno::INTR) {}
    if !waiting[1].revents().is_empty() || !wait_for_word(control) {
        sys::exit(125);
    }
    let own = rustix::process::getpid();
    let child = match sys::fork() {
        Ok(Side::Child) => become_it(command, asking, wires, own),
        Ok(Side::Parent(child, _)) => child,
        Err(errno) => {
            tell(control, failed(Other::Init, errno));
            sys::exit(125);
        }
    };
    watch(child, &signals, wires)
}

fn settle(wires: &Wires) -> Result<OwnedFd, (Other, Errno)> {
    let other = |which| move |errno| (which, errno);
    for (first, last) in &wires.close {
        sys::close_range(*first, *last).map_err(other(Other::Descriptors))?;
    }
    // It is a copy of the supervisor, who holds secrets.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(other(Other::Privileges))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(other(Other::Init))?;
    rustix::process::setsid().map_err(other(Other::Init))?;
    let supervisor = rustix::process::getppid();
    gain_nothing()
        .and_then(|()| drop_capabilities())
        .map_err(other(Other::Privileges))?;
    sys::landlock_enforce(sys::borrowed(wires.own_signals)).map_err(other(Other::Landlock))?;
    // Everything at the end rests on this: a signal to everybody must reach nobody outside.
    match supervisor.map(rustix::process::test_kill_process) {
        Some(Err(Errno::PERM)) => {}
        Some(Ok(()) | Err(_)) | None => return Err((Other::Landlock, Errno::NOTSUP)),
    }
    sys::child_signals().map_err(other(Other::Init))
}

fn become_it(command: &Command, asking: &[Instruction], wires: &Wires, guard: Pid) -> ! {
    let control = sys::borrowed(wires.control);
    match ready(command, asking, wires, guard) {
        Err((other, errno)) => tell(control, failed(other, errno)),
        Ok(()) => {
            let errno = execute(command);
            tell(control, Report::NotExecuted(errno.raw_os_error()));
        }
    }
    sys::exit(125)
}

fn ready(
    command: &Command,
    asking: &[Instruction],
    wires: &Wires,
    guard: Pid,
) -> Result<(), (Other, Errno)> {
    let other = |which| move |errno| (which, errno);
    rustix::process::setsid().map_err(other(Other::Init))?;
    // If somebody kills the guard, the command at least ends with it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(other(Other::Init))?;
    if rustix::process::getppid() != Some(guard) {
        return Err((Other::Init, Errno::SRCH));
    }
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let [stdin, stdout, stderr] = wires.stdio.map(sys::borrowed);
    rustix::stdio::dup2_stdin(stdin).map_err(other(Other::Descriptors))?;
    rustix::stdio::dup2_stdout(stdout).map_err(other(Other::Descriptors))?;
    rustix::stdio::dup2_stderr(stderr).map_err(other(Other::Descriptors))?;
    rustix::process::chdir(command.workdir.as_c_str()).map_err(other(Other::Workdir))?;
    for (resource, value) in &command.rlimits {
        lower(*resource, *value).map_err(other(Other::Rlimits))?;
    }
    if let Some(count) = command.processors {
        pin(count).map_err(other(Other::Rlimits))?;
    }
    sys::reset_signals();
    sys::close_on_exec_from(3).map_err(other(Other::Descriptors))?;
    sys::landlock_enforce(sys::borrowed(wires.view)).map_err(other(Other::Landlock))?;
    let listener = sys::install_asking_filter(asking).map_err(other(Other::Asking))?;
    hand_over(sys::borrowed(wires.control), &listener).map_err(other(Other::Handover))?;
    // It closes with the exec, like everything else above 2.
    let _ = crate::child_files::keep(listener);
    sys::install_filter(&command.filter).map_err(other(Other::Filter))
}

fn hand_over(control: BorrowedFd<'_>, listener: &OwnedFd) -> Result<(), Errno> {
    use std::os::fd::AsFd;
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
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

/// The rest of its life: ends with the command, with the supervisor, or when told to.
fn watch(command: i32, signals: &OwnedFd, wires: &Wires) -> ! {
    let control = sys::borrowed(wires.control);
    let bell = sys::borrowed(wires.bell);
    for number in wires.stdio {
        let _ = sys::close_range(number.unsigned_abs(), number.unsigned_abs());
    }
    loop {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == command => {
                    tell(control, Report::Ended(status.as_raw()));
                    end_all();
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => end_all(),
            }
        }
        let mut waiting = [
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&bell, PollFlags::IN),
            PollFd::new(&control, PollFlags::IN),
        ];
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => end_all(),
        }
        if !waiting[1].revents().is_empty() {
            end_all();
        }
        if !waiting[2].revents().is_empty() {
            match next_word(control) {
                Some(Word::Signal(signal)) => child_terminal::pass_on(signal, command, None),
                Some(Word::Go) => {}
                None => end_all(),
            }
        }
        let mut ignored = [0_u8; 128];
        let _ = rustix::io::read(signals, &mut ignored);
    }
}

/// Ends everything that came of the command, and waits until the last of it is gone.
///
/// The kernel lets no process be made while one signal goes to all, so none is missed; orphans are this process's.
fn end_all() -> ! {
    loop {
        sys::signal_all(libc::SIGKILL);
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => sys::exit(0),
        }
    }
}
