//! The merged effect of a run's layers, read as the kernel's overlay file system writes them, without mounting any.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::change::Kind;
use super::record::Record;
use super::tree::{Folder, Tree, kind};
use super::{Error, text};

/// One layer of a run.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) tree: Tree,
    /// What the copy of a whole workspace leaves out; `None` for a layer of changes.
    copy_without: Option<BTreeSet<PathBuf>>,
}

/// What the layers say about the folder at one path.
#[derive(Debug)]
pub(crate) struct Stack<'a> {
    layers: &'a [Layer],
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
                copy_without: read_copy_mark(&folder)?,
            })
        })
        .collect()
}

impl Place {
    /// The top.
    pub(crate) fn top(layers: &[Layer]) -> Self {
        let mut place = Self {
            numbers: Vec::new(),
            shows_workspace: true,
        };
        for number in (0..layers.len()).rev() {
            place.numbers.push(number);
            if layers[number].copy_without.is_some() {
                place.shows_workspace = false;
                break;
            }
        }
        place
    }

    /// Opens the folder.
    pub(crate) fn open<'a>(&self, layers: &'a [Layer], path: &Path) -> io::Result<Stack<'a>> {
        let parts = self
            .numbers
            .iter()
            .map(|number| Ok((*number, layers[*number].tree.folder(path)?)))
            .collect::<io::Result<_>>()?;
        Ok(Stack {
            layers,
            parts,
            shows_workspace: self.shows_workspace,
        })
    }
}

impl Stack<'_> {
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
            let is_copy = self.layers[*number].copy_without.is_some();
            let is_taken_away = !is_copy && is_whiteout(part, name, &stat)?;
            match &mut folder {
                None if is_taken_away => return Ok(Found::Absent),
                None if kind(&stat) != Kind::Folder => {
                    return Ok(Found::Leaf {
                        layer: *number,
                        stat,
                        is_from_workspace: !is_copy && has_origin(part, name)?,
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
            if !is_copy && is_opaque(part, name)? {
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
    /// Whether this is the copy of a whole workspace, and leaves out what is at this path.
    pub(crate) fn leaves_out(&self, path: &Path) -> bool {
        self.copy_without
            .as_ref()
            .is_some_and(|left_out| left_out.contains(path))
    }

    /// Whether this is the copy of a whole workspace.
    pub(crate) fn is_copy(&self) -> bool {
        self.copy_without.is_some()
    }
}

/// Something that stands for nothing: what the workspace has under this name was removed.
fn is_whiteout(folder: &Folder, name: &OsStr, stat: &Stat) -> io::Result<bool> {
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
fn is_opaque(folder: &Folder, name: &OsStr) -> io::Result<bool> {
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

/// Says of a layer that it is the copy of a whole workspace without `left_out`.
#[expect(dead_code, reason = "copy mode writes it")]
pub(crate) fn write_copy_mark(layer: &Path, left_out: &[PathBuf]) -> io::Result<()> {
    let left_out: Vec<String> = left_out.iter().map(|path| text::escaped(path)).collect();
    fs::write(layer.join(COPY), serde_json::to_string(&left_out)?)
}

fn read_copy_mark(layer: &Path) -> Result<Option<BTreeSet<PathBuf>>, Error> {
    let path = layer.join(COPY);
    let wrong = |why: &str| Error::Record {
        path: path.clone(),
        why: why.to_owned(),
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::machine("cannot read", &path, error)),
    };
    let paths: Vec<String> =
        serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    paths
        .iter()
        .map(|path| text::unescaped(path).ok_or_else(|| wrong("a path with a broken escape")))
        .collect::<Result<_, _>>()
        .map(Some)
}

const WHITEOUT: &str = "user.overlay.whiteout";
const OPAQUE: &str = "user.overlay.opaque";
const REDIRECT: &str = "user.overlay.redirect";
const METACOPY: &str = "user.overlay.metacopy";
const ORIGIN: &str = "user.overlay.origin";
const COPY: &str = "copy.json";
