//! The process that sandboxes are born of.
//!
//! It is forked from the supervisor early, while there is little to copy, has one thread, and keeps nothing of the
//! owner's: no descriptor and no variable. The first process of each sandbox is a copy of it and not of the supervisor,
//! whose keys it therefore never holds, and whose threads need not copy each page they write to while it is made. It is
//! the supervisor's own child all the same (`CLONE_PARENT`), and nothing depends on the zygote once it is born.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::DumpableBehavior;

use crate::channel::{receive, receive_bytes, send_with};
use crate::child;
use crate::error::Error;
use crate::later::Held;
use crate::message::{Other, Place, Report, Step};
use crate::owner::{Owner, Wanted};
use crate::start::{Running, descriptors, namespaces};
use crate::sys::{self, Side};
use crate::weaken::{Layer, Weaken};

/// A process that was asked for: the first one of a sandbox, which waits for its plan.
#[derive(Debug)]
pub(crate) struct Newborn {
    /// The channel to it. Before its first word it tells whether the process could be made.
    control: Option<OwnedFd>,
    running: Option<Running>,
    /// Why it could not be made. It is told once, and may be asked for again.
    refused: Option<(Other, i32)>,
}

/// What came of a request.
enum Answer {
    Born(Running),
    Refused(Other, i32),
}

impl Newborn {
    /// The channel to it. What is sent before it is born, it gets.
    pub(crate) fn control(&self) -> Result<&OwnedFd, Error> {
        let gone = || Error::Fault("the process was given away".into());
        self.control.as_ref().ok_or_else(gone)
    }

    /// Waits until it is born.
    pub(crate) fn born(&mut self) -> Result<&Running, Error> {
        if self.running.is_none() && self.refused.is_none() {
            match hear(self.control()?)? {
                Answer::Born(running) => self.running = Some(running),
                Answer::Refused(other, errno) => self.refused = Some((other, errno)),
            }
        }
        if let Some((other, errno)) = self.refused {
            return Err(crate::failure::other(other, errno));
        }
        let gone = || Error::Fault("the process was given away".into());
        self.running.as_ref().ok_or_else(gone)
    }

    /// The process and the channel to it.
    pub(crate) fn into_parts(mut self) -> Result<(Running, OwnedFd), Error> {
        self.born()?;
        let gone = || Error::Fault("the process was given away".into());
        let running = self.running.take().ok_or_else(gone)?;
        Ok((running, self.control.take().ok_or_else(gone)?))
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        // It is this process's child, which nobody else would wait for.
        if self.control.is_some() {
            let _ = self.born();
        }
    }
}

fn hear(control: &OwnedFd) -> Result<Answer, Error> {
    match receive(control) {
        Some((Report::Born(pid, place), descriptors)) => {
            let mut descriptors = descriptors.into_iter();
            let pidfd = descriptors.next();
            let pidfd = pidfd.ok_or_else(|| Error::Fault("a process has no descriptor".into()))?;
            let held = descriptors
                .next()
                .map(|mounts| Held::new(mounts, descriptors.next()));
            let mut running = Running::new(pid, pidfd, held);
            running.is_placed = place == Place::Asked;
            Ok(Answer::Born(running))
        }
        Some((Report::Failed(Step::Other(other), errno), descriptors)) => {
            // It is to be waited for all the same.
            for pidfd in descriptors {
                drop(Running::new(0, pidfd, None));
            }
            Ok(Answer::Refused(other, errno))
        }
        other => Err(Error::Fault(format!(
            "the process that sandboxes are born of said {other:?}"
        ))),
    }
}

/// Makes the process that sandboxes are born of. It ends with this one.
///
/// Call it first of all, before there are threads and secrets: then it has neither. Without this call the first sandbox
/// does it.
///
/// Where it is ended by somebody, another is forked from this process as it is by then, secrets included.
///
/// # Errors
/// If there may be no more processes or descriptors.
pub fn begin() -> Result<(), Error> {
    zygote(&mut lock(&ZYGOTE)).map(|_| ())
}

/// Says that a sandbox will be started soon, so that its first process is made meanwhile.
///
/// Of no consequence but for the time it takes; what is wrong is told when the sandbox is started.
pub fn expect() {
    let mut expected = lock(&EXPECTED);
    // More at once would only wait for each other.
    if expected.len() >= crate::turn::at_once() {
        return;
    }
    let owner = Owner::new();
    if let Ok(newborn) = ask(owner.wanted(namespaces(Weaken::default())), None) {
        expected.push_back((owner, newborn));
        crate::cgroup_place::get_ready_to_move();
    }
}

