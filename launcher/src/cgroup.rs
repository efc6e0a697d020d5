//! The control group of a sandbox, where one can be made: limits kept by the kernel, and what was used.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::spec::Limits;

/// The groups of one sandbox: one in the unified hierarchy, or one for each controller in the older ones.
#[derive(Debug)]
pub(crate) struct Cgroup {
    memory: Option<Group>,
    processes: Option<Group>,
    cpu: Option<Group>,
    accounting: Option<Group>,
    made: Vec<PathBuf>,
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
        if let Some(parent) = unified_parent() {
            sweep(&parent);
            if let Some(group) = cgroup.make(&parent.join(&name), Version::Two) {
                let has = |file: &str| group.folder.join(file).exists();
                cgroup.memory = has("memory.max").then(|| group.clone());
                cgroup.processes = has("pids.max").then(|| group.clone());
                cgroup.cpu = has("cpu.max").then(|| group.clone());
                cgroup.accounting = Some(group);
            }
        } else {
            for controller in wanted {
                let Some(parent) = legacy_parent(controller) else {
                    continue;
                };
                sweep(&parent);
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

    /// Whether the kernel keeps the memory limit.
    pub(crate) fn bounds_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the kernel keeps the limit of processors.
    pub(crate) fn bounds_cpus(&self) -> bool {
        self.cpu.is_some()
    }

    /// Puts a process, which has started nothing yet, into the groups.
    pub(crate) fn attach(&self, pid: i32) -> std::io::Result<()> {
        for folder in &self.made {
            std::fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// How many processes were killed for want of memory.
    pub(crate) fn out_of_memory(&self) -> u64 {
        self.memory.as_ref().map_or(0, |group| match group.version {
            Version::Two => keyed(&group.folder.join("memory.events"), "oom_kill"),
            Version::One => keyed(&group.folder.join("memory.oom_control"), "oom_kill"),
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

const PREFIX: &str = "valetkey-";

/// A name that tells which process made the group, so that it can be swept when that is gone.
fn own_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let started = crate::usage::started(pid).unwrap_or(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{pid}-{started}-{number}", process_namespace())
}

/// Removes groups whose makers are gone. Only an empty group can be removed, and their processes ended with them.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let mut parts = rest.split('-').map(str::parse::<u64>);
        let (Some(Ok(namespace)), Some(Ok(pid)), Some(Ok(started))) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let found = u32::try_from(pid).ok().and_then(crate::usage::started);
        // In another process namespace the number would mean another process.
        if namespace == process_namespace() && found != Some(started) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Which namespace our process numbers belong to.
fn process_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// The nearest group above, in the unified hierarchy, below which a group with the controllers can be made.
///
/// A group that holds processes cannot have groups with controllers below it, except for the top one, so the place is
/// a delegated group beside our own or further up.
fn unified_parent() -> Option<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let own = own_path("")?;
    let own = top.join(own.trim_start_matches('/'));
    own.ancestors()
        .take_while(|folder| folder.starts_with(top))
        .find(|folder| {
            let controllers = std::fs::read_to_string(folder.join("cgroup.subtree_control"));
            controllers.is_ok_and(|list| list.split_whitespace().any(|name| name == "memory"))
                && is_writable(&folder.join("cgroup.procs"))
                && is_writable(folder)
        })
        .map(Path::to_owned)
}

/// Our own group in one of the older hierarchies, if groups can be made below it.
fn legacy_parent(controller: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let top = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (_, place, kind, options) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        (kind == "cgroup" && options.split(',').any(|option| option == controller)).then_some(place)
    })?;
    let own = own_path(controller)?;
    let folder = Path::new(top).join(own.trim_start_matches('/'));
    // Inside a container the path may be the host's, which is not there; the top is the container's then.
    let folder = if folder.is_dir() {
        folder
    } else {
        PathBuf::from(top)
    };
    is_writable(&folder).then_some(folder)
}

/// Our path in the hierarchy of a controller; of the unified one for an empty name.
fn own_path(controller: &str) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        controllers
            .split(',')
            .any(|name| name == controller)
            .then(|| path.to_owned())
    })
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_supervisor_left_is_swept_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let alive = own_name();
        // No process has this number: it is above the kernel's largest.
        let here = process_namespace();
        let dead = format!("{PREFIX}{here}-4194999-17-0");
        let reused = format!("{PREFIX}{here}-{}-1-0", std::process::id());
        let elsewhere = format!("{PREFIX}1-4194999-17-0");
        for name in [alive.as_str(), &dead, &reused, &elsewhere, "system.slice"] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        sweep(parent.path());
        let mut left: Vec<String> = std::fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected = vec!["system.slice".to_owned(), alive, elsewhere];
        expected.sort();
        assert_eq!(left, expected);
    }
}
