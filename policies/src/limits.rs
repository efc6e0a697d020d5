//! How much a step may use of the machine, and a run of the network.

use std::time::Duration;

use crate::amount::Amount;
use crate::grammar;
use crate::reader::Section;
use crate::settings::{Placed, Settings};

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

impl Limits {
    /// The names of the limits, as `[limits]` has them.
    pub const KEYS: &[&str] = grammar::LIMITS;

    /// These limits, lowered to what a table says by the same names. More than these is refused.
    #[must_use]
    pub fn lowered_by(&self, section: &Section<'_>) -> Self {
        let mut lower = Settings::default();
        for amount in Amount::LIMITS {
            let Some(item) = section.item(amount.key()) else {
                continue;
            };
            let Some(value) = amount.read(&item) else {
                continue;
            };
            let most = self.amount(amount);
            if let Some(most) = most.filter(|most| *most < value) {
                item.refuse(
                    format!(
                        "`{}` is {}, which is more than the policy's limit of {}",
                        amount.key(),
                        amount.show(value),
                        amount.show(most)
                    ),
                    Some(
                        "a step can only have less; the owner sets `[limits]` in valetkey.toml"
                            .into(),
                    ),
                );
            }
            let placed = Placed {
                value,
                source: section.source().clone(),
                span: item.node().span.clone(),
            };
            lower.amounts.insert(amount, placed);
        }
        let lower = lower.limits();
        Self {
            memory: lower.memory.or(self.memory),
            cpus: lower.cpus.or(self.cpus),
            cpu_time: lower.cpu_time.or(self.cpu_time),
            wall: lower.wall.or(self.wall),
            processes: lower.processes.or(self.processes),
            disk: lower.disk.or(self.disk),
            output: lower.output.or(self.output),
            file_size: lower.file_size.or(self.file_size),
            open_files: lower.open_files.or(self.open_files),
        }
    }

    /// One of them, as the amount is counted.
    fn amount(&self, amount: Amount) -> Option<u64> {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match amount {
            Amount::Memory => self.memory,
            Amount::Cpus => self.cpus.map(|cpus| (cpus * 1000.0).round() as u64),
            Amount::CpuTime => self.cpu_time.map(milliseconds),
            Amount::Wall => self.wall.map(milliseconds),
            Amount::Processes => self.processes,
            Amount::Disk => self.disk,
            Amount::Output => self.output,
            Amount::FileSize => self.file_size,
            Amount::OpenFiles => self.open_files,
            Amount::Ttl | Amount::Connections => None,
        }
    }
}

/// What a whole run may spend. `None`: the policy says nothing, and the default of whoever enforces it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// How long the run token lives.
    pub ttl: Option<Duration>,
    /// Connections at once.
    pub connections: Option<u32>,
}
