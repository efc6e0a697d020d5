//! How a prepared sandbox is started: one `clone3`, a few words, and it stands.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::SendFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::answer::{Brokered, Doors};
use crate::cgroup::Cgroup;
use crate::channel::receive;
use crate::error::Error;
use crate::failure::failure;
use crate::given;
use crate::later;
use crate::message::{Report, Word};
use crate::owner::Owner;
use crate::plan::Plan;
use crate::prepare::Prepared;
use crate::signal::Signal as Asked;
use crate::spec::{Limits, Stdin};
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
    pub(crate) uncovered: Option<crate::uncovered::Uncovered>,
    pub(crate) running: Running,
    pub(crate) control: Arc<OwnedFd>,
    pub(crate) output: [OwnedFd; 2],
    /// The memory file system of `/tmp` and the home.
    pub(crate) scratch: Option<OwnedFd>,
    /// What there is where there are no namespaces.
    pub(crate) copy: Option<crate::copied::Copy>,
    pub(crate) fallback: Option<Box<crate::fallback::Standing>>,
    // After `running`: a group can be removed, and a user be somebody else, once its processes are gone.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) _owner: Owner,
}

/// The sandbox's first process. Dropping it ends the process, and with it the whole process namespace.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) pidfd: Arc<OwnedFd>,
    pub(crate) reaped: bool,
    /// Whether it was born in its control group.
    pub(crate) is_placed: bool,
    /// Where there is no process namespace, what tells the first process to end all others.
    bell: Option<Arc<OwnedFd>>,
    /// What of its namespaces is taken apart after its end.
    held: Option<later::Held>,
}

impl Running {
    /// The first process of a process namespace, and its other namespaces.
    pub(crate) fn new(pid: i32, pidfd: OwnedFd, held: Option<later::Held>) -> Self {
        Self {
            pid: pid.unsigned_abs(),
            pidfd: Arc::new(pidfd),
            reaped: false,
            is_placed: false,
            bell: None,
            held,
        }
    }

    /// One that ends all others when told to, because the kernel would not.
    pub(crate) fn guarded(pid: rustix::process::Pid, pidfd: OwnedFd, bell: Arc<OwnedFd>) -> Self {
        let mut running = Self::new(pid.as_raw_nonzero().get(), pidfd, None);
        running.bell = Some(bell);
        running
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
        if let Some(held) = self.held.take() {
            later::let_go(held);
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
        let newborn = self.newborn.take();
        let newborn = newborn.ok_or_else(|| Error::Fault("there is no process to start".into()))?;
        let (mut running, ours) = newborn.into_parts()?;
        let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
        let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
        self.owner.give(&out_end);
        self.owner.give(&err_end);
        let (stdin, input) = standard_input(self.stdin)?;
        let given: Vec<_> = [&stdin, &out_end, &err_end]
            .into_iter()
            .chain(&self.rules)
            .chain(&self.trees)
            .map(AsFd::as_fd)
            .collect();
        // If it is gone, it has said why.
        let _ = given::hand_over(&ours, &self.plan.rest, &given);
        drop((stdin, out_end, err_end));
        // While the child builds: joining takes some time, and nothing of the command runs before it is done.
        if let Some(cgroup) = &self.cgroup
            && !running.is_placed
        {
            cgroup
                .attach(running.pid)
                .map_err(|source| Error::Machine {
                    part: "putting the sandbox into its control group".into(),
                    advice: "run `valetkey doctor`".into(),
                    source,
                })?;
        }
        let (scratch, terminal, doors) = match receive(&ours) {
            Some((Report::Ready, descriptors)) => {
                received(descriptors, self.plan.rest.terminal.is_some())?
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
            uncovered: self.uncovered,
            running,
            control: Arc::new(ours),
            output: [out, err],
            scratch: Some(scratch),
            copy: self.copy,
            fallback: None,
            cgroup: self.cgroup,
            _owner: self.owner,
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
        match &mut self.fallback {
            Some(fallback) => {
                speak(&self.control)?;
                fallback.answer(&self.control, &self.plan)
            }
            None => given::hand_over(&self.control, &self.plan.command, &[])
                .map_err(|error| Error::Fault(format!("the sandbox is gone: {error}"))),
        }
    }

    /// Whether its first process is there.
    pub(crate) fn is_standing(&self) -> bool {
        let mut waiting = [PollFd::new(&*self.running.pidfd, PollFlags::IN)];
        poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
    }

    /// A way to end the sandbox from another thread.
    pub fn killer(&self) -> Killer {
        self.running.killer(&self.control)
    }
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
pub(crate) fn namespaces(weaken: Weaken) -> u64 {
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
