//! What is written down about a run's workspace, beside the layers with its changes.
//!
//! ```text
//! <run>/workspace.json        the record
//! <run>/workspace.lock        held by whoever is at the changes
//! <run>/layers/001/upper …    the changes of the first step, and so on
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Error;

/// What is written down about the workspace of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// The workspace on the host.
    #[serde(with = "super::text::one")]
    pub workspace: PathBuf,
    device: u64,
    inode: u64,
    /// Since when the run saw it. What changed there at this moment or later is a conflict.
    pub began: Moment,
    /// The layers with its changes, oldest first: names of folders in [`Record::layers_folder`].
    pub layers: Vec<String>,
    /// What became of the changes.
    pub state: State,
    /// Files of the workspace, by device and inode number, that have several names among the changes. Taking over
    /// what happened to one name changes the time of the others.
    #[serde(default)]
    pub(crate) linked: BTreeSet<(u64, u64)>,
    /// Folders of the workspace in which the run changed something, as [`super::escaped`] paths, and their inode numbers
    /// then: another folder in their place is not what the run saw, however old what is in it.
    #[serde(default)]
    folders: BTreeMap<String, u64>,
    #[serde(skip)]
    folder: PathBuf,
}

/// What became of the changes of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum State {
    /// Nothing yet.
    Kept,
    /// They were being taken over, which did not come to its end; it can be done again.
    Applying {
        /// When it began.
        since: Moment,
        /// Folders of the workspace, as [`super::escaped`] paths, where something may have been left over.
        folders: Vec<String>,
    },
    /// Some of them were taken over.
    PartlyApplied {
        /// When, the last time.
        at: Moment,
    },
    /// They were taken over.
    Applied {
        /// When.
        at: Moment,
        /// How many.
        count: u64,
    },
    /// They were thrown away.
    Discarded {
        /// When.
        at: Moment,
    },
}

impl Record {
    /// Begins a run whose changes are kept in `run_folder`: from now on, what changes in `workspace` is a conflict.
    ///
    /// Call it before anything of the workspace is looked at. It is not written down before [`Record::save`].
    pub fn begin(run_folder: &Path, workspace: &Path) -> Result<Self, Error> {
        // First the time: what changes while we look has changed since.
        let began = Moment::on_disk(&run_folder.join(NEW_FILE))
            .map_err(|error| Error::machine("cannot write to", run_folder, error))?;
        let found = workspace
            .symlink_metadata()
            .map_err(|error| Error::machine("cannot look at the workspace", workspace, error))?;
        Ok(Self {
            version: VERSION,
            workspace: workspace.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            began,
            layers: Vec::new(),
            state: State::Kept,
            linked: BTreeSet::new(),
            folders: BTreeMap::new(),
            folder: run_folder.to_owned(),
        })
    }

    /// Reads what was written down in `run_folder`; [`Error::NotKept`] where nothing was.
    pub fn load(run_folder: &Path) -> Result<Self, Error> {
        let path = run_folder.join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotKept,
            _ => Error::machine("cannot read", &path, error),
        })?;
        let wrong = |why: String| Error::Record {
            path: path.clone(),
            why,
        };
        let mut record: Self =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if record.version != VERSION {
            return Err(wrong(format!("version {} is not known", record.version)));
        }
        // They become parts of paths.
        if let Some(name) = record.layers.iter().find(|name| !is_layer_name(name)) {
            return Err(wrong(format!("`{name}` cannot be the name of a layer")));
        }
        record.folder = run_folder.to_owned();
        Ok(record)
    }

    /// Writes it down, in one piece. It survives the end of this process, not a power failure.
    pub fn save(&self) -> Result<(), Error> {
        self.write(false)
    }

    /// Writes it down so that it survives a power failure.
    pub(crate) fn save_durably(&self) -> Result<(), Error> {
        self.write(true)
    }

    /// Hands all layers over to the run in `to`, whose changes are those of these `layers`. Wherever it is ended in between,
    /// they are as a whole at one of the two.
    pub fn hand_over(&mut self, to: &Path, layers: Vec<String>) -> Result<Self, Error> {
        let mut next = self.clone();
        to.clone_into(&mut next.folder);
        next.layers = layers;
        next.save()?;
        let (from, to) = (self.layers_folder(), next.layers_folder());
        fs::rename(&from, to).map_err(|error| Error::machine("cannot move", &from, error))?;
        self.layers.clear();
        self.save()?;
        Ok(next)
    }

    /// Where the layers are.
    pub fn layers_folder(&self) -> PathBuf {
        self.folder.join(LAYERS)
    }

    /// The folders of the layers, oldest first. Each holds `upper`, the changes.
    pub fn layer_folders(&self) -> Vec<PathBuf> {
        let all = self.layers_folder();
        self.layers.iter().map(|name| all.join(name)).collect()
    }

    /// The folder of the run.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes which folders of the workspace a layer changed something in, when its step has ended. Whether any are new; they
    /// are not written down before [`Record::save`].
    #[cfg(target_os = "linux")]
    pub fn note_folders(&mut self, touched: &super::Touched) -> bool {
        let before = self.folders.len();
        for path in touched.folders() {
            // What is not noted is judged by its time alone.
            if self.folders.len() >= MOST_FOLDERS {
                break;
            }
            if let Ok(found) = self.workspace.join(path).symlink_metadata()
                && found.is_dir()
            {
                let folder = self.folders.entry(super::escaped(path));
                folder.or_insert(found.ino());
            }
        }
        self.folders.len() > before
    }

    /// Whether another folder stands at this path than the run saw there.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_another(&self, path: &Path, folder: &rustix::fs::Stat) -> bool {
        let noted = self.folders.get(&super::escaped(path));
        noted.is_some_and(|inode| *inode != folder.st_ino)
    }

    /// The device and inode number of the workspace's folder.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether something of the workspace changed since the run began, as far as not by us.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_changed(&self, stat: &rustix::fs::Stat) -> bool {
        let is_linked = self.linked.contains(&(stat.st_dev, stat.st_ino));
        let time = if is_linked {
            Moment::of_writing(stat)
        } else {
            Moment::of(stat)
        };
        time >= self.began
    }

    fn write(&self, durably: bool) -> Result<(), Error> {
        let (path, new) = (self.folder.join(FILE), self.folder.join(NEW_FILE));
        let written = || -> io::Result<()> {
            let text = serde_json::to_string(self)?;
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(text.as_bytes())?;
            if durably {
                file.sync_all()?;
            }
            fs::rename(&new, &path)?;
            if durably {
                File::open(&self.folder)?.sync_all()?;
            }
            Ok(())
        };
        written().map_err(|error| Error::machine("cannot write", &path, error))
    }
}

