//! What one layer changed, by its paths: to count, and to find what two layers changed both.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::change::Kind;
use super::layers::{OPAQUE, is_opaque, is_whiteout};
use super::text::escaped;
use super::tree::{Tree, in_proc, is_within_reach, kind};

/// What a layer has at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    /// A folder, shown together with what lies below it: only its permissions are the layer's.
    Folder { mode: u32 },
    /// A folder that hides what lies below it: a new one, or one in the place of something else.
    Opaque { mode: u32 },
    /// Nothing any more.
    Removed,
    /// A file, a link or something else of the layer's own.
    Own,
}

impl Touch {
    /// Its permissions, if it is a folder.
    fn folder(self) -> Option<u32> {
        match self {
            Self::Folder { mode } | Self::Opaque { mode } => Some(mode),
            Self::Removed | Self::Own => None,
        }
    }
}

/// The paths that a layer touched.
#[derive(Debug, Default)]
pub struct Touched(BTreeMap<PathBuf, Touch>);

impl Touched {
    /// Looks through the `upper` folder of a layer that nobody writes to any more.
    ///
    /// # Errors
    /// If a part of it cannot be read, or it has more entries than are looked through.
    pub fn of(upper: &Path) -> io::Result<Self> {
        let tree = Tree::of_ours(&upper.canonicalize()?)?;
        let mut touched = Self::default();
        let mut left = vec![PathBuf::new()];
        while let Some(folder) = left.pop() {
            let opened = tree.folder(&folder)?;
            for name in opened.names()? {
                let path = folder.join(&name);
                let Some(found) = opened.stat(&name)? else {
                    continue;
                };
                let mode = found.st_mode & 0o7777;
                let touch = if is_whiteout(&opened, &name, &found)? {
                    Touch::Removed
                } else if kind(&found) != Kind::Folder || !is_within_reach(&path) {
                    Touch::Own
                } else if is_opaque(&opened, &name)? {
                    Touch::Opaque { mode }
                } else {
                    Touch::Folder { mode }
                };
                if touch.folder().is_some() {
                    left.push(path.clone());
                }
                touched.0.insert(path, touch);
                if touched.0.len() > MOST {
                    return Err(io::Error::other(format!(
                        "it changed more than {MOST} paths"
                    )));
                }
            }
        }
        Ok(touched)
    }

    /// The folders that are shown together with what lies below them.
    pub(crate) fn folders(&self) -> impl Iterator<Item = &Path> {
        let folders = self
            .0
            .iter()
            .filter(|(_, touch)| matches!(touch, Touch::Folder { .. }));
        folders.map(|(path, _)| path.as_path())
    }

    /// How many files were written, replaced or removed.
    pub fn files(&self) -> u64 {
        let is_file = |touch: &&Touch| touch.folder().is_none();
        self.0.values().filter(is_file).count() as u64
    }

    /// The first of their paths, [escaped](super::escaped): some, for a first look.
    pub fn first(&self) -> Vec<String> {
        let is_file = |(_, touch): &(_, &Touch)| touch.folder().is_none();
        let paths = self.0.iter().filter(is_file);
        let mut left = MOST_OF_PATHS;
        paths
            .take(MOST_PATHS)
            .map(|(path, _)| escaped(path))
            .take_while(|path| {
                let fits = path.len() <= left;
                left = left.saturating_sub(path.len());
                fits
            })
            .collect()
    }

    /// The paths that both changed; of two of which one lies below the other, the shorter. A folder that both made where
    /// there was nothing (`is_new`) is none.
    pub fn conflicts(&self, other: &Self, is_new: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for (path, mine) in &self.0 {
            let Some(theirs) = other.0.get(path) else {
                continue;
            };
            let differs = match (mine, theirs) {
                (Touch::Removed, Touch::Removed) => false,
                (Touch::Folder { mode }, Touch::Folder { mode: theirs }) => mode != theirs,
                _ if self.is_shared(other, path, is_new) => mine.folder() != theirs.folder(),
                _ => true,
            };
            if differs {
                paths.push(path.clone());
            }
        }
        paths.extend(self.hides_of(other, is_new));
        paths.extend(other.hides_of(self, is_new));
        paths.sort();
        // One path says it for all below it.
        let mut shortest: Vec<PathBuf> = Vec::new();
        for path in paths {
            if !shortest.last().is_some_and(|above| path.starts_with(above)) {
                shortest.push(path);
            }
        }
        shortest
    }

