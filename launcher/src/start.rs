//! How a prepared sandbox is started: one `clone3`, a few words, and it stands.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::answer::{Brokered, Doors};
use crate::cgroup::Cgroup;
use crate::child::{self, Wires};
use crate::error::Error;
use crate::failure::failure;
use crate::later;
use crate::message::{LENGTH, Report, Word};
use crate::plan::{Plan, Source};
use crate::prepare::Prepared;
use crate::signal::Signal as Asked;
use crate::spec::{Limits, Stdin};
use crate::sys::{self, Side};
use crate::terminal::Terminal;
use crate::turn::Turn;
use crate::weaken::{Layer, Weaken};

/// A sandbox that stands. Dropping it ends everything in it.
#[derive(Debug)]
pub struct Started {
    /// The run's listeners, for `NetworkMode::ProxyOnly`. Take them before `release`.
    pub doors: Option<Doors>,
    /// The command's standard input, for [`Stdin::Piped`]. It ends when this is dropped.
    pub input: Option<OwnedFd>,
    /// The sandbox's terminal, if it has one.
    pub terminal: Option<Terminal>,
    /// The run's connections, where it has no network of its own. Take them before `release`.
    pub brokered: Option<Brokered>,
    pub(crate) released: Option<Instant>,
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    pub(crate) upper: Option<PathBuf>,
    pub(crate) not_isolated: &'static [&'static str],
    /// Bytes in `upper` that the command did not write.
    pub(crate) already: u64,
    pub(crate) work: Option<PathBuf>,
    pub(crate) running: Running,
    pub(crate) control: Arc<OwnedFd>,
    pub(crate) output: [OwnedFd; 2],
    /// The memory file system of `/tmp` and the home.
    pub(crate) scratch: Option<OwnedFd>,
    /// What there is where there are no namespaces.
    pub(crate) copy: Option<crate::copied::Copy>,
    pub(crate) fallback: Option<Box<crate::fallback::Standing>>,
    // After `running`: a group can be removed once its processes are gone.
    pub(crate) cgroup: Option<Cgroup>,
}

/// The sandbox's first process. Dropping it ends the process, and with it the whole process namespace.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) pidfd: Arc<OwnedFd>,
    pub(crate) reaped: bool,
    /// Where there is no process namespace, what tells the first process to end all others.
    bell: Option<Arc<OwnedFd>>,
    // Taking a mount namespace apart takes longer than all else at the end; while this is held it happens later.
    mounts: Option<std::fs::File>,
}

impl Running {
    /// One that ends all others when told to, because the kernel would not.
    pub(crate) fn guarded(pid: rustix::process::Pid, pidfd: OwnedFd, bell: Arc<OwnedFd>) -> Self {
        Self {
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            pidfd: Arc::new(pidfd),
            reaped: false,
            bell: Some(bell),
            mounts: None,
        }
    }

    fn killer(&self, control: &Arc<OwnedFd>) -> Killer {
        Killer {
            pidfd: Arc::clone(&self.pidfd),
            control: Arc::clone(control),
            bell: self.bell.clone(),
        }
    }

    fn kill(&self) {
        kill(&self.pidfd, self.bell.as_deref());
    }

    /// Ends it and waits until the last process of the sandbox is gone.
    pub(crate) fn end(&mut self) {
        self.kill();
        self.reap();
    }

    /// Waits for it. It is over before this returns: the kernel lets the first process of a namespace be waited for
    /// once all others are gone.
    pub(crate) fn reap(&mut self) {
        while !self.reaped {
            let id = WaitId::PidFd(self.pidfd.as_fd());
            match rustix::process::waitid(id, WaitIdOptions::EXITED) {
                Err(Errno::INTR) => {}
                // Somebody else in this process may have waited for it.
                Ok(_) | Err(_) => self.reaped = true,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.end();
        }
        if let Some(mounts) = self.mounts.take() {
            later::close(mounts);
        }
    }
}

/// Ends a sandbox from another thread, or asks its command to end.
#[derive(Clone, Debug)]
pub struct Killer {
    pidfd: Arc<OwnedFd>,
    control: Arc<OwnedFd>,
    bell: Option<Arc<OwnedFd>>,
}

impl Killer {
    /// Ends everything in the sandbox. Does nothing if it has ended.
    pub fn kill(&self) {
        kill(&self.pidfd, self.bell.as_deref());
    }

