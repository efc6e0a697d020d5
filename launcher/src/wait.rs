//! How the end of a command is waited for: its output passed on, its limits kept, its end explained.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sdk::report::{Failure, Limit, LimitHit, Outcome};

use crate::answer::{Finished, Stream};
use crate::changes::escaped;
use crate::channel::{has_word, receive};
use crate::failure::failure;
use crate::message::Report;
use crate::start::Started;
use crate::tail::Recent;
use crate::watch::{Watch, hit};
use crate::written;

impl Started {
    /// Waits for the end, passing on output as it comes and keeping the limits.
    ///
    /// Everything the command started has ended when this returns. A sandbox that was not released is ended.
    pub fn wait(mut self, on_output: &mut dyn FnMut(Stream, &[u8])) -> Finished {
        let began = self.released.unwrap_or_else(|| {
            self.killer().kill();
            Instant::now()
        });
        let mut watch = Watch::new(&self, began);
        let mut output = Output::new(self.limits.output);
        let mut said: Option<Report> = None;
        // Limits are kept by a thread of their own: a reader that takes no more output, such as a pager, must not keep
        // the command running past them.
        let over = match self.ends_quietly(&watch) {
            true => Ok(None),
            false => std::thread::scope(|scope| {
                let started = &self;
                let keeper = std::thread::Builder::new()
                    .name("limits".into())
                    .spawn_scoped(scope, || watch.keep(started));
                if keeper.is_err() {
                    started.killer().kill();
                }
                started.pump(&mut output, &mut said, on_output);
                keeper.and_then(|keeper| keeper.join().unwrap_or(Ok(None)))
            }),
        };
        // It has ended but was not reaped: its times can still be read.
        let cpu = watch.final_cpu(&self);
        self.running.reap();
        // Without namespaces, nothing of it ends by itself where its first process was killed from outside.
        if let (Some(group), true) = (&self.cgroup, self.fallback.is_some()) {
            group.kill();
        }
        let kept = self
            .fallback
            .take()
            .map_or(Ok(()), |fallback| fallback.finish())
            .and_then(|()| self.copy.take().map_or(Ok(()), |copy| copy.finish()));
        if let Some(work) = &self.work {
            // Its folders have no permissions, so that nobody else could easily remove them. The next start tries again.
            let _ = crate::workspace::clear_work(work);
        }
        let wall = began.elapsed();
        for (index, stream) in STREAMS.into_iter().enumerate() {
            while output.pump(index, &self.output[index], stream, on_output) {}
        }
        while said.is_none() && has_word(&self.control) {
            if !self.listen(&mut said) {
                break;
            }
        }
        let killed_for_memory = watch.killed_for_memory(&self);
        let passed = matches!(said, Some(Report::Ended(0)));
        let mut limits_hit = watch.limits_hit(&self, !passed);
        let over = over.map(|over| {
            over.or_else(|| output.over())
                // A child that was killed for want of memory can leave a run that seems to pass.
                .or(killed_for_memory)
                .or_else(|| self.cpu_time_by_kernel(said, cpu))
        });
        let outcome = match over {
            Ok(over) => self.outcome(said, over, &mut limits_hit),
            Err(error) => Outcome::Failed(Failure::SetupFailed(format!(
                "no thread could be started to keep the limits: {error}"
            ))),
        };
        let outcome = match watch.uncovered(&self) {
            Some(path) => Outcome::Failed(Failure::SetupFailed(uncovered(&path))),
            None => outcome,
        };
        let not_kept = (kept.err())
            .map(|error| format!("what the command changed could not be written down: {error}"));
        let outcome = match (outcome, &not_kept) {
            // What builds upon it would build upon nothing.
            (Outcome::Passed, Some(why)) => Outcome::Failed(Failure::SetupFailed(why.clone())),
            (outcome, _) => outcome,
        };
        let [stdout, stderr] = output.tails.map(Recent::into_tail);
        Finished {
            outcome,
            limits_hit,
            wall,
            cpu,
            memory_peak: watch.memory_peak(&self),
            landlock: (self.plan.rest.landlock.as_ref()).map_or(0, |rules| rules.version),
            stdout,
            stderr,
            not_isolated: self.not_isolated,
            not_kept,
        }
    }

    /// Passes on output and hears reports until the first process has ended.
    fn pump(
        &self,
        output: &mut Output,
        said: &mut Option<Report>,
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) {
        let mut ended = false;
        while !ended {
            let ready = self.poll(output);
            for (index, stream) in STREAMS.into_iter().enumerate() {
                if ready[index] {
                    output.pump(index, &self.output[index], stream, on_output);
                }
            }
            if ready[2] && !self.listen(said) {
                // Closed: it would be ready for ever.
                output.quiet = true;
            }
            ended = ready[3];
            if !ended && output.over().is_some() {
                // The first process is killed, so the kernel kills the rest; then the loop sees it ended.
                self.killer().kill();
            }
        }
    }

    /// Which of standard output, standard error, the channel and the first process's end are ready.
    fn poll(&self, output: &Output) -> [bool; 4] {
        let asked = [
            (&self.output[0], !output.closed[0]),
            (&self.output[1], !output.closed[1]),
            (&self.control, !output.quiet),
            (&*self.running.pidfd, true),
        ];
        let places: Vec<usize> = (0..4).filter(|place| asked[*place].1).collect();
        let mut waiting: Vec<PollFd<'_>> = places
            .iter()
            .map(|place| PollFd::new(asked[*place].0, PollFlags::IN))
            .collect();
        let mut ready = [false; 4];
        if poll(&mut waiting, None).is_ok() {
            for (place, waiting) in places.iter().zip(&waiting) {
                ready[*place] = !waiting.revents().is_empty();
            }
        }
        ready
    }