/// The right to be at the changes of a run, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Hold {
    _lock: File,
}

impl Hold {
    /// Takes it; [`Error::InUse`] if somebody has it. A run has it as long as it goes on.
    pub fn take(run_folder: &Path) -> Result<Self, Error> {
        let path = run_folder.join(LOCK);
        let failed = |error| Error::machine("cannot lock", &path, error);
        let lock = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::InUse),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// A moment on the clock that file systems take their times from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: i64,
}

impl Moment {
    /// The moment at which a file written now changes: nothing that changes from now on is given an earlier one.
    fn on_disk(file: &Path) -> io::Result<Self> {
        let clock = Self::now();
        let found = File::create(file)?.metadata()?;
        let on_disk = Self {
            seconds: found.ctime(),
            nanoseconds: found.ctime_nsec(),
        };
        // The clock of a server, which may be elsewhere, says nothing about the workspace's file system.
        let is_ours = (on_disk.seconds - clock.seconds).abs() <= 1;
        Ok(if is_ours { on_disk } else { clock })
    }

    /// The moment now: never later than the time that a file gets which changes from now on.
    #[cfg(target_os = "linux")]
    pub fn now() -> Self {
        // File systems use the clock that moves with the timer's tick.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Self {
            seconds: now.tv_sec,
            nanoseconds: now.tv_nsec,
        }
    }

    /// The moment now.
    #[cfg(not(target_os = "linux"))]
    pub fn now() -> Self {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: now.subsec_nanos().into(),
        }
    }

    /// When something last changed, its permissions and its name included.
    #[cfg(target_os = "linux")]
    pub(crate) fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            seconds: stat.st_ctime,
            nanoseconds: i64::try_from(stat.st_ctime_nsec).unwrap_or(i64::MAX),
        }
    }

    /// When its contents last changed, as far as nobody set that time.
    #[cfg(target_os = "linux")]
    fn of_writing(stat: &rustix::fs::Stat) -> Self {
        Self {
            seconds: stat.st_mtime,
            nanoseconds: i64::try_from(stat.st_mtime_nsec).unwrap_or(i64::MAX),
        }
    }

    /// The same for the clock of the standard library.
    pub fn time(self) -> SystemTime {
        let seconds = std::time::Duration::from_secs(u64::try_from(self.seconds).unwrap_or(0));
        let nanoseconds = u64::try_from(self.nanoseconds).unwrap_or(0);
        UNIX_EPOCH + seconds + std::time::Duration::from_nanos(nanoseconds)
    }
}

fn is_layer_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

const VERSION: u32 = 1;
const MOST_FOLDERS: usize = 100_000;
const FILE: &str = "workspace.json";
const NEW_FILE: &str = "workspace.json.new";
const LOCK: &str = "workspace.lock";
const LAYERS: &str = "layers";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::begin(folder.path(), folder.path()).unwrap();
        record.layers = vec!["001".into(), "002".into()];
        record.state = State::Applying {
            since: Moment::now(),
            folders: vec!["src".into()],
        };
        record.save().unwrap();
        assert_eq!(Record::load(folder.path()).unwrap(), record);
    }

    #[test]
    fn where_nothing_was_written_nothing_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let error = Record::load(folder.path()).unwrap_err();
        assert!(matches!(error, Error::NotKept), "{error}");
    }

    #[test]
    fn a_layer_outside_of_the_runs_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut record = Record::begin(folder.path(), folder.path()).unwrap();
        record.layers = vec!["../../elsewhere".into()];
        record.save().unwrap();
        let error = Record::load(folder.path()).unwrap_err();
        assert!(matches!(error, Error::Record { .. }), "{error}");
    }

    #[test]
    fn only_one_is_at_the_changes_of_a_run() {
        let folder = tempfile::tempdir().unwrap();
        let hold = Hold::take(folder.path()).unwrap();
        let error = Hold::take(folder.path()).unwrap_err();
        assert!(matches!(error, Error::InUse), "{error}");
        drop(hold);
        Hold::take(folder.path()).unwrap();
    }
}
