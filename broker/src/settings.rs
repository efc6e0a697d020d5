//! Where a broker keeps its state, where the owner's files are, and how durable a line of the log is.

use std::path::PathBuf;

/// What a broker is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the state. It is made if it is not there, for the owner only.
    pub state_dir: PathBuf,
    /// The folder of `secrets.toml` and `config.toml`. Neither has to exist.
    pub config_dir: PathBuf,
    /// How durable a line of the log is; if none is given, what `config.toml` says, else [`Durability::Process`].
    pub durability: Option<Durability>,
}

/// When a line of the audit log counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once the kernel has it: it survives the end of every process, not a power loss.
    Process,
    /// Once the disk has it.
    Disk,
}
