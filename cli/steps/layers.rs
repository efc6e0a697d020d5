//! The layers of a run's workspace on disk: one for each attempt of a step, `layers/NNN/{upper,work}`.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use launcher::changes::{Hold, Record, Touched, merge};
use launcher::{MAX_LAYERS_BELOW, WorkspaceMode};

use super::resume::Resumed;
use crate::failure::Failure;
use crate::output::say;

/// The layers of one run, and what is written down about them. Nobody else touches them while this is held.
#[derive(Debug)]
pub(crate) struct Layers {
    folder: PathBuf,
    state: Mutex<State>,
    _hold: Hold,
}

#[derive(Debug)]
struct State {
    record: Record,
    made: u32,
}

/// One layer to write to, and the layers that show below it, the newest first.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    folder: PathBuf,
    below: Vec<PathBuf>,
}

impl Layers {
    /// Begins the layers of the run that keeps its things in `run_folder`, over `workspace`.
    pub(crate) fn begin(run_folder: &Path, workspace: &Path) -> Result<Self, Failure> {
        let cannot = |error| Failure::ours("the run's changes cannot be kept").because(error);
        let hold = Hold::take(run_folder).map_err(cannot)?;
        let record = Record::begin(run_folder, workspace).map_err(cannot)?;
        record.save().map_err(cannot)?;
        Ok(Self {
            folder: record.layers_folder(),
            state: Mutex::new(State { record, made: 0 }),
            _hold: hold,
        })
    }

    /// Goes on with those of an earlier run, in `run_folder`.
    pub(crate) fn resume(run_folder: &Path, resumed: &Resumed) -> Result<Self, Failure> {
        let cannot = |error| Failure::ours("the run cannot be gone on with").because(error);
        let hold = Hold::take(run_folder).map_err(cannot)?;
        let record = resumed.hand_over(run_folder).map_err(cannot)?;
        let folder = record.layers_folder();
        let others = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = others
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        for name in names.iter().filter(|name| !record.layers.contains(name)) {
            // What it left is no part of this run, whether or not it can be removed.
            if let Err(error) = launcher::remove_folder(&folder.join(name)) {
                say(format_args!(
                    "note: cannot remove the layer `{name}`: {error}"
                ));
            }
        }
        // Also those that were empty and removed: no two steps have layers of one name.
        names.extend(resumed.steps.values().map(|(_, name)| name.clone()));
        let numbers = names.iter().filter_map(|name| name.parse::<u32>().ok());
        let made = numbers.max().unwrap_or(0);
        Ok(Self {
            folder,
            state: Mutex::new(State { record, made }),
            _hold: hold,
        })
    }

