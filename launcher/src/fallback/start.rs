//! How a prepared sandbox without namespaces is started, and what is done once it has ended.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::connect::Connections;
use super::guard::{self, Wires};
use super::prepare::{Fallback, Layer};
use super::{Scratch, layer, questions};
use crate::answer::Brokered;
use crate::channel::receive;
use crate::error::Error;
use crate::failure::failure;
use crate::message::Report;
use crate::plan::Plan;
use crate::prepare::Prepared;
use crate::start::{Running, Started, between, descriptors, standard_input};
use crate::sys::{self, Side};

/// What a standing sandbox without namespaces holds.
#[derive(Debug)]
pub(crate) struct Standing {
    writable: Vec<PathBuf>,
    connections: Option<Connections>,
    layer: Option<Layer>,
    scratch: Scratch,
    /// Closed once nobody is left who could ask: nothing of the command runs any more.
    asking: Option<Mutex<Receiver<()>>>,
}

/// Builds the sandbox. It stands when this returns; nothing of the command has run.
pub(crate) fn start(prepared: Prepared, fallback: Fallback) -> Result<Started, Error> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(descriptors)?;
    let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
    let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(descriptors)?;
    let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(descriptors)?;
    let (waiting, taken) = sync_channel(MOST_WAITING);
    let connections = Connections::new(waiting).map_err(|source| Error::Machine {
        part: "listening on 127.0.0.1".into(),
        advice: "give this machine or container a loopback interface".into(),
        source,
    })?;
    // Above 2, so that the command can have its own at 0 to 2.
    let high = |descriptor: &OwnedFd| fcntl_dupfd_cloexec(descriptor, 3).map_err(descriptors);
    let (stdin, input) = standard_input(prepared.stdin)?;
    let stdio = [stdin, high(&out_end)?, high(&err_end)?];
    let kept = [
        high(&theirs)?,
        high(&bell)?,
        high(&fallback.own_signals)?,
        high(&fallback.view)?,
    ];
    drop((out_end, err_end, theirs));
    let number = |descriptor: &OwnedFd| descriptor.as_raw_fd();
    let all: Vec<RawFd> = stdio.iter().chain(&kept).map(number).collect();
    let wires = Wires {
        control: number(&kept[0]),
        bell: number(&kept[1]),
        own_signals: number(&kept[2]),
        view: number(&kept[3]),
        stdio: [0, 1, 2].map(|which: usize| number(&stdio[which])),
        close: between(all),
    };
    let side = sys::fork().map_err(|errno| Error::Machine {
        part: "making the sandbox's first process".into(),
        advice: "raise the limit of processes (`ulimit -u`)".into(),
        source: errno.into(),
    })?;
    let pid = match side {
        Side::Child => guard::run(&prepared.plan.command, &fallback.filter, &wires),
        Side::Parent(pid, _) => pid,
    };
    let pid = Pid::from_raw(pid).ok_or_else(|| Error::Fault("the child has no number".into()))?;
    // It was not waited for, so the number is its own.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(descriptors)?;
    let mut running = Running::guarded(pid, pidfd, Arc::new(bell));
    drop((kept, stdio));

    match receive(&ours) {
        Some((Report::Ready, _)) => {}
        answer => {
            running.end();
            return Err(unready(&prepared.plan, answer.map(|(report, _)| report)));
        }
    }
    if let Some(cgroup) = &prepared.cgroup {
        cgroup
            .attach(running.pid)
            .map_err(|source| Error::Machine {
                part: "putting the sandbox into its control group".into(),
                advice: "run `valetkey doctor`".into(),
                source,
            })?;
    }
    for stream in [&out, &err] {
        rustix::io::ioctl_fionbio(stream, true).map_err(descriptors)?;
    }
    let has_network = fallback.network == crate::spec::NetworkMode::ProxyOnly;
    Ok(Started {
        doors: None,
        input,
        terminal: None,
        brokered: has_network.then_some(Brokered(Mutex::new(taken))),
        released: None,
        plan: prepared.plan,
        limits: prepared.limits,
        upper: prepared.upper,
        already: prepared.already,
        not_isolated: prepared.not_isolated,
        work: prepared.work,
        running,
        control: Arc::new(ours),
        output: [out, err],
        scratch: None,
        cgroup: prepared.cgroup,
        _owner: prepared.owner,
        copy: None,
        uncovered: None,
        fallback: Some(Box::new(Standing {
            writable: fallback.writable,
            connections: Some(connections),
            layer: fallback.layer,
            scratch: fallback.scratch,
            asking: None,
        })),
    })
}

impl Standing {
    /// Waits until the command is about to start, and begins to answer its questions.
    pub(crate) fn answer(&mut self, control: &OwnedFd, plan: &Plan) -> Result<(), Error> {
        let filter = match receive(control) {
            Some((Report::Ready, descriptors)) => descriptors.into_iter().next(),
            answer => return Err(unready(plan, answer.map(|(report, _)| report))),
        };
        let (Some(filter), Some(connections)) = (filter, self.connections.take()) else {
            return Err(Error::Fault("the sandbox sent no filter".into()));
        };
        let writable = self.writable.clone();
        let (last, asking) = sync_channel(0);
        self.asking = Some(Mutex::new(asking));
        std::thread::Builder::new()
            .name("questions".into())
            .spawn(move || {
                let _last: SyncSender<()> = last;
                questions::answer_all(&filter, connections, &writable);
            })
            .map(|_| ())
            .map_err(|source| Error::Machine {
                part: "starting a thread".into(),
                advice: "raise the limit of processes (`ulimit -u`)".into(),
                source,
            })
    }

    /// Keeps what was changed in the copy of the workspace.
    ///
    /// # Errors
    /// If it cannot be written down, or something still runs in it, as when somebody killed the first process, which
    /// ends all others; then its folder stays, too.
    pub(crate) fn finish(self) -> std::io::Result<()> {
        let last = self.asking.map(|asking| {
            let asking = asking.into_inner().unwrap_or_else(PoisonError::into_inner);
            asking.recv_timeout(LAST)
        });
        if last == Some(Err(RecvTimeoutError::Timeout)) {
            let place = self.scratch.leave();
            return Err(std::io::Error::other(format!(
                "processes of the command outlived the one that ends them, which somebody killed; they work in `{}`",
                place.display()
            )));
        }
        match &self.layer {
            Some(kept) => layer::write(&kept.copy, &kept.copied, &kept.upper),
            None => Ok(()),
        }
    }
}

fn unready(plan: &Plan, report: Option<Report>) -> Error {
    match report {
        Some(Report::Failed(step, errno)) => failure(plan, step, errno),
        other => Error::Fault(format!("the first process said {other:?}")),
    }
}

/// How long it takes at most until the kernel has cleared away what was killed.
const LAST: Duration = Duration::from_secs(2);
/// Connections that wait for the proxy; more are refused.
const MOST_WAITING: usize = 64;
