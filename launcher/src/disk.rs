//! How much a command has written: to the workspace's layer, and to `/tmp` with its home.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::fstatfs;

use crate::start::Started;
use crate::usage;

/// What was seen of it so far.
#[derive(Debug)]
pub(crate) struct Disk {
    most: u64,
    upper: Option<Upper>,
    /// The most that was seen beyond the limit, or with `/tmp` full.
    met: Option<u64>,
}

/// The workspace's layer. Adding up its files takes long, so the free space of its file system is watched in between.
#[derive(Debug)]
struct Upper {
    folder: PathBuf,
    /// What it held before.
    before: u64,
    opened: Option<File>,
    counted: u64,
    free: u64,
    count_due: Instant,
    count_again: Instant,
}

impl Disk {
    pub(crate) fn new(most: u64, started: &Started) -> Self {
        let now = Instant::now();
        let upper = started.upper.as_ref().map(|folder| {
            let opened = File::open(folder).ok();
            Upper {
                folder: folder.to_owned(),
                before: started.already,
                free: opened.as_ref().map_or(0, free),
                opened,
                counted: 0,
                count_due: now,
                count_again: now,
            }
        });
        Self {
            most,
            upper,
            met: None,
        }
    }

    /// Looks, and says how much is used, or may be.
    pub(crate) fn look(&mut self, started: &Started, now: Instant) -> u64 {
        let scratch = started.scratch.as_ref();
        self.note(scratch.and_then(usage::full));
        let in_memory = scratch.map_or(0, usage::taken);
        let room = self.most.saturating_sub(in_memory);
        let upper = self.upper.as_mut();
        let used = in_memory + upper.map_or(0, |upper| upper.look(room, now));
        if used > self.most {
            self.note(Some(used));
        }
        used
    }

    /// What was used when the limit was met, as far as that was seen. Looks a last time.
    pub(crate) fn met(&mut self, started: &Started) -> Option<u64> {
        let scratch = started.scratch.as_ref();
        self.note(scratch.and_then(usage::full));
        let upper = self.upper.as_ref();
        let used = scratch.map_or(0, usage::taken) + upper.map_or(0, Upper::count);
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
    /// Adds up what was written to it.
    fn count(&self) -> u64 {
        usage::disk(&self.folder, MOST_ENTRIES).saturating_sub(self.before)
    }

    /// What it holds; never less than it does, unless others freed room meanwhile.
    fn look(&mut self, room: u64, now: Instant) -> u64 {
        let free_now = self.opened.as_ref().map_or(0, free);
        let may_be = self.counted + self.free.saturating_sub(free_now);
        let is_told = self.opened.as_ref().is_some_and(tells_at_once);
        let must_count = if is_told && free_now == self.free {
            now >= self.count_again
        } else {
            now >= self.count_due && (may_be > room || !is_told || now >= self.count_again)
        };
        if must_count {
            self.free = free_now;
            self.counted = self.count();
            // A large layer takes long to add up: no more than a tenth of the time.
            self.count_due = now + now.elapsed() * 10;
            let pause = if is_told { SOMETIMES } else { OFTEN };
            self.count_again = (now + pause).max(self.count_due);
            return self.counted;
        }
        // Others may have written too, so only what was counted can be beyond the limit.
        if may_be > room {
            room.max(self.counted)
        } else {
            may_be
        }
    }
}

/// Whether the file system takes room away when something is written, and not when it gets to the disk.
fn tells_at_once(file: &File) -> bool {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    const TMPFS: i64 = 0x0102_1994;
    fstatfs(file).is_ok_and(|found| [EXT4, XFS, TMPFS].contains(&found.f_type))
}

fn free(file: &File) -> u64 {
    fstatfs(file).map_or(0, |found| found.f_bfree * found.f_bsize.unsigned_abs())
}

const OFTEN: Duration = Duration::from_millis(25);
const SOMETIMES: Duration = Duration::from_secs(2);
const MOST_ENTRIES: usize = 2_000_000;