    /// The place of a layer among the others, the oldest first.
    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        let state = self.state();
        state.record.layers.iter().position(|other| other == name)
    }

    /// A layer that is there.
    pub(crate) fn find(&self, name: &str) -> Layer {
        Layer {
            folder: self.folder.join(name),
            below: Vec::new(),
        }
    }

    /// Makes one more layer, above `below`: the layers that its step is to see, the oldest first.
    pub(crate) fn add(&self, below: &[Layer]) -> Result<Layer, Failure> {
        let mut state = self.state();
        state.made += 1;
        let name = format!("{:03}", state.made);
        let layer = Layer::make(&self.folder.join(&name), below)?;
        // Written down before anything is written to it, so that it is found whatever ends this process.
        state.record.layers.push(name);
        save(&state.record)?;
        Ok(layer)
    }

    /// Removes a layer with what was written to it.
    ///
    /// # Errors
    /// If it is still there; the run's changes are without it all the same, if `set_aside` did that.
    pub(crate) fn drop_layer(&self, layer: &Layer) -> Result<(), Failure> {
        self.set_aside(layer)?;
        launcher::remove_folder(&layer.folder).map_err(|error| {
            Failure::ours(format!("cannot remove `{}`", layer.folder.display())).because(error)
        })
    }

    /// Makes one layer of the oldest `written` ones if the next step would see many. These are all that there are, the
    /// oldest first, and no sandbox stands over them.
    pub(crate) fn make_room(&self, written: &mut Vec<Layer>) -> Result<(), Failure> {
        if written.len() <= MOST_BELOW {
            return Ok(());
        }
        let mut state = self.state();
        let count = written.len() - LEFT_APART;
        let names: Vec<String> = written[..count].iter().map(Layer::name).collect();
        if !state.record.layers.starts_with(&names) {
            return Err(Failure::ours(
                "the layers of this run are not those that its steps left",
            ));
        }
        let merged = merge(&mut state.record, count);
        // Also where not all could be merged.
        written.retain(|layer| state.record.layers.contains(&layer.name()));
        match merged {
            Err(error) if written.len() > MAX_LAYERS_BELOW => Err(Failure::ours(
                "the changes of the run's first steps cannot be put together, and a step cannot see more of them apart",
            )
            .because(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Puts a layer above all others: layers count in the order in which their steps ended, not in which they began.
    pub(crate) fn put_above(&self, layer: &Layer) -> Result<(), Failure> {
        let mut state = self.state();
        let name = layer.name();
        state.record.layers.retain(|other| *other != name);
        state.record.layers.push(name);
        save(&state.record)
    }

    /// Notes which folders of the workspace a step changed something in, so that another in their place is found out.
    pub(crate) fn note_folders(&self, touched: &Touched) -> Result<(), Failure> {
        let mut state = self.state();
        match state.record.note_folders(touched) {
            true => save(&state.record),
            false => Ok(()),
        }
    }

    /// Takes a layer out of the run's changes, and leaves it on the disk.
    pub(crate) fn set_aside(&self, layer: &Layer) -> Result<(), Failure> {
        let mut state = self.state();
        let name = layer.name();
        state.record.layers.retain(|other| *other != name);
        save(&state.record)
    }

    /// Removes the layers that nothing was written to. Where the others are: the only one's `upper`, or the folder of all.
    pub(crate) fn remove_empty(&self) -> Option<PathBuf> {
        let mut state = self.state();
        let is_kept = |name: &String| {
            let layer = self.folder.join(name);
            // A copy of the workspace is there if its changes could not be written down.
            if layer.join("copy").exists() {
                return true;
            }
            // Only an empty folder can be removed like this, so what was written stays.
            let is_empty = fs::remove_dir(layer.join("upper")).is_ok();
            if is_empty {
                let _ = launcher::remove_folder(&layer);
            }
            !is_empty
        };
        state.record.layers.retain(is_kept);
        if let Err(error) = save(&state.record) {
            say(format_args!("note: {}", error.told()));
        }
        match state.record.layers.as_slice() {
            [] => None,
            [only] => Some(self.folder.join(only).join("upper")),
            [_, ..] => Some(self.folder.clone()),
        }
    }

    /// The workspace that they belong to.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.state().record.workspace.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn save(record: &Record) -> Result<(), Failure> {
    record
        .save()
        .map_err(|error| Failure::ours("the run's changes cannot be kept").because(error))
}

impl Layer {
    /// Makes a layer in a folder of its own, above `below`, the oldest first.
    pub(crate) fn make(folder: &Path, below: &[Self]) -> Result<Self, Failure> {
        let layer = Self {
            below: below.iter().rev().map(Self::upper).collect(),
            folder: folder.to_owned(),
        };
        for part in [layer.upper(), layer.work()] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&part)
                .map_err(|error| {
                    Failure::ours(format!("cannot make the folder `{}`", part.display()))
                        .because(error)
                })?;
        }
        Ok(layer)
    }

    /// What was written.
    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    /// How the workspace is shown to the step that writes to it.
    pub(crate) fn mode(&self) -> WorkspaceMode {
        WorkspaceMode::Overlay {
            upper: self.upper(),
            work: self.work(),
            below: self.below.clone(),
        }
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Its name.
    pub(super) fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// How many layers a step sees before the oldest ones are merged. A step looks through all of them for each name.
const MOST_BELOW: usize = 16;
/// How many of the newest are left as they are then.
const LEFT_APART: usize = 4;
const _: () = assert!(MOST_BELOW <= MAX_LAYERS_BELOW && LEFT_APART < MOST_BELOW);