    /// Passes a signal to the command, which may take it as it likes: to the processes in the foreground of its terminal,
    /// or else to its process group, but SIGUSR1 and SIGUSR2 to itself only. SIGTERM and SIGHUP reach the command in any
    /// case, also where it is stopped. Before the command was released, it never starts.
    pub fn ask(&self, signal: Asked) {
        let word = Word::Signal(signal).encode();
        let _ = rustix::net::send(
            &self.control,
            &word,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
    }

    /// Asks the command to end and, where it has not within `grace`, ends everything in the sandbox.
    pub fn end(&self, signal: Asked, grace: Duration) {
        self.ask(signal);
        let grace = Timespec {
            tv_sec: grace.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: grace.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::new(&*self.pidfd, PollFlags::IN)];
        // Interrupted, it ends earlier.
        if !poll(&mut waiting, Some(&grace)).is_ok_and(|ready| ready > 0) {
            self.kill();
        }
    }
}

fn kill(first: &OwnedFd, bell: Option<&OwnedFd>) {
    let _ = match bell {
        Some(bell) => rustix::io::write(bell, &1_u64.to_ne_bytes()).map(|_| ()),
        None => rustix::process::pidfd_send_signal(first, Signal::KILL),
    };
}

impl Prepared {
    /// Builds the sandbox. It stands when this returns; nothing of the command has run.
    pub fn start(mut self) -> Result<Started, Error> {
        if let Some(fallback) = self.fallback.take() {
            return crate::fallback::start(self, *fallback);
        }
        let _turn = Turn::take();
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(descriptors)?;
        let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
        let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
        self.owner.give(&out_end);
        self.owner.give(&err_end);
        // Above 2, so that the child can put them at 0 to 2 one after another.
        let theirs = fcntl_dupfd_cloexec(&theirs, 3).map_err(descriptors)?;
        let (stdin, input) = standard_input(self.stdin)?;
        let stdio = [
            stdin,
            fcntl_dupfd_cloexec(&out_end, 3).map_err(descriptors)?,
            fcntl_dupfd_cloexec(&err_end, 3).map_err(descriptors)?,
        ];
        drop((out_end, err_end));
        let wires = Wires {
            control: theirs.as_raw_fd(),
            stdio: [0, 1, 2].map(|which: usize| stdio[which].as_raw_fd()),
            close: to_close(&self.plan, &theirs, &stdio),
        };
        let side = sys::clone3(namespaces(self.plan.weaken)).map_err(|errno| Error::Machine {
            part: "making namespaces".into(),
            advice: crate::advice::user_namespace(),
            source: errno.into(),
        })?;
        let (pid, pidfd) = match side {
            Side::Child => child::run(&self.plan, &wires),
            Side::Parent(pid, Some(pidfd)) => (pid, pidfd),
            Side::Parent(..) => return Err(Error::Fault("no descriptor of the child".into())),
        };
        let mut running = Running {
            pid: pid.unsigned_abs(),
            pidfd: Arc::new(pidfd),
            reaped: false,
            bell: None,
            mounts: std::fs::File::open(format!("/proc/{pid}/ns/mnt")).ok(),
        };
        drop((theirs, stdio));

        match receive(&ours) {
            Some((Report::Born, _)) => {}
            answer => return Err(self.explain(answer.map(|(report, _)| report), &mut running)),
        }
        self.owner.map(pid)?;
        speak(&ours)?;
        // While the child builds: joining takes some milliseconds, and nothing of the command runs before it is done.
        if let Some(cgroup) = &self.cgroup {
            cgroup.attach(pid).map_err(|source| Error::Machine {
                part: "putting the sandbox into its control group".into(),
                advice: "run `valetkey doctor`".into(),
                source,
            })?;
        }
        let (scratch, terminal, doors) = match receive(&ours) {
            Some((Report::Ready, descriptors)) => {
                received(descriptors, self.plan.terminal.is_some())?
            }
            answer => return Err(self.explain(answer.map(|(report, _)| report), &mut running)),
        };
        let out = match &terminal {
            Some(terminal) => fcntl_dupfd_cloexec(terminal, 3).map_err(descriptors)?,
            None => out,
        };
        for stream in [&out, &err] {
            rustix::io::ioctl_fionbio(stream, true).map_err(descriptors)?;
        }
        Ok(Started {
            doors,
            input,
            terminal,
            brokered: None,
            released: None,
            plan: self.plan,
            limits: self.limits,
            upper: self.upper,
            already: self.already,
            not_isolated: self.not_isolated,
            work: self.work,
            running,
            control: Arc::new(ours),
            output: [out, err],
            scratch: Some(scratch),
            copy: self.copy,
            fallback: None,
            cgroup: self.cgroup,
        })
    }

    fn explain(&self, report: Option<Report>, running: &mut Running) -> Error {
        running.end();
        match report {
            Some(Report::Failed(step, errno)) => failure(&self.plan, step, errno),
            None if self
                .cgroup
                .as_ref()
                .is_some_and(|group| group.out_of_memory() > 0) =>
            {
                Error::Request("limits.memory is too small for the sandbox itself".into())
            }
            other => Error::Fault(format!("the first process said {other:?}")),
        }
    }
}

impl Started {
    /// Lets the command start. Its time on the clock counts from here; call it once.
    pub fn release(&mut self) -> Result<(), Error> {
        self.released = Some(Instant::now());
        speak(&self.control)?;
        match &mut self.fallback {
            Some(fallback) => fallback.answer(&self.control, &self.plan),
            None => Ok(()),
        }
    }

    /// A way to end the sandbox from another thread.
    pub fn killer(&self) -> Killer {
        self.running.killer(&self.control)
    }
}

/// One message, with the descriptors that came along. `None` if the other side is gone.
pub(crate) fn receive(control: &OwnedFd) -> Option<(Report, Vec<OwnedFd>)> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, recvmsg};
    let mut bytes = [0_u8; LENGTH];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
        match recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message.bytes,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Report::decode(bytes.get(..length)?).map(|report| (report, descriptors))
}

