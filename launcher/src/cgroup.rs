//! The control group of a sandbox, where one can be made: limits kept by the kernel, and what was used.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use crate::cgroup_place::{Legacy, Unified, own_name, sweep_once};
use crate::spec::Limits;

/// The groups of one sandbox: one in the unified hierarchy, or one for each controller in the older ones.
#[derive(Debug)]
pub(crate) struct Cgroup {
    memory: Option<Group>,
    processes: Option<Group>,
    cpu: Option<Group>,
    accounting: Option<Group>,
    made: Vec<PathBuf>,
    // Dropped after the groups are removed: it gives the place back.
    _place: Option<Unified>,
}

#[derive(Clone, Debug)]
struct Group {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Two,
    One,
}

impl Cgroup {
    /// Makes the groups that can be made. `None` if there is none.
    pub(crate) fn create(limits: &Limits) -> Option<Self> {
        let name = own_name();
        let mut cgroup = Self {
            memory: None,
            processes: None,
            cpu: None,
            accounting: None,
            made: Vec::new(),
            _place: None,
        };
        let wanted: Vec<&str> = [
            ("memory", limits.memory.is_some()),
            ("pids", limits.processes.is_some()),
            ("cpu", limits.cpus.is_some()),
            ("cpuacct", limits.cpu_time.is_some()),
        ]
        .into_iter()
        .filter_map(|(controller, is_wanted)| is_wanted.then_some(controller))
        .collect();
        // Joining a group takes the kernel milliseconds, so none is made for nothing.
        if wanted.is_empty() {
            return None;
        }
        if let Some(place) = Unified::find() {
            sweep_once(place.parent());
            if let Some(group) = cgroup.make(&place.parent().join(&name), Version::Two) {
                let has = |file: &str| group.folder.join(file).exists();
                cgroup.memory = has("memory.max").then(|| group.clone());
                cgroup.processes = has("pids.max").then(|| group.clone());
                cgroup.cpu = has("cpu.max").then(|| group.clone());
                cgroup.accounting = Some(group);
            }
            cgroup._place = Some(place);
        } else if let Some(legacy) = Legacy::read() {
            for controller in wanted {
                let Some(parent) = legacy.parent(controller) else {
                    continue;
                };
                sweep_once(&parent);
                let group = cgroup.make(&parent.join(&name), Version::One);
                match controller {
                    "memory" => cgroup.memory = group,
                    "pids" => cgroup.processes = group,
                    "cpu" => cgroup.cpu = group,
                    _ => cgroup.accounting = group,
                }
            }
        }
        cgroup.bound(limits);
        if cgroup.made.is_empty() {
            None
        } else {
            Some(cgroup)
        }
    }

    /// Which limits the kernel keeps, and by which groups.
    pub(crate) fn keeps(&self) -> [(&'static str, Option<&'static str>); 4] {
        let by = |group: &Option<Group>| {
            group.as_ref().map(|group| match group.version {
                Version::Two => "control group v2",
                Version::One => "control group v1",
            })
        };
        [
            ("memory", by(&self.memory)),
            ("cpus", by(&self.cpu)),
            ("processes", by(&self.processes)),
            ("cpu_time", by(&self.accounting)),
        ]
    }

    /// Whether the kernel keeps the memory limit.
    pub(crate) fn bounds_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the kernel keeps the limit of processors.
    pub(crate) fn bounds_cpus(&self) -> bool {
        self.cpu.is_some()
    }

