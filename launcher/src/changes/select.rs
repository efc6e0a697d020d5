//! Which changes are taken over, and in which pieces: each piece appears in the workspace at once, or not at all.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::Error;
use super::change::{Change, Kind, Refused};

/// What is to be done at one path of the workspace.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Something is put there: a file, a link, or a folder with these changes in it. What was there goes.
    Put { change: usize, inside: Vec<usize> },
    /// What is there is removed.
    Remove { change: usize },
    /// A folder that stays gets other permissions.
    Permit { change: usize },
}

/// What was chosen.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) pieces: Vec<Piece>,
    /// How many changes they are.
    pub(crate) count: u64,
    /// Those that are in the way, or not taken over.
    pub(crate) left: Vec<usize>,
}

impl Piece {
    /// The change at its path.
    pub(crate) fn change(&self) -> usize {
        match self {
            Self::Put { change, .. } | Self::Remove { change } | Self::Permit { change } => *change,
        }
    }
}

/// Chooses the changes at these paths and below them; all, if there are none.
///
/// # Errors
/// If a chosen change is a conflict, if nothing was changed at a path, or if a change needs another one first.
pub(crate) fn choose(changes: &[Change], paths: &[PathBuf]) -> Result<Chosen, Error> {
    if let Some(path) = paths
        .iter()
        .find(|path| !changes.iter().any(|change| change.path.starts_with(path)))
    {
        return Err(Error::Unchanged { path: path.clone() });
    }
    let is_chosen = |path: &Path| paths.is_empty() || paths.iter().any(|p| path.starts_with(p));
    // What lies in something that is not taken over is not either: a folder whose replacement is refused keeps what is
    // in it.
    let refused: HashSet<&Path> = changes
        .iter()
        .filter(|change| is_refused(change, paths))
        .map(|change| change.path.as_path())
        .collect();
    let is_in_refused = |path: &Path| path.ancestors().any(|above| refused.contains(above));
    let mut chosen = Chosen::default();
    let mut taken: Vec<usize> = Vec::new();
    let mut conflicts = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        if !is_chosen(&change.path) {
            chosen.left.push(index);
        } else if change.conflict.is_some() {
            conflicts.push(change.clone());
        } else if is_in_refused(&change.path) {
            chosen.left.push(index);
        } else {
            taken.push(index);
        }
    }
    if !conflicts.is_empty() {
        return Err(Error::Conflicts(conflicts));
    }
    chosen.count = taken.len() as u64;
    chosen.pieces = pieces(changes, &taken)?;
    Ok(chosen)
}

fn is_refused(change: &Change, paths: &[PathBuf]) -> bool {
    match change.refused {
        None => false,
        Some(Refused::LeadsOut) => !paths.contains(&change.path),
        Some(Refused::Special | Refused::TooDeep | Refused::Reserved) => true,
    }
}

fn pieces(changes: &[Change], taken: &[usize]) -> Result<Vec<Piece>, Error> {
    let by_path: HashMap<&Path, usize> = changes
        .iter()
        .enumerate()
        .map(|(index, change)| (change.path.as_path(), index))
        .collect();
    let mut pieces: Vec<Piece> = Vec::new();
    // The folders that some piece makes or removes, and which piece.
    let mut wholes: HashMap<PathBuf, usize> = HashMap::new();
    for index in taken {
        let change = &changes[*index];
        if let Some(piece) = whole_of(changes, change, &by_path, &mut wholes, &mut pieces)? {
            add_inside(&mut pieces, piece, *index);
            wholes.insert(change.path.clone(), piece);
            continue;
        }
        let was_folder = change
            .was
            .as_ref()
            .is_some_and(|was| was.kind == Kind::Folder);
        let is_folder = change
            .now
            .as_ref()
            .is_some_and(|now| now.kind == Kind::Folder);
        pieces.push(match &change.now {
            None => Piece::Remove { change: *index },
            Some(_) if stays_folder(change) => Piece::Permit { change: *index },
            Some(_) => Piece::Put {
                change: *index,
                inside: Vec::new(),
            },
        });
        if !stays_folder(change) && (was_folder || is_folder) {
            wholes.insert(change.path.clone(), pieces.len() - 1);
        }
    }
    Ok(pieces)
}

/// The piece that a change is part of, because a folder above it is made, replaced or removed by that piece.
fn whole_of(
    changes: &[Change],
    change: &Change,
    by_path: &HashMap<&Path, usize>,
    wholes: &mut HashMap<PathBuf, usize>,
    pieces: &mut Vec<Piece>,
) -> Result<Option<usize>, Error> {
    // From the top down: the first folder that is not there yet has to come along.
    let mut above: Vec<&Path> = change.path.ancestors().skip(1).collect();
    above.reverse();
    let mut whole = None;
    for folder in above {
        if let Some(piece) = wholes.get(folder) {
            whole = Some(*piece);
            continue;
        }
        let Some(index) = by_path.get(folder) else {
            continue;
        };
        let known = &changes[*index];
        let is_folder = known.now.as_ref().map(|now| now.kind) == Some(Kind::Folder);
        if !is_folder || stays_folder(known) {
            continue;
        }
        if known.was.is_some() || known.refused.is_some() {
            return Err(Error::Needs {
                path: change.path.clone(),
                first: folder.to_owned(),
            });
        }
        let piece = match whole {
            Some(piece) => {
                add_inside(pieces, piece, *index);
                piece
            }
            None => {
                pieces.push(Piece::Put {
                    change: *index,
                    inside: Vec::new(),
                });
                pieces.len() - 1
            }
        };
        wholes.insert(folder.to_owned(), piece);
        whole = Some(piece);
    }
    Ok(whole)
}

fn stays_folder(change: &Change) -> bool {
    let is_folder = |entry: &Option<super::change::Entry>| {
        entry
            .as_ref()
            .is_some_and(|entry| entry.kind == Kind::Folder)
    };
    is_folder(&change.was) && is_folder(&change.now)
}

/// What is in a folder that is removed goes with it; what is in a new one is put into it.
fn add_inside(pieces: &mut [Piece], piece: usize, change: usize) {
    match &mut pieces[piece] {
        Piece::Put { inside, .. } => inside.push(change),
        Piece::Remove { .. } | Piece::Permit { .. } => {}
    }
}
