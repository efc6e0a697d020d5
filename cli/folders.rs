//! Which folders this installation uses.

use std::env;
use std::path::{Path, PathBuf};

use crate::args;
use crate::failure::Failure;

/// The two folders of an installation, as absolute paths.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// The owner's: `secrets.toml`, `config.toml`.
    pub(crate) config: PathBuf,
    /// Ours: runs, approvals, the audit log.
    pub(crate) state: PathBuf,
}

impl Folders {
    /// Takes what was asked for, else what the XDG base directory specification says.
    pub(crate) fn locate(asked: &args::Folders) -> Result<Self, Failure> {
        let config = place(asked.config_dir.as_deref(), "XDG_CONFIG_HOME", ".config")?;
        let state = place(asked.state_dir.as_deref(), "XDG_STATE_HOME", ".local/state")?;
        Ok(Self { config, state })
    }

    /// Where the control API listens unless told otherwise.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.state.join("control.sock")
    }

    /// Where a run keeps what belongs to it.
    pub(crate) fn run(&self, run: &sdk::RunId) -> PathBuf {
        self.state.join("runs").join(run.as_str())
    }
}

fn place(asked: Option<&Path>, variable: &str, below_home: &str) -> Result<PathBuf, Failure> {
    if let Some(folder) = asked {
        return std::path::absolute(folder).map_err(|error| {
            Failure::ours(format!("cannot use the folder `{}`", folder.display())).because(error)
        });
    }
    // The specification says to ignore a relative path here.
    let base = env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    match base {
        Some(base) => Ok(base.join("valetkey")),
        None => Ok(home()?.join(below_home).join("valetkey")),
    }
}

/// The owner's home.
pub(crate) fn home() -> Result<PathBuf, Failure> {
    env::home_dir()
        .filter(|path| path.is_absolute())
        .ok_or_else(|| {
            Failure::ours("there is no home folder to keep settings in")
                .hint("set HOME, or give --config-dir and --state-dir")
        })
}