    /// The folders of this layer that would hide the other's files in the same new folders.
    pub fn shared_folders(&self, other: &Self, is_new: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let is_opaque = |(_, touch): &(&PathBuf, &Touch)| matches!(touch, Touch::Opaque { .. });
        self.0
            .iter()
            .filter(is_opaque)
            .filter(|(path, _)| self.is_shared(other, path, is_new))
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Whether both made a folder where there was nothing.
    fn is_shared(&self, other: &Self, path: &Path, is_new: &dyn Fn(&Path) -> bool) -> bool {
        let is_folder = |side: &Self| {
            side.0
                .get(path)
                .is_some_and(|touch| touch.folder().is_some())
        };
        is_folder(self) && is_folder(other) && is_new(path)
    }

    /// What this made or removed at a path below which the other touched something.
    fn hides_of(&self, other: &Self, is_new: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let hides = |above: &&Path| match self.0.get(*above) {
            None | Some(Touch::Folder { .. }) => false,
            Some(Touch::Opaque { .. }) => !self.is_shared(other, above, is_new),
            Some(Touch::Removed | Touch::Own) => true,
        };
        other
            .0
            .keys()
            .filter_map(|path| path.ancestors().skip(1).find(hides))
            .map(Path::to_owned)
            .collect()
    }
}

/// Has a folder of a layer, the `upper` of which this is, show what lies below it, too.
///
/// # Errors
/// If it cannot be changed.
pub fn unhide(upper: &Path, folder: &Path) -> io::Result<()> {
    let tree = Tree::of_ours(&upper.canonicalize()?)?;
    let opened = tree.folder(folder)?;
    match rustix::fs::removexattr(in_proc(opened.fd()), OPAQUE) {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// More than any project has; it bounds what a hostile step can make us hold.
const MOST: usize = 2_000_000;
/// So many paths are told at first, and so many bytes of them.
const MOST_PATHS: usize = 20;
const MOST_OF_PATHS: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(paths: &[(&str, Touch)]) -> Touched {
        let entries = paths.iter().map(|(path, touch)| (path.into(), *touch));
        Touched(entries.collect())
    }

    const FOLDER: Touch = Touch::Folder { mode: 0o755 };

    fn conflicts(mine: &[(&str, Touch)], theirs: &[(&str, Touch)]) -> Vec<String> {
        let (mine, theirs) = (layer(mine), layer(theirs));
        let is_new = |path: &Path| path.starts_with("new");
        let shown = |paths: Vec<PathBuf>| -> Vec<String> {
            paths
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        let found = shown(mine.conflicts(&theirs, &is_new));
        assert_eq!(
            found,
            shown(theirs.conflicts(&mine, &is_new)),
            "it is the same both ways"
        );
        found
    }

    #[test]
    fn files_beside_each_other_are_no_conflict() {
        let mine = [("a", FOLDER), ("a/one", Touch::Own)];
        let theirs = [("a", FOLDER), ("a/two", Touch::Own)];
        assert!(conflicts(&mine, &theirs).is_empty());
    }

    #[test]
    fn one_file_written_by_both_is_a_conflict() {
        let mine = [("a", FOLDER), ("a/one", Touch::Own)];
        assert_eq!(conflicts(&mine, &mine), ["a/one"]);
    }

    #[test]
    fn a_folder_removed_by_one_and_written_to_by_the_other_is_a_conflict() {
        let mine = [("a", Touch::Removed)];
        let theirs = [("a", FOLDER), ("a/two", Touch::Own)];
        assert_eq!(conflicts(&mine, &theirs), ["a"]);
    }

    #[test]
    fn what_both_removed_is_no_conflict() {
        let mine = [("a", Touch::Removed)];
        assert!(conflicts(&mine, &mine).is_empty());
    }

    #[test]
    fn a_folder_whose_permissions_one_changed_is_a_conflict() {
        let theirs = [("a", Touch::Folder { mode: 0o700 })];
        assert_eq!(conflicts(&[("a", FOLDER)], &theirs), ["a"]);
    }

    #[test]
    fn a_new_folder_that_both_made_is_shared_and_one_that_both_replaced_is_not() {
        let made = |folder, file| [(folder, Touch::Opaque { mode: 0o755 }), (file, Touch::Own)];
        let (mine, theirs) = (made("new", "new/one"), made("new", "new/two"));
        assert!(conflicts(&mine, &theirs).is_empty());
        let is_new = |_: &Path| true;
        let shared = layer(&mine).shared_folders(&layer(&theirs), &is_new);
        assert_eq!(shared, [PathBuf::from("new")]);
        let (mine, theirs) = (made("old", "old/one"), made("old", "old/two"));
        assert_eq!(conflicts(&mine, &theirs), ["old"]);
    }

    #[test]
    fn what_is_in_a_folder_that_a_step_closed_is_looked_through() {
        use std::os::unix::fs::PermissionsExt;
        let upper = tempfile::tempdir().unwrap();
        std::fs::create_dir(upper.path().join("out")).unwrap();
        std::fs::write(upper.path().join("out/file"), "").unwrap();
        for mode in [0o444, 0o111, 0] {
            let closed = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(upper.path().join("out"), closed).unwrap();
            let touched = Touched::of(upper.path()).unwrap();
            let expected = layer(&[("out", Touch::Folder { mode }), ("out/file", Touch::Own)]);
            assert_eq!(touched.0, expected.0);
            unhide(upper.path(), Path::new("out")).unwrap();
        }
    }

    #[test]
    fn files_are_counted_and_folders_are_not() {
        let touched = layer(&[("a", FOLDER), ("a/one", Touch::Own), ("b", Touch::Removed)]);
        assert_eq!(touched.files(), 2);
        assert_eq!(touched.first(), ["a/one", "b"]);
    }

    #[test]
    fn of_many_paths_or_long_ones_only_some_are_told() {
        let many: Vec<String> = (10..99).map(|number| number.to_string()).collect();
        let many: Vec<(&str, Touch)> = many
            .iter()
            .map(|name| (name.as_str(), Touch::Own))
            .collect();
        assert_eq!(layer(&many).first().len(), MOST_PATHS);
        let long = "x".repeat(MOST_OF_PATHS + 1);
        assert!(layer(&[(long.as_str(), Touch::Own)]).first().is_empty());
    }
}