/// The first process of a sandbox, and whose it is. If it is made for this, it is in the group from the beginning, where
/// the kernel can do that: to be moved there takes some milliseconds.
pub(crate) fn next(
    weaken: Weaken,
    group: Option<BorrowedFd<'_>>,
) -> Result<(Owner, Newborn), Error> {
    if weaken == Weaken::default()
        && let Some(expected) = lock(&EXPECTED).pop_front()
    {
        return Ok(expected);
    }
    let owner = Owner::new();
    let wanted = owner.wanted(namespaces(weaken));
    if weaken.is_off(Layer::Descriptors) || weaken.is_off(Layer::Environment) {
        // One of its own, which has what this process has at the moment.
        let mut own = Some(begun(weaken)?);
        let mut newborn = ask_of(&mut own, wanted, group)?;
        newborn.born()?;
        return Ok((owner, newborn));
    }
    Ok((owner, ask(wanted, group)?))
}

/// The processes that are there for sandboxes to come.
pub(crate) fn processes() -> Vec<u32> {
    let zygote = lock(&ZYGOTE).as_ref().map(|zygote| zygote.process.pid);
    let mut expected = lock(&EXPECTED);
    let born = expected
        .iter_mut()
        .filter_map(|(_, newborn)| Some(newborn.born().ok()?.pid));
    zygote.into_iter().chain(born).collect()
}

#[derive(Debug)]
struct Zygote {
    process: Running,
    requests: OwnedFd,
}

static ZYGOTE: Mutex<Option<Zygote>> = Mutex::new(None);
static EXPECTED: Mutex<VecDeque<(Owner, Newborn)>> = Mutex::new(VecDeque::new());

/// Asks for a process.
pub(crate) fn ask(wanted: Wanted, group: Option<BorrowedFd<'_>>) -> Result<Newborn, Error> {
    ask_of(&mut lock(&ZYGOTE), wanted, group)
}

fn ask_of(
    current: &mut Option<Zygote>,
    wanted: Wanted,
    group: Option<BorrowedFd<'_>>,
) -> Result<Newborn, Error> {
    let (ours, theirs) = channel()?;
    let bytes = postcard::to_stdvec(&wanted).map_err(|error| Error::Fault(error.to_string()))?;
    for _ in 0..2 {
        let zygote = zygote(current)?;
        let given: Vec<_> = [theirs.as_fd()].into_iter().chain(group).collect();
        match send_with(&zygote.requests, &bytes, &given) {
            Ok(()) => {
                return Ok(Newborn {
                    control: Some(ours),
                    running: None,
                    refused: None,
                });
            }
            // Somebody ended it: there will be another.
            Err(_) => *current = None,
        }
    }
    Err(Error::Fault(
        "the process that sandboxes are born of is gone".into(),
    ))
}

fn zygote(current: &mut Option<Zygote>) -> Result<&Zygote, Error> {
    if current.is_none() {
        *current = Some(begun(Weaken::default())?);
    }
    current
        .as_ref()
        .ok_or_else(|| Error::Fault("there is no process that sandboxes are born of".into()))
}

fn begun(weaken: Weaken) -> Result<Zygote, Error> {
    let (ours, theirs) = channel()?;
    let machine = |errno: Errno| Error::Machine {
        part: "making the process that sandboxes are born of".into(),
        advice: "raise the limit of processes (`ulimit -u`)".into(),
        source: errno.into(),
    };
    match sys::fork().map_err(machine)? {
        Side::Child => serve(theirs, weaken),
        Side::Parent(pid, _) => {
            let number = rustix::process::Pid::from_raw(pid);
            let number = number.ok_or_else(|| Error::Fault("a process has no number".into()))?;
            let flags = rustix::process::PidfdFlags::empty();
            // It was not waited for, so the number is its own.
            let pidfd = rustix::process::pidfd_open(number, flags).map_err(machine)?;
            Ok(Zygote {
                process: Running::new(pid, pidfd, None),
                requests: ours,
            })
        }
    }
}

