//! The merged effect of a run's layers, read as the kernel's overlay file system writes them, without mounting any.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{FileType, Stat};

use super::Error;
use super::change::Kind;
use super::record::Record;
use super::tree::{Folder, Tree, kind};

/// One layer of a run.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) tree: Tree,
    is_copied: bool,
}

/// What the layers say about the folder at one path.
#[derive(Debug)]
pub(crate) struct Stack {
    // The newest first, each with the number of its layer.
    parts: Vec<(usize, Folder)>,
    /// Whether what the workspace has in this folder shows through.
    pub(crate) shows_workspace: bool,
}

/// Which layers have the folder at one path, to be opened when it is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    numbers: Vec<usize>,
    shows_workspace: bool,
}

/// What the run left under a name.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing that a layer knows of: what the workspace has, if that shows through.
    Untouched,
    /// Nothing.
    Absent,
    /// Something that is no folder, of the layer with this number.
    Leaf {
        /// The number.
        layer: usize,
        /// What it is.
        stat: Stat,
        /// Whether it came from the workspace.
        is_from_workspace: bool,
    },
    /// A folder.
    Folder {
        /// The newest layer that has it.
        layer: usize,
        /// What it is there.
        stat: Stat,
        /// The layers that have it.
        place: Place,
    },
}

/// Opens the layers of a run, oldest first.
pub(crate) fn open(record: &Record) -> Result<Vec<Layer>, Error> {
    record
        .layer_folders()
        .into_iter()
        .map(|folder| {
            let upper = folder.join("upper");
            let tree = Tree::of_ours(&upper)
                .map_err(|error| Error::machine("cannot open the layer", &upper, error))?;
            Ok(Layer {
                tree,
                is_copied: folder.join(COPIED).exists(),
            })
        })
        .collect()
}

impl Place {
    /// The top.
    pub(crate) fn top(layers: &[Layer]) -> Self {
        Self {
            numbers: (0..layers.len()).rev().collect(),
            shows_workspace: true,
        }
    }

    /// Opens the folder.
    pub(crate) fn open(&self, layers: &[Layer], path: &Path) -> io::Result<Stack> {
        let parts = self
            .numbers
            .iter()
            .map(|number| Ok((*number, layers[*number].tree.folder(path)?)))
            .collect::<io::Result<_>>()?;
        Ok(Stack {
            parts,
            shows_workspace: self.shows_workspace,
        })
    }
}

impl Stack {
    /// Every name that some layer has, also of what is taken away.
    pub(crate) fn names(&self) -> io::Result<BTreeSet<OsString>> {
        let mut names = BTreeSet::new();
        for (_, folder) in &self.parts {
            names.extend(folder.names()?);
        }
        Ok(names)
    }

    /// The folder as a layer that has it keeps it.
    pub(crate) fn folder(&self, layer: usize) -> io::Result<&Folder> {
        let part = self.parts.iter().find(|(number, _)| *number == layer);
        part.map(|(_, folder)| folder)
            .ok_or_else(|| io::Error::other("the layer does not have this folder"))
    }

    /// What the run left under a name.
    pub(crate) fn find(&self, name: &OsStr) -> io::Result<Found> {
        let mut folder: Option<(usize, Stat)> = None;
        let mut place = Place {
            numbers: Vec::new(),
            shows_workspace: self.shows_workspace,
        };
        for (number, part) in &self.parts {
            let Some(stat) = part.stat(name)? else {
                continue;
            };
            let is_taken_away = is_whiteout(part, name, &stat)?;
            match &mut folder {
                None if is_taken_away => return Ok(Found::Absent),
                None if kind(&stat) != Kind::Folder => {
                    return Ok(Found::Leaf {
                        layer: *number,
                        stat,
                        is_from_workspace: has_origin(part, name)?,
                    });
                }
                // What lies below is not part of a folder.
                Some(_) if is_taken_away || kind(&stat) != Kind::Folder => {
                    place.shows_workspace = false;
                    break;
                }
                Some(_) => {}
                None => folder = Some((*number, stat)),
            }
            place.numbers.push(*number);
            if is_opaque(part, name)? {
                place.shows_workspace = false;
                break;
            }
        }
        Ok(match folder {
            Some((layer, stat)) => Found::Folder { layer, stat, place },
            None if self.shows_workspace => Found::Untouched,
            None => Found::Absent,
        })
    }
}

impl Layer {
    /// Whether it was written in a copy of the workspace, which held what is mounted in it.
    pub(crate) fn is_copied(&self) -> bool {
        self.is_copied
    }
}

/// Something that stands for nothing: what the workspace has under this name was removed.
pub(crate) fn is_whiteout(folder: &Folder, name: &OsStr, stat: &Stat) -> io::Result<bool> {
    if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0 {
        return Ok(true);
    }
    Ok(
        kind(stat) == Kind::File
            && stat.st_size == 0
            && folder.attribute(name, WHITEOUT)?.is_some(),
    )
}

/// A folder that hides what the workspace has at its path.
pub(crate) fn is_opaque(folder: &Folder, name: &OsStr) -> io::Result<bool> {
    // These would say that the contents lie elsewhere. No overlay of ours writes them, so somebody else wrote here.
    if folder.attribute(name, REDIRECT)?.is_some() {
        return Err(io::Error::other(
            "a folder of the layer is redirected, which the sandbox never does",
        ));
    }
    Ok(folder.attribute(name, OPAQUE)?.as_deref() == Some(b"y"))
}

fn has_origin(folder: &Folder, name: &OsStr) -> io::Result<bool> {
    if folder.attribute(name, METACOPY)?.is_some() {
        return Err(io::Error::other(
            "a file of the layer has no contents, which the sandbox never leaves",
        ));
    }
    Ok(folder.attribute(name, ORIGIN)?.is_some())
}

/// Says of a layer that it was written in a copy of the workspace, which held what is mounted in it.
pub(crate) fn mark_copy(layer: &Path) -> io::Result<()> {
    fs::write(layer.join(COPIED), "")
}

const WHITEOUT: &str = "user.overlay.whiteout";
pub(crate) const OPAQUE: &str = "user.overlay.opaque";
const REDIRECT: &str = "user.overlay.redirect";
const METACOPY: &str = "user.overlay.metacopy";
pub(crate) const ORIGIN: &str = "user.overlay.origin";
const COPIED: &str = "copied";