/// Whether a message or the end of the channel is there.
pub(crate) fn has_word(control: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(control, PollFlags::IN)];
    let now = rustix::event::Timespec::default();
    poll(&mut waiting, Some(&now)).is_ok_and(|ready| ready > 0)
}

type Received = (OwnedFd, Option<Terminal>, Option<Doors>);

fn received(descriptors: Vec<OwnedFd>, with_terminal: bool) -> Result<Received, Error> {
    let mut descriptors = descriptors.into_iter();
    let scratch = descriptors
        .next()
        .ok_or_else(|| Error::Fault("the sandbox sent no descriptor".into()))?;
    let terminal = match with_terminal {
        true => Some(Terminal::new(descriptors.next().ok_or_else(|| {
            Error::Fault("the sandbox sent no terminal".into())
        })?)),
        false => None,
    };
    let (Some(v4), Some(udp), Some(tcp)) =
        (descriptors.next(), descriptors.next(), descriptors.next())
    else {
        return Ok((scratch, terminal, None));
    };
    let doors = Doors {
        v4: TcpListener::from(v4),
        dns_udp: UdpSocket::from(udp),
        dns_tcp: TcpListener::from(tcp),
        v6: descriptors.next().map(TcpListener::from),
    };
    Ok((scratch, terminal, Some(doors)))
}

fn speak(control: &OwnedFd) -> Result<(), Error> {
    rustix::net::send(control, &Word::Go.encode(), SendFlags::NOSIGNAL)
        .map(|_| ())
        .map_err(|errno| Error::Fault(format!("the sandbox is gone: {errno}")))
}

/// The command's end, and ours if what it reads comes from us.
pub(crate) fn standard_input(asked: Stdin) -> Result<(OwnedFd, Option<OwnedFd>), Error> {
    let ours = std::io::stdin();
    let inherit = match asked {
        Stdin::Piped => {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
            let read = fcntl_dupfd_cloexec(&read, 3).map_err(descriptors)?;
            return Ok((read, Some(write)));
        }
        Stdin::Inherit => true,
        Stdin::InheritUnlessTerminal => !rustix::termios::isatty(&ours),
        Stdin::Null => false,
    };
    if inherit && let Ok(copy) = fcntl_dupfd_cloexec(&ours, 3) {
        let is_folder = rustix::fs::fstat(&copy)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
        if is_folder {
            // From an open folder a path leads out of the sandbox.
            return Err(Error::Request("standard input is a folder".into()));
        }
        return Ok((copy, None));
    }
    let null = std::fs::File::open("/dev/null").map_err(|source| Error::Machine {
        part: "opening /dev/null".into(),
        advice: "give this machine or container a /dev".into(),
        source,
    })?;
    Ok((fcntl_dupfd_cloexec(&null, 3).map_err(descriptors)?, None))
}

/// The ranges between the descriptors that the child keeps.
fn to_close(plan: &Plan, control: &OwnedFd, stdio: &[OwnedFd; 3]) -> Vec<(u32, u32)> {
    if plan.weaken.is_off(Layer::Descriptors) {
        return Vec::new();
    }
    let mut kept: Vec<RawFd> = stdio.iter().map(AsRawFd::as_raw_fd).collect();
    kept.push(control.as_raw_fd());
    kept.extend(plan.landlock.iter().map(|rules| rules.set.as_raw_fd()));
    kept.extend(plan.sources.iter().filter_map(|source| match source {
        Source::Tree(tree) => Some(tree.as_raw_fd()),
        Source::Path { .. } => None,
    }));
    between(kept)
}

/// The ranges of descriptors between those that are kept.
pub(crate) fn between(mut kept: Vec<RawFd>) -> Vec<(u32, u32)> {
    kept.sort_unstable();
    let mut ranges = Vec::new();
    let mut next = 0;
    for number in kept {
        let number = number.unsigned_abs();
        if number > next {
            ranges.push((next, number - 1));
        }
        next = number + 1;
    }
    ranges.push((next, u32::MAX));
    ranges
}

pub(crate) fn descriptors(errno: Errno) -> Error {
    Error::Machine {
        part: "making descriptors".into(),
        advice: "raise the limit of open files (`ulimit -n`)".into(),
        source: errno.into(),
    }
}

/// A user, mount, process, network, IPC, host name and control group namespace.
fn namespaces(weaken: Weaken) -> u64 {
    let all = [
        (libc::CLONE_NEWPID, Layer::ProcessNamespace),
        (libc::CLONE_NEWNET, Layer::NetworkNamespace),
        (libc::CLONE_NEWIPC, Layer::IpcNamespace),
        (libc::CLONE_NEWUTS, Layer::HostName),
    ];
    let always = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP;
    let switched = all.iter().filter(|(_, layer)| !weaken.is_off(*layer));
    switched.fold(always, |flags, (flag, _)| flags | flag) as u64
}
