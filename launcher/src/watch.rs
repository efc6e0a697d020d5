//! Which limits of a running command are reached, seen from outside.
//!
//! Nobody looks more often than a limit can be reached: the kernel tells what it can, and [`pace`] when the rest may be.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sdk::report::{Limit, LimitHit};

use crate::alarm::Alarms;
use crate::disk::{Disk, Full, Look};
use crate::pace;
use crate::signal::{GRACE, Signal};
use crate::start::Started;
use crate::uncovered::Uncovered;
use crate::usage::{self, Usage};
use crate::written;

/// What was seen of a command so far.
pub(crate) struct Watch {
    began: Instant,
    alarms: Alarms,
    disk: Option<Disk>,
    processors: u64,
    peak: u64,
    cpu: Duration,
    most_tasks: u64,
    /// The command was ended because it used more memory than it may.
    memory_hit: Option<u64>,
    tree_due: Option<Instant>,
    /// Something hidden that the command could see, so that it was ended.
    uncovered: Option<PathBuf>,
    /// After an alarm: what it announces may come a moment later.
    restless: u32,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(started: &Started, began: Instant) -> Self {
        let limits = &started.limits;
        let available = crate::turn::processors() as u64;
        let allowed = limits.cpus.map_or(available, |cpus| cpus.ceil() as u64);
        let processors = available.min(allowed).max(1);
        let disk = (limits.disk).map(|most| Disk::new(most, processors, started));
        Self {
            began,
            alarms: Alarms::of(started.cgroup.as_ref()),
            processors,
            peak: 0,
            cpu: Duration::ZERO,
            most_tasks: 0,
            memory_hit: None,
            tree_due: needs_looks(started).then_some(began),
            disk,
            uncovered: None,
            restless: 0,
        }
    }

    /// How long nobody has to look, unless an alarm tells something.
    pub(crate) fn first_look(&self, started: &Started) -> Duration {
        let counted = self.disk.as_ref().map(Disk::due);
        self.next_look(started, Instant::now(), None, counted)
    }

