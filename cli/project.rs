//! Which project this is: its folder, its policy file, and the policy that comes of it.

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use policies::{Document, Origin, Policy, Sources};

use crate::failure::Failure;
use crate::packages;

/// A project and the policy that is in force for it.
///
/// Which project it is depends on where one is, never on which policy is asked for: approvals, the workspace and the
/// owner's `projects` are about the project.
#[derive(Debug)]
pub(crate) struct Project {
    /// The project's folder.
    pub(crate) folder: PathBuf,
    /// The policy file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The policy in force.
    pub(crate) policy: Arc<Policy>,
}

impl Project {
    /// Reads the policy asked for, or the nearest one; with neither, the policy that allows no network.
    pub(crate) fn open(asked: Option<&Path>) -> Result<Self, Failure> {
        let here = std::env::current_dir()
            .map_err(|error| Failure::ours("cannot tell which folder this is").because(error))?;
        let own = match (nearest(&here), asked) {
            // What cannot be looked into is passed over only for a policy that was named.
            (Err(_), Some(_)) => None,
            (found, _) => found?,
        };
        let folder = own.as_deref().and_then(Path::parent).unwrap_or(&here);
        match asked.map(|file| here.join(file)).or_else(|| own.clone()) {
            Some(file) => Self::open_in(folder, &file),
            None => Ok(Self {
                folder: here,
                file: None,
                policy: Arc::new(Policy::default_for_no_file()),
            }),
        }
    }

    /// Reads a policy for the project in `folder`.
    pub(crate) fn open_in(folder: &Path, file: &Path) -> Result<Self, Failure> {
        let folder = folder.canonicalize().map_err(|error| {
            Failure::bad_policy(format!(
                "the project folder `{}` cannot be used",
                folder.display()
            ))
            .because(error)
        })?;
        let file = file.canonicalize().map_err(|error| {
            Failure::bad_policy(format!("cannot read the policy file `{}`", file.display()))
                .because(error)
                .hint("name a file that is there, or write one with `valetkey policy init`")
        })?;
        let policy = Arc::new(load(&file, &folder)?);
        Ok(Self {
            folder,
            file: Some(file),
            policy,
        })
    }

    /// As [`Project::open`], but a policy file there must be.
    pub(crate) fn open_with_file(asked: Option<&Path>) -> Result<Self, Failure> {
        let project = Self::open(asked)?;
        if project.file.is_none() {
            return Err(
                Failure::bad_policy(format!("no {FILE_NAME} in this folder or above it"))
                    .hint("write one with `valetkey policy init`, or name one with --policy"),
            );
        }
        Ok(project)
    }

    /// The policy files of the project, which no run of it may change: the one in force and the project's own.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let own = self.folder.join(FILE_NAME);
        let is_file = fs::symlink_metadata(&own).is_ok_and(|found| found.is_file());
        let mut files: Vec<PathBuf> = self.file.iter().cloned().collect();
        if is_file && self.file.as_ref() != Some(&own) {
            files.push(own);
        }
        files
    }
}

/// The nearest policy file, from `here` upwards.
fn nearest(here: &Path) -> Result<Option<PathBuf>, Failure> {
    for folder in here.ancestors() {
        let file = folder.join(FILE_NAME);
        match fs::symlink_metadata(&file) {
            Ok(_) => return Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // A folder that cannot be looked into might hold a stricter policy; going on would ignore it.
            Err(error) => {
                return Err(Failure::bad_policy(format!(
                    "cannot tell whether there is a policy at `{}`",
                    file.display()
                ))
                .because(error)
                .hint("name the policy with --policy"));
            }
        }
    }
    Ok(None)
}

fn load(file: &Path, project: &Path) -> Result<Policy, Failure> {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(FILE_NAME);
    let text = read(file).map_err(Failure::bad_policy)?;
    load_text(name, text, file, project)
}

/// Checks the text of a policy before it is written to `file`.
pub(crate) fn check_text(text: &str, file: &Path, project: &Path) -> Result<(), Failure> {
    load_text(FILE_NAME, text.to_owned(), file, project).map(|_| ())
}

fn load_text(name: &str, text: String, file: &Path, project: &Path) -> Result<Policy, Failure> {
    let root = Document {
        name: name.to_owned(),
        text,
    };
    let mut beside = FilesBeside {
        folder: file.parent().unwrap_or(Path::new("/")),
        project,
    };
    policies::load(root, &mut beside)
        .map_err(|found| Failure::mistakes(file.display(), "policy-invalid", &found))
}

/// The files that a policy may extend: those in its own folder, reached without symbolic links.
struct FilesBeside<'a> {
    folder: &'a Path,
    project: &'a Path,
}

impl Sources for FilesBeside<'_> {
    fn document(&mut self, from: &str, path: &str) -> Result<Document, String> {
        let relative = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        let mut at = self.folder.to_owned();
        for component in relative.components() {
            match component {
                Component::Normal(name) => at.push(name),
                Component::CurDir => continue,
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    return Err(format!("`{path}` is outside the policy's folder"));
                }
            }
            let is_link = fs::symlink_metadata(&at)
                .map_err(|error| format!("cannot read `{path}`: {error}"))?
                .is_symlink();
            if is_link {
                return Err(format!("`{path}` leads through a symbolic link"));
            }
        }
        Ok(Document {
            name: relative.to_string_lossy().into_owned(),
            text: read(&at)?,
        })
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        packages::origins(preset, &[self.folder, self.project])
    }
}

/// Reads a policy file, once and not without end.
fn read(file: &Path) -> Result<String, String> {
    let cannot =
        |error: &dyn std::fmt::Display| format!("cannot read `{}`: {error}", file.display());
    let opened = fs::File::open(file).map_err(|error| cannot(&error))?;
    if !opened.metadata().map_err(|error| cannot(&error))?.is_file() {
        return Err(cannot(&"it is not a regular file"));
    }
    let mut text = String::new();
    opened
        .take(MAX_FILE + 1)
        .read_to_string(&mut text)
        .map_err(|error| cannot(&error))?;
    if text.len() as u64 > MAX_FILE {
        return Err(cannot(&"it is larger than 16 MiB"));
    }
    Ok(text)
}

/// What a policy file is called.
pub(crate) const FILE_NAME: &str = "valetkey.toml";

// 100,000 hosts take about 5 MiB.
const MAX_FILE: u64 = 16 * 1024 * 1024;