/// The life of the zygote.
fn serve(requests: OwnedFd, weaken: Weaken) -> ! {
    let _stays = child::Stays;
    sys::block_signals();
    if !weaken.is_off(Layer::Environment) {
        sys::forget_environment();
    }
    let Ok(requests) = alone(requests, weaken) else {
        sys::exit(1)
    };
    loop {
        let Some((wanted, control, group)) = request(&requests) else {
            // The supervisor is gone.
            sys::exit(0);
        };
        let failed = |other, errno, process: &[BorrowedFd<'_>]| {
            let report = Report::Failed(Step::Other(other), errno);
            let _ = send_with(&control, &report.encode(), process);
        };
        let Ok((word, go)) = pipe_with(PipeFlags::CLOEXEC) else {
            failed(Other::Descriptors, libc::EMFILE, &[]);
            continue;
        };
        let flags = wanted.namespaces | libc::CLONE_PARENT as u64;
        let (mut place, mut side) = (Place::Asked, Err(Errno::OPNOTSUPP));
        if let Some(group) = &group {
            side = sys::clone3(flags, Some(group.as_fd()));
        }
        if side.is_err() {
            // An older kernel, or a group that has to be entered by its file.
            (place, side) = (Place::Inherited, sys::clone3(flags, None));
        }
        match side {
            Ok(Side::Child) => {
                for foreign in [&requests, &go].into_iter().chain(&group) {
                    let number = foreign.as_raw_fd().unsigned_abs();
                    if sys::close_range(number, number).is_err() {
                        sys::exit(125);
                    }
                }
                // Without its user it could do nothing.
                if rustix::io::read(&word, &mut [0; 1]) != Ok(1) {
                    sys::exit(125);
                }
                let _ = rustix::thread::set_name(c"init");
                child::run(&control)
            }
            Ok(Side::Parent(pid, Some(pidfd))) => match wanted.map(pid.unsigned_abs()) {
                Ok(()) => {
                    let namespaces = ["mnt", "net"]
                        .map(|kind| std::fs::File::open(format!("/proc/{pid}/ns/{kind}")));
                    let mut descriptors = vec![pidfd.as_fd()];
                    // The second is of use beside the first only.
                    let opened = namespaces.iter().map_while(|file| file.as_ref().ok());
                    descriptors.extend(opened.map(AsFd::as_fd));
                    let _ = rustix::io::write(&go, &[1]);
                    let _ = send_with(&control, &Report::Born(pid, place).encode(), &descriptors);
                }
                // It ends when nobody can tell it to go on.
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    failed(Other::Maps, errno, &[pidfd.as_fd()]);
                }
            },
            Ok(Side::Parent(_, None)) => sys::exit(1),
            Err(errno) => failed(Other::Namespaces, errno.raw_os_error(), &[]),
        }
    }
}

/// Leaves everything of the supervisor's behind but the channel.
fn alone(given: OwnedFd, weaken: Weaken) -> Result<OwnedFd, Errno> {
    let requests = fcntl_dupfd_cloexec(&given, 3)?;
    drop(given);
    let kept = requests.as_raw_fd().unsigned_abs();
    if !weaken.is_off(Layer::Descriptors) {
        sys::close_range(0, kept - 1)?;
        sys::close_range(kept + 1, u32::MAX)?;
    }
    // What is opened later must not get the numbers of the standard streams.
    for _ in 0..3 {
        let null = rustix::fs::openat(CWD, c"/dev/null", OFlags::RDWR, Mode::empty())?;
        crate::child_files::keep(null);
    }
    rustix::process::chdir(c"/")?;
    rustix::thread::set_name(c"zygote")?;
    // It holds no secret, and what is not dumpable owns nothing under /proc: users could not be written there.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    Ok(requests)
}

/// The next request, the new process's end of its channel, and its group if it is to be born in one.
fn request(requests: &OwnedFd) -> Option<(Wanted, OwnedFd, Option<OwnedFd>)> {
    let mut bytes = [0; 64];
    let (length, descriptors) = receive_bytes(requests, &mut bytes)?;
    let mut descriptors = descriptors.into_iter();
    let control = descriptors.next()?;
    let wanted = postcard::from_bytes(bytes.get(..length)?).ok()?;
    Some((wanted, control, descriptors.next()))
}

fn channel() -> Result<(OwnedFd, OwnedFd), Error> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(descriptors)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole after each operation, so a panic elsewhere does not spoil it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_process_could_not_be_made_is_told_each_time() {
        let (ours, theirs) = channel().unwrap();
        let refused = Report::Failed(Step::Other(Other::Namespaces), libc::EACCES);
        send_with(&theirs, &refused.encode(), &[]).unwrap();
        drop(theirs);
        let mut newborn = Newborn {
            control: Some(ours),
            running: None,
            refused: None,
        };
        for _ in 0..2 {
            let error = newborn.born().unwrap_err().to_string();
            assert!(error.contains("making namespaces"), "{error}");
        }
    }
}
