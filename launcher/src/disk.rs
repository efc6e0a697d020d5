//! How much a command has written: to the workspace's layer, and to `/tmp` with its home.
//!
//! A tree of many files takes long to count. The first count that does gets a thread of its own, and the other limits are kept
//! meanwhile; a short command never pays for one.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::fstatfs;
use sdk::report::{Limit, LimitHit};

use crate::pace;
use crate::start::Started;
use crate::usage;
use crate::watch::{hit, time};
use crate::written::{self, Counted};

/// What was seen of it so far.
#[derive(Debug)]
pub(crate) struct Disk {
    most: u64,
    upper: Option<Upper>,
    /// The most that was seen beyond the limit, or with `/tmp` full.
    met: Option<u64>,
    used: u64,
    pause: Duration,
    due: Instant,
}

/// The workspace's layer. Adding up its files takes long, so the free space of its file system is watched in between.
#[derive(Debug)]
struct Upper {
    folder: PathBuf,
    /// What it held before.
    before: u64,
    opened: Option<OwnedFd>,
    counted: u64,
    free: u64,
    /// What was free when it began.
    free_before: u64,
    root: u32,
    count_due: Instant,
    count_again: Instant,
}

impl Disk {
    pub(crate) fn new(most: u64, processors: u64, started: &Started) -> Self {
        let now = Instant::now();
        let upper = started.upper.as_ref().map(|folder| {
            let opened = written::open(folder);
            let free = opened.as_ref().map_or(0, free);
            Upper {
                folder: folder.to_owned(),
                before: started.already,
                free,
                free_before: free,
                root: started.running.pid,
                opened,
                counted: 0,
                count_due: now,
                // It holds what it held before.
                count_again: now,
            }
        });
        Self {
            most,
            upper,
            met: None,
            used: 0,
            pause: SHORTEST,
            // Nothing can be full before.
            due: now + pace::disk(most, processors),
        }
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Looks if it is due, for no longer than a moment.
    pub(crate) fn look_quickly(&mut self, started: &Started, processors: u64) -> Look {
        let now = Instant::now();
        if now < self.due {
            return Look::Within;
        }
        match self.look(started, now, Some(now + QUICK)) {
            None => Look::TakesLong,
            Some(used) => match self.judge(used, now, processors) {
                Some(hit) => Look::Met(hit),
                None => Look::Within,
            },
        }
    }

    /// Looks until the command has ended, and tells where it has written more than it may.
    pub(crate) fn keep(&mut self, started: &Started, processors: u64, full: &Full) {
        self.due = Instant::now();
        while !has_ended_before(started, self.due) {
            let now = Instant::now();
            let used = self.look(started, now, None).unwrap_or(0);
            if let Some(hit) = self.judge(used, now, processors) {
                full.tell(hit);
                return;
            }
        }
    }

    /// The limit if this much is beyond it, or else when to look again.
    fn judge(&mut self, used: u64, began: Instant, processors: u64) -> Option<LimitHit> {
        if used > self.most {
            return Some(hit(Limit::Disk, self.most, used));
        }
        // One that writes nothing is left alone for longer.
        self.pause = if used == self.used {
            (self.pause * 2).min(OFTEN)
        } else {
            SHORTEST
        };
        self.used = used;
        let soonest = pace::disk(self.most.saturating_sub(used), processors);
        self.due = began + soonest.max(self.pause).max(began.elapsed() * 10);
        None
    }

    /// Looks, and says how much is used, or may be; nothing if that was not known by then.
    fn look(&mut self, started: &Started, now: Instant, until: Option<Instant>) -> Option<u64> {
        let scratch = started.scratch.as_ref();
        self.note(scratch.and_then(usage::full));
        let in_memory = scratch.map_or(0, usage::taken);
        let room = self.most.saturating_sub(in_memory);
        let upper = self.upper.as_mut();
        let used = in_memory + upper.map_or(Some(0), |upper| upper.look(room, now, until))?;
        if used > self.most {
            self.note(Some(used));
        }
        Some(used)
    }

    /// What was used when the limit was met, as far as that was seen. Looks a last time.
    pub(crate) fn met(&mut self, started: &Started) -> Option<u64> {
        let scratch = started.scratch.as_ref();
        self.note(scratch.and_then(usage::full));
        let upper = self.upper.as_ref();
        // Everything has ended: what has no name is gone.
        let upper = upper.and_then(|upper| upper.count(None, false));
        let used = scratch.map_or(0, usage::taken) + upper.unwrap_or(0);
        if used > self.most {
            self.note(Some(used));
        }
        self.met
    }

    fn note(&mut self, used: Option<u64>) {
        self.met = self.met.max(used);
    }
}

impl Upper {
    /// Adds up what was written to it; nothing if that was not done by then.
    fn count(&self, until: Option<Instant>, is_alive: bool) -> Option<u64> {
        let named = written::below(&self.folder, until)?;
        let opened = self.opened.as_ref().filter(|_| is_alive);
        let nameless = opened.map(|upper| written::nameless(self.root, upper));
        let nameless = nameless.unwrap_or(Counted::NOTHING);
        let counted = (named.bytes + nameless.bytes).saturating_sub(self.before);
        if named.is_whole && nameless.is_whole {
            return Some(counted);
        }
        // Who does not let it be seen is judged by the room that went since it began, whoever took it.
        let free_now = self.opened.as_ref().map_or(0, free);
        Some(counted.max(self.free_before.saturating_sub(free_now)))
    }

