//! Which limits of a running command are reached, seen from outside.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sdk::report::{Limit, LimitHit};

use crate::start::Started;
use crate::usage::{self, Usage};

/// What was seen of a command so far.
pub(crate) struct Watch {
    began: Instant,
    next_disk: Instant,
    peak: u64,
    cpu: Duration,
    processes_hit: bool,
    disk_hit: Option<u64>,
    memory_hit: Option<u64>,
    every: Option<Duration>,
    wall: Option<Duration>,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(started: &Started, began: Instant) -> Self {
        let limits = &started.limits;
        let cgroup = started.cgroup.as_ref();
        let memory_by_watching =
            limits.memory.is_some() && !cgroup.is_some_and(|group| group.bounds_memory());
        let every = if memory_by_watching {
            Some(OFTEN)
        } else if limits.memory.is_some()
            || limits.cpu_time.is_some()
            || limits.disk.is_some()
            || limits.processes.is_some()
        {
            Some(SOMETIMES)
        } else {
            None
        };
        Self {
            began,
            next_disk: began,
            peak: 0,
            cpu: Duration::ZERO,
            processes_hit: false,
            disk_hit: None,
            memory_hit: None,
            every,
            wall: limits.wall,
        }
    }

    /// Keeps the limits until the command has ended, by itself or, at a limit, by us; the limit is returned.
    pub(crate) fn keep(&mut self, started: &Started) -> Option<LimitHit> {
        while !self.ended_within(started, self.next_look(Instant::now())) {
            if let Some(hit) = self.look(started, Instant::now()) {
                started.killer().kill();
                return Some(hit);
            }
        }
        None
    }

    fn ended_within(&self, started: &Started, time: Duration) -> bool {
        let time = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut waiting = [PollFd::new(&*started.running.pidfd, PollFlags::IN)];
        // An interrupted wait is a short one.
        poll(&mut waiting, Some(&time)).is_ok_and(|ready| ready > 0)
    }

    fn next_look(&self, now: Instant) -> Duration {
        let every = self.every.unwrap_or(RARELY);
        match self.wall {
            // A millisecond more, or the last wait would be many of no length.
            Some(wall) => {
                every.min(wall.saturating_sub(now - self.began) + Duration::from_millis(1))
            }
            None => every,
        }
    }

    /// Looks; a limit that is reached and ends the command is returned.
    fn look(&mut self, started: &Started, now: Instant) -> Option<LimitHit> {
        let limits = &started.limits;
        let elapsed = now - self.began;
        if let Some(wall) = limits.wall
            && elapsed >= wall
        {
            return Some(hit(Limit::Wall, millis(wall), millis(elapsed)));
        }
        self.every?;
        let cgroup = started.cgroup.as_ref();
        if let Some(bytes) = limits.memory
            && cgroup.is_some_and(|group| group.out_of_memory() > 0)
        {
            self.memory_hit = Some(bytes);
            return Some(hit(Limit::Memory, bytes, bytes));
        }
        self.look_at_tree(started)
            .or_else(|| self.look_at_disk(started, now))
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

    /// Every limit that was reached, whether or not it ended the command.
    pub(crate) fn limits_hit(&self, started: &Started) -> Vec<LimitHit> {
        let limits = &started.limits;
        let cgroup = started.cgroup.as_ref();
        let mut found = Vec::new();
        if let Some(bytes) = limits.memory
            && (self.memory_hit.is_some() || cgroup.is_some_and(|group| group.out_of_memory() > 0))
        {
            found.push(hit(Limit::Memory, bytes, self.memory_hit.unwrap_or(bytes)));
        }
        if let Some(count) = limits.processes
            && (self.processes_hit || cgroup.is_some_and(|group| group.refused_processes() > 0))
        {
            found.push(hit(Limit::Processes, count, count));
        }
        if let Some(bytes) = limits.disk {
            let used = self
                .disk_hit
                .or_else(|| started.scratch.as_ref().and_then(full));
            if let Some(used) = used {
                found.push(hit(Limit::Disk, bytes, used));
            }
        }
        found
    }

    fn look_at_tree(&mut self, started: &Started) -> Option<LimitHit> {
        let limits = &started.limits;
        let cgroup = started.cgroup.as_ref();
        let memory = limits
            .memory
            .filter(|_| !cgroup.is_some_and(|group| group.bounds_memory()));
        let cpu_by_group = cgroup.and_then(|group| group.cpu_time());
        let needs_tree = memory.is_some()
            || (limits.cpu_time.is_some() && cpu_by_group.is_none())
            || limits.processes.is_some();
        let usage = if needs_tree {
            let scratch = started.scratch.as_ref().filter(|_| memory.is_some());
            let files = scratch.map_or(0, taken);
            usage::of_tree(started.running.pid, memory.unwrap_or(u64::MAX), files)
        } else {
            Usage::default()
        };
        self.peak = self.peak.max(usage.memory);
        self.cpu = self.cpu.max(cpu_by_group.unwrap_or(usage.cpu));
        if let Some(count) = limits.processes
            // The sandbox's first process is not the command's.
            && usage.tasks > count
        {
            self.processes_hit = true;
            // Root is not bounded by the kernel without a group, and others by all they run on the machine.
            if started.fallback.is_some() && usage.tasks > count + 1 {
                return Some(hit(Limit::Processes, count, usage.tasks - 1));
            }
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

    fn look_at_disk(&mut self, started: &Started, now: Instant) -> Option<LimitHit> {
        let most = started.limits.disk?;
        if now < self.next_disk {
            return None;
        }
        if let Some(used) = started.scratch.as_ref().and_then(full) {
            self.disk_hit = Some(used);
        }
        let upper = started.upper.as_ref()?;
        let used = usage::disk(upper, MOST_ENTRIES).saturating_sub(started.already);
        // A large layer takes long to add up: no more than a tenth of the time.
        self.next_disk = now + DISK.max(now.elapsed() * 10);
        if used <= most {
            return None;
        }
        self.disk_hit = Some(used);
        Some(hit(Limit::Disk, most, used))
    }
}

/// The bytes in use on a file system.
fn taken(scratch: &std::os::fd::OwnedFd) -> u64 {
    rustix::fs::fstatfs(scratch).map_or(0, |found| {
        (found.f_blocks - found.f_bfree) * found.f_bsize.unsigned_abs()
    })
}

/// The bytes in use on a file system that has no room left.
fn full(scratch: &std::os::fd::OwnedFd) -> Option<u64> {
    let found = rustix::fs::fstatfs(scratch).ok()?;
    let is_full = found.f_bfree == 0 || (found.f_files > 0 && found.f_ffree == 0);
    is_full.then(|| taken(scratch))
}

fn hit(which: Limit, value: u64, used: u64) -> LimitHit {
    LimitHit {
        which,
        value,
        used: Some(used),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How often to look when the kernel does not keep the memory limit: a program can fill some 20 MiB in this time.
const OFTEN: Duration = Duration::from_millis(5);
const SOMETIMES: Duration = Duration::from_millis(25);
const RARELY: Duration = Duration::from_secs(3600);
const DISK: Duration = Duration::from_millis(250);
const MOST_ENTRIES: usize = 2_000_000;