    /// What tells of a limit, and by which event.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.alarms.descriptors()
    }

    /// Keeps the limits until the command has ended, by itself or, at a limit, by us; the limit is returned.
    ///
    /// Where that costs nothing that was to be bounded, it is asked to end first and given time.
    ///
    /// # Errors
    /// If nobody could be found to count what is written; the command was ended then.
    pub(crate) fn keep(&mut self, started: &Started) -> io::Result<Option<LimitHit>> {
        let mut disk = self.disk.take();
        let full = OnceLock::new();
        let kept = std::thread::scope(|scope| {
            self.keep_with(started, disk.as_mut(), &full, &|disk, full, processors| {
                std::thread::Builder::new()
                    .name("disk".into())
                    .spawn_scoped(scope, move || disk.keep(started, processors, full))
                    .map(drop)
            })
        });
        if kept.is_err() {
            end(started);
        }
        self.disk = disk;
        kept
    }

    /// Keeps the limits; of what is written for as long as that is quickly counted, then it is left to another.
    fn keep_with<'a>(
        &mut self,
        started: &Started,
        mut disk: Option<&'a mut Disk>,
        full: &'a OnceLock<Full>,
        leave: &dyn Fn(&'a mut Disk, &'a Full, u64) -> io::Result<()>,
    ) -> io::Result<Option<LimitHit>> {
        let mut asked: Option<(LimitHit, Instant)> = None;
        loop {
            let until = asked.as_ref().map(|(_, until)| *until);
            let counted = disk.as_ref().map(|disk| disk.due());
            let next = self.next_look(started, Instant::now(), until, counted);
            if self.ended_within(started, full.get(), next) {
                return Ok(asked.map(|(hit, _)| hit));
            }
            self.look_at_covers(started);
            let now = Instant::now();
            let mut found = self.look(started, now, asked.is_some());
            if let Some(here) = disk.take() {
                match here.look_quickly(started, self.processors) {
                    Look::Within => disk = Some(here),
                    Look::Met(hit) => {
                        found = found.or(Some(hit));
                        disk = Some(here);
                    }
                    Look::TakesLong => {
                        let new = Full::new()?;
                        leave(here, full.get_or_init(|| new), self.processors)?;
                    }
                }
            }
            let found = found.or_else(|| full.get().and_then(Full::hit));
            asked = match (asked, found) {
                (None, None) => None,
                (None, Some(hit)) if may_go_on(hit.which) => {
                    started.killer().ask(Signal::Terminate);
                    Some((hit, now + GRACE))
                }
                (Some((hit, until)), None) if now < until => Some((hit, until)),
                // What it used up meanwhile is not why it was asked.
                (Some((hit, _)), _) | (None, Some(hit)) => {
                    end(started);
                    return Ok(Some(hit));
                }
            };
        }
    }

    fn ended_within(&self, started: &Started, full: Option<&Full>, within: Duration) -> bool {
        let mut waiting = vec![PollFd::new(&*started.running.pidfd, PollFlags::IN)];
        waiting.extend(full.map(|full| PollFd::new(full.bell(), PollFlags::IN)));
        // Once is enough.
        let uncovered = (started.uncovered.as_ref()).filter(|_| self.uncovered.is_none());
        waiting.extend(uncovered.map(|it| PollFd::from_borrowed_fd(it.events(), PollFlags::IN)));
        for (descriptor, event) in self.alarms.descriptors() {
            waiting.push(PollFd::from_borrowed_fd(descriptor, event));
        }
        // An interrupted wait is a short one.
        let _ = poll(&mut waiting, Some(&time(within)));
        !waiting[0].revents().is_empty()
    }

    /// How long to wait before the next look. `until` is when a command that was asked to end is to be gone.
    fn next_look(
        &self,
        started: &Started,
        now: Instant,
        until: Option<Instant>,
        counted: Option<Instant>,
    ) -> Duration {
        if self.restless > 0 {
            return ALARMED;
        }
        let wall = started.limits.wall.map(|wall| self.began + wall);
        // A millisecond more, or the last wait would be many of no length.
        let clock = until.or(wall).map(|end| end + Duration::from_millis(1));
        [clock, self.tree_due, counted]
            .into_iter()
            .flatten()
            .min()
            .map_or(RARELY, |due| due.saturating_duration_since(now))
    }

    /// Looks; a limit that is reached and ends the command is returned. Of one that was asked to end already, only what
    /// it may not go on with is.
    fn look(&mut self, started: &Started, now: Instant, asked: bool) -> Option<LimitHit> {
        let limits = &started.limits;
        let elapsed = now - self.began;
        if let Some(wall) = limits.wall
            && !asked
            && elapsed >= wall
        {
            return Some(hit(Limit::Wall, millis(wall), millis(elapsed)));
        }
        self.look_at_counters(started).or_else(|| {
            let hit = self.look_at_tree(started, now);
            hit.filter(|hit| !asked || !may_go_on(hit.which))
        })
    }

    fn look_at_covers(&mut self, started: &Started) {
        if self.uncovered.is_none() {
            self.uncovered = started.uncovered.as_ref().and_then(Uncovered::seen);
            if self.uncovered.is_some() {
                end(started);
            }
        }
    }

    /// What was hidden from the command and is not any more, if it was ended for that or may have seen it.
    pub(crate) fn uncovered(&mut self, started: &Started) -> Option<PathBuf> {
        let last = || started.uncovered.as_ref().and_then(Uncovered::seen);
        self.uncovered.take().or_else(last)
    }

    /// What the kernel counted of refusals and kills.
    fn look_at_counters(&mut self, started: &Started) -> Option<LimitHit> {
        let group = started.cgroup.as_ref()?;
        let limits = &started.limits;
        if is_alarmed(&self.alarms) {
            self.alarms.hush();
            self.restless = LOOKS_AFTER_AN_ALARM;
        } else {
            self.restless = self.restless.saturating_sub(1);
        }
        if let Some(bytes) = limits.memory
            && group.out_of_memory() > 0
        {
            let used = group.memory_peak().unwrap_or(bytes);
            self.memory_hit = Some(used);
            return Some(hit(Limit::Memory, bytes, used));
        }
        // A program that goes on like this does nothing else.
        let count = limits.processes?;
        (group.refused_processes() >= (4 * count).max(200)).then(|| {
            let most = group.most_processes().unwrap_or(count);
            hit(Limit::Processes, count, most)
        })
    }

    fn look_at_tree(&mut self, started: &Started, now: Instant) -> Option<LimitHit> {
        if self.tree_due.is_none_or(|due| now < due) {
            return None;
        }
        let limits = &started.limits;
        let cgroup = started.cgroup.as_ref();
        let memory = limits
            .memory
            .filter(|_| !cgroup.is_some_and(|group| group.bounds_memory()));
        let counted = limits
            .processes
            .filter(|_| !cgroup.is_some_and(|group| group.bounds_processes()));
        let cpu_by_group = cgroup.and_then(|group| group.cpu_time());
        let cpu_by_tree = limits.cpu_time.filter(|_| cpu_by_group.is_none());
        let usage = if memory.is_some() || counted.is_some() || cpu_by_tree.is_some() {
            let scratch = started.scratch.as_ref().filter(|_| memory.is_some());
            let files = scratch.map_or(0, usage::taken);
            usage::of_tree(started.running.pid, memory.unwrap_or(u64::MAX), files)
        } else {
            Usage::default()
        };
        self.peak = self.peak.max(usage.memory);
        self.cpu = self.cpu.max(cpu_by_group.unwrap_or(usage.cpu));
        // The sandbox's first process is not the command's.
        self.most_tasks = self.most_tasks.max(usage.tasks.saturating_sub(1));

        let waits = [
            memory.map(|most| pace::memory(most.saturating_sub(usage.memory), self.processors)),
            counted.map(|_| SOMETIMES),
            limits
                .cpu_time
                .map(|most| pace::cpu(most.saturating_sub(self.cpu), self.processors)),
        ];
        let wait = waits.into_iter().flatten().min().unwrap_or(RARELY);
        // Where there are many processes, a look takes long: no more than a tenth of the time.
        self.tree_due = Some(now + wait.max(now.elapsed() * 10));

        // Root is not bounded by the kernel without a group, and others by all they run on the machine.
        if let Some(count) = counted
            && started.fallback.is_some()
            && usage.tasks > count + 1
        {
            return Some(hit(Limit::Processes, count, usage.tasks - 1));
        }
        if let Some(bytes) = memory
            && usage.memory > bytes
        {
            self.memory_hit = Some(usage.memory);
            return Some(hit(Limit::Memory, bytes, usage.memory));
        }
        let most = limits.cpu_time?;
        (self.cpu >= most).then(|| hit(Limit::CpuTime, millis(most), millis(self.cpu)))
    }

    /// Processor time in the end. The first process has ended and was not reaped.
    pub(crate) fn final_cpu(&self, started: &Started) -> Option<Duration> {
        started
            .cgroup
            .as_ref()
            .and_then(|group| group.cpu_time())
            .or_else(|| usage::final_cpu(started.running.pid).map(|cpu| cpu.max(self.cpu)))
    }

    /// The most memory used at once.
    pub(crate) fn memory_peak(&self, started: &Started) -> Option<u64> {
        started
            .cgroup
            .as_ref()
            .and_then(|group| group.memory_peak())
            .or((self.peak > 0).then_some(self.peak))
    }

    /// The memory limit, if something was ended for it: by the kernel or by us.
    pub(crate) fn killed_for_memory(&self, started: &Started) -> Option<LimitHit> {
        let bytes = started.limits.memory?;
        let group = started.cgroup.as_ref();
        let by_kernel = group.is_some_and(|group| group.out_of_memory() > 0);
        let used = self.memory_hit.or_else(|| {
            let group = group.filter(|_| by_kernel)?;
            group.memory_peak().or(Some(bytes))
        })?;
        Some(hit(Limit::Memory, bytes, used))
    }

    /// Every limit that was reached, whether or not it ended the command. `failed` says that it did not pass, so that a
    /// cause is worth searching for.
    pub(crate) fn limits_hit(&mut self, started: &Started, failed: bool) -> Vec<LimitHit> {
        let limits = &started.limits;
        let group = started.cgroup.as_ref();
        let mut found = Vec::new();
        let refused = group.filter(|group| group.refused_memory() > 0);
        if let Some(killed) = self.killed_for_memory(started) {
            found.push(killed);
        } else if let (Some(bytes), Some(group)) = (limits.memory, refused) {
            found.push(hit(
                Limit::Memory,
                bytes,
                group.memory_peak().unwrap_or(bytes),
            ));
        }
        if let Some(count) = limits.processes {
            let refused = group.is_some_and(|group| group.refused_processes() > 0);
            let most = group.and_then(|group| group.most_processes());
            if refused || self.most_tasks >= count {
                let most = most.unwrap_or(self.most_tasks.max(count));
                found.push(hit(Limit::Processes, count, most));
            }
        }
        if let (Some(bytes), Some(disk)) = (limits.disk, &mut self.disk)
            && let Some(used) = disk.met(started)
        {
            found.push(hit(Limit::Disk, bytes, used));
        }
        if let Some(bytes) = limits.file_size
            && failed
            && written::has_file_of(bytes, started.scratch.as_ref(), started.upper.as_deref())
        {
            found.push(hit(Limit::FileSize, bytes, bytes));
        }
        found
    }
}

