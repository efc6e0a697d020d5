//! The layers of a run's workspace on disk: one for each attempt of a step, `layers/NNN/{upper,work}`.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use launcher::WorkspaceMode;

use crate::failure::Failure;

/// The layers of one run.
#[derive(Debug)]
pub(crate) struct Layers {
    folder: PathBuf,
    made: u32,
}

/// One layer to write to, and the layers that show below it, the newest first.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    folder: PathBuf,
    below: Vec<PathBuf>,
}

impl Layers {
    /// The layers of the run that keeps its things in `run_folder`; none yet.
    pub(crate) fn new(run_folder: &Path) -> Self {
        Self {
            folder: run_folder.join("layers"),
            made: 0,
        }
    }

    /// Makes one more layer, above `below`: the layers that its step is to see, the oldest first.
    pub(crate) fn add(&mut self, below: &[&Layer]) -> Result<Layer, Failure> {
        self.made += 1;
        let folder = self.folder.join(format!("{:03}", self.made));
        let layer = Layer {
            below: below.iter().rev().map(|layer| layer.upper()).collect(),
            folder,
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
}

impl Layer {
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

    /// Removes it, and the folders above it, as far as nothing was written.
    pub(crate) fn remove_if_empty(&self) {
        // Only empty folders can be removed like this, so what was written stays.
        if fs::remove_dir(self.upper()).is_ok() {
            let _ = fs::remove_dir(self.work());
            for folder in self.folder.ancestors().take(3) {
                if fs::remove_dir(folder).is_err() {
                    return;
                }
            }
        }
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }
}