    /// What it holds, or may hold, as far as the free room tells.
    fn look(&mut self, room: u64, now: Instant, until: Option<Instant>) -> Option<u64> {
        let free_now = self.opened.as_ref().map_or(0, free);
        let may_be = self.counted + self.free.saturating_sub(free_now);
        let is_told = self.opened.as_ref().is_some_and(tells_at_once);
        let must_count = if is_told && free_now == self.free {
            now >= self.count_again
        } else {
            now >= self.count_due && (may_be > room || !is_told || now >= self.count_again)
        };
        if must_count {
            self.counted = self.count(until, true)?;
            self.free = free_now;
            // A large layer takes long to add up: no more than a tenth of the time.
            self.count_due = now + now.elapsed() * 10;
            let pause = if is_told { SOMETIMES } else { OFTEN };
            self.count_again = (now + pause).max(self.count_due);
            return Some(self.counted);
        }
        // Others may have written too, so only what was counted can be beyond the limit.
        Some(if may_be > room {
            room.max(self.counted)
        } else {
            may_be
        })
    }
}

/// Whether the file system takes room away when something is written, and not when it gets to the disk.
fn tells_at_once(file: &OwnedFd) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const TMPFS: i64 = 0x0102_1994;
    fstatfs(file).is_ok_and(|found| [EXT4, XFS, TMPFS].contains(&found.f_type))
}

fn free(file: &OwnedFd) -> u64 {
    fstatfs(file).map_or(0, |found| found.f_bfree * found.f_bsize.unsigned_abs())
}

fn has_ended_before(started: &Started, due: Instant) -> bool {
    let within = due.saturating_duration_since(Instant::now());
    let mut waiting = [PollFd::new(&*started.running.pidfd, PollFlags::IN)];
    // An interrupted wait is a short one.
    poll(&mut waiting, Some(&time(within))).is_ok_and(|ready| ready > 0)
}

/// How the thread that counts tells the one that keeps the limits.
#[derive(Debug)]
pub(crate) struct Full {
    hit: Mutex<Option<LimitHit>>,
    bell: OwnedFd,
}

impl Full {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hit: Mutex::new(None),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Readable once the limit was met.
    pub(crate) fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// The limit, if it was met.
    pub(crate) fn hit(&self) -> Option<LimitHit> {
        self.hit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn tell(&self, hit: LimitHit) {
        *self.hit.lock().unwrap_or_else(PoisonError::into_inner) = Some(hit);
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// What one look brought.
#[derive(Debug)]
pub(crate) enum Look {
    /// Nothing beyond the limit.
    Within,
    /// The limit.
    Met(LimitHit),
    /// It cannot be counted in a moment.
    TakesLong,
}

/// How long the thread that keeps the other limits counts at most.
const QUICK: Duration = Duration::from_millis(3);
const SHORTEST: Duration = Duration::from_millis(1);
/// How long a command that wrote nothing meanwhile is left alone at most.
const OFTEN: Duration = Duration::from_millis(25);
const SOMETIMES: Duration = Duration::from_secs(2);
