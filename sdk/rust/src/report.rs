//! What a run was, step by step, once it has ended.

use serde::{Deserialize, Serialize};

use crate::{Code, RunId};

/// What bounds a step on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Bytes of memory of the whole process tree.
    Memory,
    /// Processors' worth of time per second.
    Cpus,
    /// Processor time of the whole process tree.
    CpuTime,
    /// Time on the clock.
    Wall,
    /// Bytes written to the workspace and `/tmp`.
    Disk,
    /// Bytes in one file.
    FileSize,
    /// Processes and threads.
    Processes,
    /// Bytes on standard output and standard error together.
    Output,
    /// Open files of one process.
    OpenFiles,
}

impl Limit {
    /// The limit's name in a policy, an outcome and a report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "cpus",
            Self::CpuTime => "cpu_time",
            Self::Wall => "wall",
            Self::Disk => "disk",
            Self::FileSize => "file_size",
            Self::Processes => "processes",
            Self::Output => "output",
            Self::OpenFiles => "open_files",
        }
    }
}

/// A limit that was reached: bytes, milliseconds, or a count, as the limit has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    /// Which limit.
    pub which: Limit,
    /// What the limit was.
    pub value: u64,
    /// What was used when it was reached, as far as it could be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It exited with 0.
    Passed,
    /// It did not.
    Failed(Failure),
    /// A step before it failed.
    NotReached,
}

/// What made a step fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// It exited with this code.
    Exit(u8),
    /// This signal ended it.
    Signal(i32),
    /// This limit ended it.
    Limit(LimitHit),
    /// The command was not found.
    NotFound,
    /// The command is there but cannot be executed.
    NotExecutable,
    /// The sandbox could not be built as declared; nothing ran.
    SetupFailed(String),
    /// It ended well, but changed what a step beside it had changed, too.
    Conflict(Conflict),
}

/// Paths of the workspace that two steps changed of which neither needs the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The other step, whose changes are kept.
    pub with: String,
    /// The paths, at most a hundred of them.
    pub paths: Vec<String>,
}

/// The whole answer to "what happened in this run".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The run.
    pub run: RunId,
    /// The digest of its policy.
    pub policy: String,
    /// `active` or `ended`.
    pub state: String,
    /// The first failed step's outcome, or passed.
    pub outcome: Outcome,
    /// Each step.
    pub steps: Vec<Step>,
    /// What was reached, by host.
    pub reached: Vec<Reached>,
    /// What was refused, by host and code.
    pub denied: Vec<Denied>,
    /// What was allowed and did not succeed, by host and code.
    pub failed: Vec<Denied>,
    /// The earlier run that this one went on with: steps that passed there are told as they were told there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed: Option<RunId>,
    /// The first step that did not pass: from there a run can go on with this one (`--resume`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<String>,
    /// How many paths of the workspace it left otherwise than they were, where that is kept apart and could be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// The signal by which its owner asked it to end (2: Ctrl-C, 15: `kill`, 1: a closed terminal), if that was before
    /// its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<i32>,
    /// What its sandbox did not keep apart from the machine, a sentence each. Nothing where it had namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_isolated: Vec<String>,
}

/// Paths of a workspace that are otherwise than before the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// New ones.
    pub added: u64,
    /// Changed ones.
    pub changed: u64,
    /// Removed ones.
    pub deleted: u64,
}

/// One command of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Its place, from 1.
    pub index: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Limits it reached, whether or not they ended it.
    pub limits_hit: Vec<LimitHit>,
    /// How often it was started.
    pub attempts: u32,
    /// When it was started (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Milliseconds on the clock.
    pub wall_ms: u64,
    /// Milliseconds of processor time of the process tree, where it could be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The most bytes of memory in use at once, where it could be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<u64>,
    /// The end of its standard output.
    pub stdout: Tail,
    /// The end of its standard error.
    pub stderr: Tail,
    /// What it reached.
    pub reached: Vec<Reached>,
    /// What it was refused, by host and code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denied>,
    /// What it was allowed and did not succeed, by host and code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Denied>,
    /// How many files of the workspace it wrote, replaced or removed, where its changes are kept apart and could be
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_changed: Option<u64>,
    /// The first of their paths, as `valetkey changes` writes paths: at most 20, and 4 KiB of text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_changed: Vec<String>,
    /// Whether its changes were dropped because it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
    /// The attempts before the last, whose changes were dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retried: Vec<Retried>,
}

/// An attempt of a step that was followed by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retried {
    /// How it ended.
    pub outcome: Outcome,
    /// What of `retry_on` was the reason to try again.
    pub because: String,
    /// Milliseconds on the clock.
    pub wall_ms: u64,
    /// Milliseconds that were waited after it, before the next began.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub wait_ms: u64,
    /// The end of its standard error.
    pub stderr: Tail,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_nothing(amount: &u64) -> bool {
    *amount == 0
}

/// The last part of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The text, with bytes that are not UTF-8 replaced.
    pub text: String,
    /// Whether something came before it.
    pub truncated: bool,
    /// All bytes of the stream.
    pub bytes: u64,
}

impl Tail {
    /// Keeps no more than the last `most` bytes.
    pub fn shorten(&mut self, most: usize) {
        let mut cut = self.text.len().saturating_sub(most);
        while !self.text.is_char_boundary(cut) {
            cut += 1;
        }
        if cut > 0 {
            self.text.drain(..cut);
            self.text.shrink_to_fit();
            self.truncated = true;
        }
    }
}

/// What was reached at one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The host.
    pub host: String,
    /// Requests that were let through.
    pub requests: u64,
    /// Requests that were refused.
    pub denied: u64,
    /// Bytes of body sent there.
    pub bytes_in: u64,
    /// Bytes of body received.
    pub bytes_out: u64,
    /// The secrets that were put in, by the owner's names.
    pub secrets: Vec<String>,
}

/// What was refused, at one host for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// The host, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The reason.
    pub code: Code,
    /// How often.
    pub times: u64,
}