    /// Hears one report. `false` if there was none.
    fn listen(&self, said: &mut Option<Report>) -> bool {
        match receive(&self.control) {
            // What went wrong says more than that the process then ended.
            Some((Report::Ended(_), _)) if said.is_some() => true,
            Some((report, _)) => {
                *said = Some(report);
                true
            }
            None => false,
        }
    }

    /// The limit that the kernel ended a program for, if it wrote a file of that length: anybody can send the signal.
    fn file_too_large(&self) -> Option<LimitHit> {
        let (which, length) = self.limits.largest_file()?;
        let value = match which {
            Limit::Disk => self.limits.disk.unwrap_or(length),
            _ => length,
        };
        let is_there = written::has_file_of(length, self.scratch.as_ref(), self.upper.as_deref());
        // In a read-write workspace, what it wrote is not told from what was there.
        let cannot_be_seen = self.upper.is_none();
        (is_there || cannot_be_seen).then_some(LimitHit {
            which,
            value,
            used: is_there.then_some(length),
        })
    }

    /// The limit of processor time, where the kernel kept it for one process before we saw it.
    fn cpu_time_by_kernel(&self, said: Option<Report>, cpu: Option<Duration>) -> Option<LimitHit> {
        let most = self.limits.cpu_time?;
        let used = cpu.filter(|used| *used >= most)?;
        let by_kernel = matches!(said, Some(Report::Ended(status)) if exit_code(status).is_none()
            && matches!(signal(status), libc::SIGXCPU | libc::SIGKILL));
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        by_kernel.then(|| hit(Limit::CpuTime, millis(most), millis(used)))
    }

    fn outcome(
        &self,
        said: Option<Report>,
        over: Option<LimitHit>,
        limits_hit: &mut Vec<LimitHit>,
    ) -> Outcome {
        let by_limit = |hit: LimitHit, limits_hit: &mut Vec<LimitHit>| {
            if !limits_hit.iter().any(|other| other.which == hit.which) {
                limits_hit.push(hit.clone());
            }
            Outcome::Failed(Failure::Limit(hit))
        };
        match said {
            Some(Report::Failed(step, errno)) => {
                let error = failure(&self.plan, step, errno);
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let text = cause.map_or(error.to_string(), |cause| format!("{error} ({cause})"));
                return Outcome::Failed(Failure::SetupFailed(text));
            }
            Some(Report::NotExecuted(errno)) => {
                return Outcome::Failed(match errno {
                    libc::ENOENT | libc::ENOTDIR => Failure::NotFound,
                    _ => Failure::NotExecutable,
                });
            }
            _ => {}
        }
        if let Some(hit) = over {
            return by_limit(hit, limits_hit);
        }
        match said {
            Some(Report::Ended(status)) => match (exit_code(status), signal(status)) {
                (Some(0), _) => Outcome::Passed,
                (Some(code), _) => Outcome::Failed(Failure::Exit(code)),
                (None, signal) => {
                    let hit = (signal == libc::SIGXFSZ).then(|| self.file_too_large());
                    match hit.flatten() {
                        Some(hit) => by_limit(hit, limits_hit),
                        None => Outcome::Failed(Failure::Signal(signal)),
                    }
                }
            },
            // The first process was killed: by a `Killer`, or by the machine.
            _ => Outcome::Failed(Failure::Signal(libc::SIGKILL)),
        }
    }
}

fn uncovered(path: &Path) -> String {
    format!(
        "`{}`, which the sandbox hides or protects, was saved anew outside it while the command ran, so it was ended; with \
         an overlay workspace, what is hidden stays so",
        escaped(path)
    )
}

/// The exit code of a wait status, as `WEXITSTATUS`.
fn exit_code(status: i32) -> Option<u8> {
    (status & 0x7f == 0).then_some((status >> 8) as u8)
}

/// The signal of a wait status, as `WTERMSIG`.
fn signal(status: i32) -> i32 {
    status & 0x7f
}

struct Output {
    tails: [Recent; 2],
    closed: [bool; 2],
    quiet: bool,
    bytes: u64,
    most: Option<u64>,
}

impl Output {
    fn new(most: Option<u64>) -> Self {
        Self {
            tails: [Recent::default(), Recent::default()],
            closed: [false; 2],
            quiet: false,
            bytes: 0,
            most,
        }
    }

    /// Passes on what one read gives. `false` if there is nothing more now.
    fn pump(
        &mut self,
        index: usize,
        pipe: &OwnedFd,
        stream: Stream,
        on_output: &mut dyn FnMut(Stream, &[u8]),
    ) -> bool {
        let mut bytes = [0_u8; 64 << 10];
        match rustix::io::read(pipe, &mut bytes) {
            Ok(0) => self.closed[index] = true,
            Ok(length) => {
                let room = self
                    .most
                    .map_or(u64::MAX, |most| most.saturating_sub(self.bytes));
                self.bytes += length as u64;
                // What is above the limit is counted, not kept.
                let kept = &bytes[..length.min(usize::try_from(room).unwrap_or(usize::MAX))];
                if !kept.is_empty() {
                    self.tails[index].add(kept);
                    on_output(stream, kept);
                }
                return true;
            }
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) => {}
            Err(_) => self.closed[index] = true,
        }
        false
    }

    fn over(&self) -> Option<LimitHit> {
        let most = self.most?;
        (self.bytes > most).then_some(LimitHit {
            which: Limit::Output,
            value: most,
            used: Some(self.bytes),
        })
    }
}

const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];
