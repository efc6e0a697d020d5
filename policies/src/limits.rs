//! How much a step may use of the machine, and a run of the network.

use std::time::Duration;

/// What bounds one step on the machine. `None` means that the policy sets no bound; a loaded policy has the
/// documented default of `defaults.toml` in every field that it does not set.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of memory, of the whole process tree.
    pub memory: Option<u64>,
    /// Processors' worth of time per second.
    pub cpus: Option<f64>,
    /// Processor time of the whole process tree.
    pub cpu_time: Option<Duration>,
    /// Time on the wall.
    pub wall: Option<Duration>,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Bytes written to the workspace and to temporary files.
    pub disk: Option<u64>,
    /// Bytes on stdout and stderr together.
    pub output: Option<u64>,
    /// Bytes of any one file.
    pub file_size: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
}

/// What a whole run may spend. `None`: the policy says nothing, and the default of whoever enforces it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How long the run token lives.
    pub ttl: Option<Duration>,
    /// Connections at once.
    pub connections: Option<u32>,
}