    /// Puts a process, which has started nothing yet, into the groups.
    pub(crate) fn attach(&self, pid: u32) -> std::io::Result<()> {
        for folder in &self.made {
            std::fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// The group, for a process to be born in: where it is one, of the unified hierarchy (clone(2), `CLONE_INTO_CGROUP`).
    pub(crate) fn folder(&self) -> Option<OwnedFd> {
        let is_one = |group: &Option<Group>| {
            let group = group.as_ref();
            group.is_none_or(|group| group.version == Version::Two)
        };
        let all = [&self.memory, &self.processes, &self.cpu, &self.accounting];
        match &self.made[..] {
            [folder] if all.into_iter().all(is_one) => {
                std::fs::File::open(folder).ok().map(OwnedFd::from)
            }
            _ => None,
        }
    }

    /// Whether the kernel adds up the processor time of everything in the group.
    pub(crate) fn counts_cpu_time(&self) -> bool {
        self.accounting.is_some()
    }

    /// Whether the kernel keeps the limit of processes.
    pub(crate) fn bounds_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Ends everything in the group at once, where the kernel can.
    pub(crate) fn kill(&self) {
        for folder in &self.made {
            let file = folder.join("cgroup.kill");
            if file.exists() {
                let _ = std::fs::write(file, "1");
            }
        }
    }

    /// How many processes were killed for want of memory.
    pub(crate) fn out_of_memory(&self) -> u64 {
        self.memory.as_ref().map_or(0, |group| match group.version {
            Version::Two => keyed(&group.folder.join("memory.events"), "oom_kill"),
            Version::One => keyed(&group.folder.join("memory.oom_control"), "oom_kill"),
        })
    }

    /// How often memory was refused that was not to be had by killing either.
    pub(crate) fn refused_memory(&self) -> u64 {
        self.memory.as_ref().map_or(0, |group| match group.version {
            Version::Two => keyed(&group.folder.join("memory.events"), "oom"),
            // Only what ended in a kill is counted there.
            Version::One => 0,
        })
    }

    /// The most memory used at once.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        let group = self.memory.as_ref()?;
        number(&group.folder.join(match group.version {
            Version::Two => "memory.peak",
            Version::One => "memory.max_usage_in_bytes",
        }))
    }

    /// What tells at once that a process was killed for want of memory, where the group does not die as one anyway.
    pub(crate) fn memory_alarm(&self) -> Option<OwnedFd> {
        let group = self.memory.as_ref()?;
        match group.version {
            Version::Two => None,
            Version::One => {
                // cgroup-v1/memory.rst, "OOM Control": the event comes before the kill.
                let alarm = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
                let control = std::fs::File::open(group.folder.join("memory.oom_control")).ok()?;
                let line = format!("{} {}", alarm.as_raw_fd(), control.as_raw_fd());
                std::fs::write(group.folder.join("cgroup.event_control"), line).ok()?;
                Some(alarm)
            }
        }
    }

    /// What is ready for `PRI` when a process could not be made.
    pub(crate) fn processes_alarm(&self) -> Option<std::fs::File> {
        let group = self.processes.as_ref()?;
        std::fs::File::open(group.folder.join("pids.events")).ok()
    }

    /// The most processes at once, where the kernel counts them, without the sandbox's first one.
    pub(crate) fn most_processes(&self) -> Option<u64> {
        let group = self.processes.as_ref()?;
        number(&group.folder.join("pids.peak")).map(|most| most.saturating_sub(1))
    }

    /// How often a process could not be made.
    pub(crate) fn refused_processes(&self) -> u64 {
        self.processes
            .as_ref()
            .map_or(0, |group| keyed(&group.folder.join("pids.events"), "max"))
    }

    /// Processor time used so far.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        let group = self.accounting.as_ref()?;
        match group.version {
            Version::Two => {
                let used = keyed(&group.folder.join("cpu.stat"), "usage_usec");
                Some(Duration::from_micros(used))
            }
            Version::One => number(&group.folder.join("cpuacct.usage")).map(Duration::from_nanos),
        }
    }

    fn make(&mut self, folder: &Path, version: Version) -> Option<Group> {
        // In the older hierarchies `cpu` and `cpuacct` are often one.
        if !self.made.iter().any(|made| made == folder) {
            std::fs::create_dir(folder).ok()?;
            self.made.push(folder.to_owned());
        }
        Some(Group {
            folder: folder.to_owned(),
            version,
        })
    }

    /// Writes the limits; a controller that refuses one does not count as keeping it.
    fn bound(&mut self, limits: &Limits) {
        if let (Some(group), Some(bytes)) = (&self.memory, limits.memory) {
            let write = |file: &str, text: &str| std::fs::write(group.folder.join(file), text);
            let bytes = bytes.to_string();
            let kept = match group.version {
                Version::Two => {
                    // Swap would let it use more; the group dies as one, or a run whose child was killed might pass.
                    let _ = write("memory.swap.max", "0");
                    let _ = write("memory.oom.group", "1");
                    write("memory.max", &bytes)
                }
                Version::One => {
                    let kept = write("memory.limit_in_bytes", &bytes);
                    let _ = write("memory.memsw.limit_in_bytes", &bytes);
                    kept
                }
            };
            if kept.is_err() {
                self.memory = None;
            }
        }
        if let (Some(group), Some(count)) = (&self.processes, limits.processes) {
            // One more: the sandbox's first process counts as well.
            let written = std::fs::write(group.folder.join("pids.max"), (count + 1).to_string());
            if written.is_err() {
                self.processes = None;
            }
        }
        if let (Some(group), Some(cpus)) = (&self.cpu, limits.cpus) {
            const PERIOD: u64 = 100_000;
            let quota = ((cpus * PERIOD as f64) as u64).max(1000);
            let kept = match group.version {
                Version::Two => {
                    std::fs::write(group.folder.join("cpu.max"), format!("{quota} {PERIOD}"))
                }
                Version::One => {
                    std::fs::write(group.folder.join("cpu.cfs_period_us"), PERIOD.to_string())
                        .and_then(|()| {
                            std::fs::write(group.folder.join("cpu.cfs_quota_us"), quota.to_string())
                        })
                }
            };
            if kept.is_err() {
                self.cpu = None;
            }
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.made {
            // The last process may still be leaving. What stays is swept by the next start.
            for _ in 0..50 {
                match std::fs::remove_dir(folder) {
                    Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn keyed(path: &Path, key: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}
