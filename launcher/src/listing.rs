//! What a sandbox would show of the host's files and what not, told before it starts, from what is prepared for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::gitindex;
use crate::glob::Glob;
use crate::hide;
use crate::layout::Access;
use crate::spec::{View, WorkspaceMode};

/// What a sandbox shows of the host's files.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Folders and files of the host that are shown. Everything else is not there.
    pub shown: Vec<ShownPlace>,
    /// What is in them and reads as nothing.
    pub hidden: Vec<HiddenFile>,
    workspace: Option<PathBuf>,
}

/// A folder or file of the host that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownPlace {
    /// Where it is, inside and outside.
    pub path: PathBuf,
    /// Why it is shown: "workspace", "tool chain", …
    pub what: &'static str,
    /// What can be done with it: "readable", "writable", …
    pub access: &'static str,
}

/// A file or folder that is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenFile {
    /// Where it is.
    pub path: PathBuf,
    /// What hides it: a pattern of the policy, or of ours.
    pub by: String,
}

impl Listing {
    /// From what a layout shows and covers.
    pub(crate) fn of(
        listed: &[(&'static str, PathBuf, Access)],
        covered: &[PathBuf],
        view: &View,
    ) -> Self {
        let mut shown: Vec<ShownPlace> = listed
            .iter()
            .map(|(what, path, access)| ShownPlace {
                path: path.clone(),
                what,
                access: match access {
                    Access::ReadOnly => "readable",
                    Access::Writable => "readable and writable",
                    Access::Device => "a device",
                },
            })
            .collect();
        let workspace = view.workspace.as_ref();
        if let Some(workspace) = workspace
            && matches!(workspace.mode, WorkspaceMode::Overlay { .. })
        {
            shown.push(ShownPlace {
                path: workspace.host.clone(),
                what: crate::workspace::WHAT,
                access: "readable, writes captured",
            });
        }
        let globs: Vec<(&str, Glob)> = workspace
            .map(|workspace| workspace.hide.as_slice())
            .unwrap_or_default()
            .iter()
            .filter_map(|pattern| Some((pattern.as_str(), Glob::parse(pattern).ok()?)))
            .collect();
        let masks: BTreeSet<PathBuf> = view
            .mask
            .iter()
            .filter_map(|mask| mask.canonicalize().ok())
            .collect();
        let host = workspace.map(|workspace| workspace.host.clone());
        let by = |path: &Path| {
            let below = host
                .as_deref()
                .and_then(|host| path.strip_prefix(host).ok());
            let of_policy = below.and_then(|below| {
                let (pattern, _) = globs.iter().find(|(_, glob)| glob.matches(below))?;
                Some(format!("`sandbox.hide`: {pattern}"))
            });
            if let Some(pattern) = of_policy {
                return pattern;
            }
            if masks.contains(path) {
                return "the owner's secrets, settings and state".to_owned();
            }
            match hide::pattern(path) {
                Some(pattern) => pattern.to_owned(),
                None => "a socket or FIFO, closed to us, or what a hidden link leads to".to_owned(),
            }
        };
        let hidden: BTreeMap<PathBuf, String> = covered
            .iter()
            .map(|path| (path.clone(), by(path)))
            .collect();
        Self {
            shown,
            hidden: hidden
                .into_iter()
                .map(|(path, by)| HiddenFile { path, by })
                .collect(),
            workspace: host,
        }
    }

    /// Whether something of the host is there, and can be read as far as its permissions go.
    pub fn is_visible(&self, path: &Path) -> bool {
        let is_hidden = self
            .hidden
            .iter()
            .any(|hidden| path.starts_with(&hidden.path));
        !is_hidden && self.shown.iter().any(|shown| path.starts_with(&shown.path))
    }

    /// Hidden files that git keeps: their contents can be read from the repository all the same.
    pub fn tracked_by_git(&self) -> Vec<PathBuf> {
        let mut indexes: BTreeMap<PathBuf, BTreeSet<PathBuf>> = BTreeMap::new();
        let mut tracked = Vec::new();
        for hidden in &self.hidden {
            let repository = hidden.path.ancestors().skip(1).find(|folder| {
                self.is_visible(&folder.join(".git")) && folder.join(".git/index").is_file()
            });
            let Some(repository) = repository else {
                continue;
            };
            let kept = indexes
                .entry(repository.to_owned())
                .or_insert_with(|| gitindex::paths(&repository.join(".git/index")));
            let Ok(below) = hidden.path.strip_prefix(repository) else {
                continue;
            };
            let inside = kept.range(below.to_owned()..);
            tracked.extend(
                inside
                    .take_while(|path| path.starts_with(below))
                    .map(|path| repository.join(path)),
            );
        }
        tracked
    }

    /// Hidden files that have another name which is shown, each with that name.
    pub fn linked_elsewhere(&self) -> Vec<(PathBuf, PathBuf)> {
        let mut wanted: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
        for hidden in &self.hidden {
            let mut left = vec![hidden.path.clone()];
            while let Some(path) = left.pop() {
                let Ok(found) = path.symlink_metadata() else {
                    continue;
                };
                if found.is_dir() {
                    left.extend(entries(&path));
                } else if found.nlink() > 1 {
                    wanted.insert((found.dev(), found.ino()), path);
                }
            }
        }
        let mut linked = Vec::new();
        if wanted.is_empty() {
            return linked;
        }
        let is_ours = |shown: &&ShownPlace| {
            shown.what == "path to read" || Some(&shown.path) == self.workspace.as_ref()
        };
        let tops = self.shown.iter().filter(is_ours);
        let mut left: Vec<PathBuf> = tops.map(|shown| shown.path.clone()).collect();
        let mut looked_at = 0_usize;
        while let Some(path) = left.pop() {
            looked_at += 1;
            if looked_at > MOST || !self.is_visible(&path) {
                continue;
            }
            let Ok(found) = path.symlink_metadata() else {
                continue;
            };
            if found.is_dir() {
                left.extend(entries(&path));
            } else if let Some(hidden) = wanted.get(&(found.dev(), found.ino())) {
                linked.push((hidden.clone(), path));
            }
        }
        linked.sort();
        linked
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    // What is nowhere else but in the store of objects of git has no name that anybody reads.
    let is_store = folder.file_name() == Some(OsStr::new("objects"))
        && folder.parent().is_some_and(|above| above.ends_with(".git"));
    let entries = match fs::read_dir(folder) {
        Ok(entries) if !is_store => entries,
        Ok(_) | Err(_) => return Vec::new(),
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

const MOST: usize = 4_000_000;