/// Whether a command that reached this limit may go on for a while: where nothing fills up meanwhile.
fn may_go_on(which: Limit) -> bool {
    match which {
        Limit::Wall | Limit::CpuTime => true,
        Limit::Memory
        | Limit::Cpus
        | Limit::Disk
        | Limit::FileSize
        | Limit::Processes
        | Limit::Output
        | Limit::OpenFiles => false,
    }
}

/// Ends everything in the sandbox.
fn end(started: &Started) {
    if let Some(group) = &started.cgroup {
        group.kill();
    }
    started.killer().kill();
}

/// Whether the kernel tells too little, so that somebody has to look.
fn needs_looks(started: &Started) -> bool {
    let limits = &started.limits;
    let group = started.cgroup.as_ref();
    limits.cpu_time.is_some()
        || (limits.memory.is_some() && !group.is_some_and(|group| group.bounds_memory()))
        || (limits.processes.is_some() && !group.is_some_and(|group| group.bounds_processes()))
}

fn is_alarmed(alarms: &Alarms) -> bool {
    let mut waiting: Vec<PollFd<'_>> = alarms
        .descriptors()
        .map(|(descriptor, event)| PollFd::from_borrowed_fd(descriptor, event))
        .collect();
    poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// A limit that was reached.
pub(crate) fn hit(which: Limit, value: u64, used: u64) -> LimitHit {
    LimitHit {
        which,
        value,
        used: Some(used),
    }
}

/// A time as the kernel takes it.
pub(crate) fn time(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How often processes are counted where the kernel does not.
const SOMETIMES: Duration = Duration::from_millis(25);
const RARELY: Duration = Duration::from_secs(3600);
const ALARMED: Duration = Duration::from_millis(5);
const LOOKS_AFTER_AN_ALARM: u32 = 20;
