//! What of a shown place is covered, kept from being written, or kept where it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::child_files::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::error::Error;
use crate::layout::{Layout, relative};
use crate::plan::{IfMissing, Op};
use crate::weaken::Layer;

impl Layout {
    /// Covers a path with something empty that cannot be read.
    pub(crate) fn cover(&mut self, path: &Path, is_dir: bool) -> Result<(), Error> {
        if self.weaken.is_off(Layer::Hide) {
            return Ok(());
        }
        self.covered.push(path.to_owned());
        self.kept_back.push(path.to_owned());
        let from = if is_dir {
            c".sandbox/no-folder"
        } else {
            c".sandbox/no-file"
        };
        self.push(Op::ShowAgain {
            from: from.into(),
            at: relative(path)?,
            attributes: RDONLY | NOSUID | NODEV | NOEXEC,
            if_missing: IfMissing::Skip,
        });
        Ok(())
    }

    /// Makes each folder between `top`, which can be written, and one of these paths or a mask a place of its own, so that
    /// it cannot be renamed: what is covered is found by its path, and the next sandbox would look for it there.
    pub(crate) fn pin_above(
        &mut self,
        top: &Path,
        paths: impl Iterator<Item = PathBuf>,
    ) -> Result<(), Error> {
        if self.weaken.is_off(Layer::Hide) {
            return Ok(());
        }
        // From the top down, or a place would be covered by the one above it.
        let mut folders = BTreeSet::new();
        for path in paths.chain(self.masks.iter().cloned()) {
            let above = path.ancestors().skip(1);
            let within = above.take_while(|folder| *folder != top && folder.starts_with(top));
            folders.extend(within.map(Path::to_owned));
        }
        for folder in folders {
            let at = relative(&folder)?;
            self.push(Op::ShowAgain {
                from: at.clone(),
                at,
                attributes: NOSUID | NODEV,
                if_missing: IfMissing::Skip,
            });
        }
        Ok(())
    }

    /// Makes what stands at `path` read-only, wherever it is.
    pub(crate) fn protect(&mut self, path: &Path) -> Result<(), Error> {
        self.kept_back.push(path.to_owned());
        self.push(Op::ShowAgain {
            from: relative(path)?,
            at: relative(path)?,
            attributes: RDONLY | NOSUID | NODEV,
            if_missing: IfMissing::Skip,
        });
        Ok(())
    }

    /// Shows the configuration of a repository as it may be seen.
    pub(crate) fn git_config(&mut self, path: PathBuf, bytes: Vec<u8>) -> Result<(), Error> {
        self.file(&path, bytes)?;
        self.kept_back.push(path);
        Ok(())
    }

    /// Covers every masked path that lies in something shown. Call it last.
    pub(crate) fn cover_masks(&mut self) -> Result<(), Error> {
        for mask in self.masks.clone() {
            if self.is_shown(&mask) {
                self.cover(&mask, mask.is_dir())?;
            }
        }
        Ok(())
    }
}
