//! Which project this is: its folder, its policy file, and the policy that comes of it.

use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use policies::{Document, Origin, Policy, Sources};

use crate::failure::Failure;
use crate::{output, packages};

/// A project and its policy.
#[derive(Debug)]
pub(crate) struct Project {
    /// The folder the policy is for.
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
        let file = match asked {
            Some(file) => Some(here.join(file)),
            None => nearest(&here)?,
        };
        let Some(file) = file else {
            return Ok(Self {
                folder: here,
                file: None,
                policy: Arc::new(Policy::default_for_no_file()),
            });
        };
        let file = file.canonicalize().map_err(|error| {
            Failure::bad_policy(format!("cannot read the policy file `{}`", file.display()))
                .because(error)
                .hint("name a file that is there, or write one with `valetkey policy init`")
        })?;
        let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
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

fn load(file: &Path, folder: &Path) -> Result<Policy, Failure> {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or(FILE_NAME);
    let text = read(file).map_err(Failure::bad_policy)?;
    let root = Document {
        name: name.to_owned(),
        text,
    };
    policies::load(root, &mut FilesBeside { folder }).map_err(|diagnostics| {
        for diagnostic in &diagnostics {
            output::say(diagnostic);
        }
        Failure::bad_policy(format!(
            "`{}` has {}",
            file.display(),
            output::count(diagnostics.len() as u64, "mistake")
        ))
    })
}

/// The files that a policy may extend: those in its own folder, reached without symbolic links.
struct FilesBeside<'a> {
    folder: &'a Path,
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
        packages::origins(preset, self.folder)
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
