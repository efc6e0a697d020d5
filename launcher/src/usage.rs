//! What a tree of processes uses, read from `/proc`: for machines where no control group can be made.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// What a tree of processes uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processor time, of ended children too.
    pub(crate) cpu: Duration,
    /// Bytes of memory of its own.
    pub(crate) memory: u64,
    /// Processes and threads.
    pub(crate) tasks: u64,
}

/// What the tree below and including `root` uses now. Above `suspicious` bytes, memory that processes share is counted
/// once, which takes longer. `files` is what the files of a memory file system take, whether or not they are mapped.
pub(crate) fn of_tree(root: u32, suspicious: u64, files: u64) -> Usage {
    let tree = tree(root);
    let mut usage = Usage::default();
    let mut memory = Memory::default();
    for pid in &tree {
        if let Some(stat) = Stat::read(*pid) {
            usage.cpu += stat.cpu;
            usage.tasks += stat.threads;
        }
        // The first process holds a copy of the supervisor that was never written to.
        if *pid != root {
            memory.add(resident(*pid).unwrap_or_default());
        }
    }
    if memory.with(files) > suspicious {
        memory = Memory::default();
        for pid in tree.iter().filter(|pid| **pid != root) {
            let own = proportional(*pid).or_else(|| resident(*pid));
            memory.add(own.unwrap_or_default());
        }
    }
    usage.memory = memory.with(files);
    usage
}

/// Processor time of a process that has ended but was not waited for, with that of its children.
pub(crate) fn final_cpu(pid: u32) -> Option<Duration> {
    Stat::read(pid).map(|stat| stat.cpu)
}

/// Processes and threads of this user on the whole machine.
pub(crate) fn tasks_of_user() -> u64 {
    let user = rustix::process::getuid().as_raw();
    let mut tasks = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let owner = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let owner = owner.and_then(|ids| ids.split_whitespace().next()?.parse::<u32>().ok());
        if owner == Some(user) {
            tasks += Stat::read(pid).map_or(0, |stat| stat.threads);
        }
    }
    tasks
}

/// When a process started, in ticks since boot: with its number it names the process for good.
pub(crate) fn started(pid: u32) -> Option<u64> {
    Stat::read(pid).map(|stat| stat.started)
}

/// What a file of `/proc` holds, in one read where that is enough: each makes the kernel write it out anew.
pub(crate) fn table(path: &str) -> std::io::Result<String> {
    let mut text = String::with_capacity(16 << 10);
    std::fs::File::open(path)?
        .take(u64::MAX)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// The bytes in use on a file system.
pub(crate) fn taken(scratch: &OwnedFd) -> u64 {
    rustix::fs::fstatfs(scratch).map_or(0, |found| {
        (found.f_blocks - found.f_bfree) * found.f_bsize.unsigned_abs()
    })
}

/// The bytes in use on a file system that has no room left.
pub(crate) fn full(scratch: &OwnedFd) -> Option<u64> {
    let found = rustix::fs::fstatfs(scratch).ok()?;
    let is_full = found.f_bfree == 0 || (found.f_files > 0 && found.f_ffree == 0);
    is_full.then(|| taken(scratch))
}

struct Stat {
    cpu: Duration,
    threads: u64,
    started: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything, parentheses too.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 2..)?).ok()?;
        let fields: Vec<&str> = rest.split(' ').collect();
        // proc_pid_stat(5) numbers fields from 1; `rest` begins with field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)? + field(15)? + field(16)? + field(17)?;
        Some(Self {
            cpu: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
            threads: field(20)?,
            started: field(22)?,
        })
    }
}

/// The processes below and including `root`.
pub(crate) fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() && found.len() < MOST_PROCESSES {
        let pid = found[at];
        at += 1;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let list = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(
                list.split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// Bytes of memory of one kind or the other.
#[derive(Clone, Copy, Default)]
struct Memory {
    private: u64,
    shared: u64,
}

impl Memory {
    fn add(&mut self, other: Self) {
        self.private += other.private;
        self.shared += other.shared;
    }

    /// All of it, and what files in memory take. Mapped files count among the shared memory, so the larger one counts.
    fn with(self, files: u64) -> u64 {
        self.private + self.shared.max(files)
    }
}

fn resident(pid: u32) -> Option<Memory> {
    status(&format!("/proc/{pid}/status")).or_else(|| {
        // Of a process whose first thread has ended, only the others tell.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let mut threads = threads.flatten();
        threads.find_map(|thread| status(thread.path().join("status").to_str()?))
    })
}

fn status(path: &str) -> Option<Memory> {
    memory(path, &["RssAnon:", "VmSwap:"], "RssShmem:")
}

fn proportional(pid: u32) -> Option<Memory> {
    memory(
        &format!("/proc/{pid}/smaps_rollup"),
        &["Pss_Anon:", "SwapPss:"],
        "Pss_Shmem:",
    )
}

/// The sum of the private figures, of which the first must be there, and the shared one.
fn memory(path: &str, private: &[&str], shared: &str) -> Option<Memory> {
    let text = std::fs::read_to_string(path).ok()?;
    let bytes = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kilobytes = value.split_whitespace().next()?.parse::<u64>().ok()?;
        Some(kilobytes * 1024)
    };
    bytes(private.first()?)?;
    Some(Memory {
        private: private.iter().filter_map(|name| bytes(name)).sum(),
        shared: bytes(shared)?,
    })
}

/// `sysconf(_SC_CLK_TCK)`: fixed in the interface of `/proc` on every architecture we know.
const TICKS_PER_SECOND: u64 = 100;
const MOST_PROCESSES: usize = 100_000;
