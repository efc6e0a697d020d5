//! Where control groups can be made, and by whom the ones that are there were made.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::usage::table;

/// A group of the unified hierarchy below which groups with controllers can be made.
#[derive(Debug)]
pub(crate) struct Unified {
    parent: PathBuf,
    is_settled: bool,
}

impl Unified {
    /// Finds one.
    ///
    /// A group that holds processes cannot have groups with controllers below it, except for the top one. So where we
    /// are alone in our group, as in one that was delegated to us, we move into a leaf of it; else it is the nearest
    /// group above that has such groups already and that we may write to.
    pub(crate) fn find() -> Option<Self> {
        let top = Path::new("/sys/fs/cgroup");
        let table = table("/proc/self/cgroup").ok()?;
        let own = path_in(&table, "")?;
        let own = top.join(own.trim_start_matches('/'));
        if let Some(parent) = settle(&own) {
            return Some(Self {
                parent,
                is_settled: true,
            });
        }
        own.ancestors()
            .take_while(|folder| folder.starts_with(top))
            .find(|folder| {
                let controllers = std::fs::read_to_string(folder.join("cgroup.subtree_control"));
                controllers.is_ok_and(|list| list.split_whitespace().any(|name| name == "memory"))
                    && is_writable(&folder.join("cgroup.procs"))
                    && is_writable(folder)
            })
            .map(|parent| Self {
                parent: parent.to_owned(),
                is_settled: false,
            })
    }

    /// Where groups can be made.
    pub(crate) fn parent(&self) -> &Path {
        &self.parent
    }
}

impl Drop for Unified {
    fn drop(&mut self) {
        if self.is_settled {
            leave();
        }
    }
}

/// That this process moved into a leaf of its own group, and how many sandboxes need it there.
struct Settled {
    group: PathBuf,
    leaf: PathBuf,
    users: usize,
}

static SETTLED: Mutex<Option<Settled>> = Mutex::new(None);

/// Moves this process into a leaf of its group, so that groups can be made beside the leaf.
fn settle(own: &Path) -> Option<PathBuf> {
    let mut settled = SETTLED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(settled) = &mut *settled {
        settled.users += 1;
        return Some(settled.group.clone());
    }
    let members = std::fs::read_to_string(own.join("cgroup.procs")).ok()?;
    let ours = ours();
    if !(members.split_whitespace()).all(|member| ours.iter().any(|pid| member == pid))
        || !is_writable(&own.join("cgroup.subtree_control"))
    {
        return None;
    }
    let offered = std::fs::read_to_string(own.join("cgroup.controllers")).ok()?;
    let leaf = own.join(own_name());
    std::fs::create_dir(&leaf).ok()?;
    let entered = Settled {
        group: own.to_owned(),
        leaf,
        users: 1,
    };
    let control = own.join("cgroup.subtree_control");
    let moved = move_to(&entered.leaf).is_ok()
        && CONTROLLERS
            .iter()
            .filter(|name| offered.split_whitespace().any(|offered| offered == **name))
            .filter(|name| std::fs::write(&control, format!("+{name}")).is_ok())
            .count()
            > 0;
    if !moved {
        entered.undo();
        return None;
    }
    let group = entered.group.clone();
    *settled = Some(entered);
    Some(group)
}

/// Gives the leaf up when the last sandbox that needs it is gone.
fn leave() {
    let mut settled = SETTLED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(current) = &mut *settled {
        current.users -= 1;
        if current.users == 0 {
            current.undo();
            *settled = None;
        }
    }
}

impl Settled {
    /// Moves back, which a group without controllers below it allows, and removes the leaf.
    fn undo(&self) {
        for name in CONTROLLERS {
            let _ = std::fs::write(
                self.group.join("cgroup.subtree_control"),
                format!("-{name}"),
            );
        }
        let _ = move_to(&self.group);
        let _ = std::fs::remove_dir(&self.leaf);
    }
}

fn move_to(group: &Path) -> std::io::Result<()> {
    for pid in ours() {
        std::fs::write(group.join("cgroup.procs"), pid)?;
    }
    Ok(())
}

/// This process, and those that sandboxes are born of.
fn ours() -> Vec<String> {
    let own = std::process::id();
    let born = crate::zygote::processes();
    std::iter::once(own)
        .chain(born)
        .map(|pid| pid.to_string())
        .collect()
}

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// A name that tells which process made the group, so that it can be swept when that is gone.
pub(crate) fn own_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    static OURS: OnceLock<String> = OnceLock::new();
    let ours = OURS.get_or_init(|| {
        let pid = std::process::id();
        let started = crate::usage::started(pid).unwrap_or(0);
        format!("{PREFIX}{}-{pid}-{started}", process_namespace())
    });
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("{ours}-{number}")
}

/// Sweeps, once for each process: a look at all groups for each sandbox would make many at once slow.
pub(crate) fn sweep_once(parent: &Path) {
    static SWEPT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let is_first = SWEPT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(parent.to_owned());
    if is_first {
        sweep(parent);
    }
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

/// Has the kernel get ready to move a process into a group, which else waits for several milliseconds when it comes to it:
/// all processors must have passed a quiet moment (`percpu_down_write`), and for as long again none has to be waited for.
///
/// Moving this process to where it is already does that, on a thread of its own. Where it may not, nothing is different.
pub(crate) fn get_ready_to_move() {
    let move_nowhere = || {
        let unified = Path::new("/sys/fs/cgroup");
        let own = table("/proc/self/cgroup").ok()?;
        let own = match unified.join("cgroup.controllers").exists() {
            true => unified.join(path_in(&own, "")?.trim_start_matches('/')),
            false => Legacy::read()?.parent("memory")?,
        };
        // The writer of this number is meant.
        std::fs::write(own.join("cgroup.procs"), "0").ok()
    };
    // Nothing depends on it.
    let _ = std::thread::Builder::new()
        .name("group".into())
        .spawn(move || move_nowhere().is_some());
}

/// Which namespace our process numbers belong to.
fn process_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// The older hierarchies, and where in them this process is.
pub(crate) struct Legacy {
    mounts: &'static str,
    own: String,
}

impl Legacy {
    /// Reads where they are.
    pub(crate) fn read() -> Option<Self> {
        // A machine mounts them when it starts.
        static MOUNTS: OnceLock<String> = OnceLock::new();
        Some(Self {
            mounts: MOUNTS.get_or_init(|| table("/proc/self/mounts").unwrap_or_default()),
            own: table("/proc/self/cgroup").ok()?,
        })
    }

    /// Our own group in the hierarchy of a controller, if groups can be made below it.
    pub(crate) fn parent(&self, controller: &str) -> Option<PathBuf> {
        let top = self.mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, place, kind, options) = (
                fields.next()?,
                fields.next()?,
                fields.next()?,
                fields.next()?,
            );
            (kind == "cgroup" && options.split(',').any(|option| option == controller))
                .then_some(place)
        })?;
        let own = path_in(&self.own, controller)?;
        let folder = Path::new(top).join(own.trim_start_matches('/'));
        // Inside a container the path may be the host's, which is not there; the top is the container's then.
        let folder = if folder.is_dir() {
            folder
        } else {
            PathBuf::from(top)
        };
        is_writable(&folder).then_some(folder)
    }
}

/// The path in the hierarchy of a controller, of the unified one for an empty name, by a table as in
/// `/proc/self/cgroup`.
fn path_in<'a>(table: &'a str, controller: &str) -> Option<&'a str> {
    table.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        controllers
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    })
}

fn is_writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

const PREFIX: &str = "valetkey-";

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
