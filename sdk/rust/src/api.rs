//! What the control API takes and gives, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::RunId;
use crate::report::Step;

/// Asks for a run: `POST /v1/runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateRun {
    /// The path of the policy file, on the machine of the broker.
    pub policy: String,
    /// The project's folder on that machine, which approvals and the owner's `projects` are about; without it, the
    /// folder of the policy file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How long the token lives at most, such as `"15m"`. The policy's own `ttl` is never exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<String>,
    /// The digest that the caller expects the policy to have. It approves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<String>,
    /// The only step that the token is to be good for. It has what the policy leaves to that step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A run that was just created. The token is shown this once.
#[derive(Clone, Serialize, Deserialize)]
pub struct CreatedRun {
    /// The run.
    pub run: RunId,
    /// Its token.
    pub token: String,
    /// The alias of the token, for programs that check a key's shape or length.
    pub alias: String,
    /// The URL of the forward proxy, with the token in it; none where only a Unix socket listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The URL of the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The certificate authority of the run, in PEM; it signs nothing outside this run.
    pub ca_pem: String,
    /// A file on the broker's machine with the system's roots and the run's authority, which the environment names.
    pub ca_bundle: String,
    /// The environment to give the sandbox.
    pub env: BTreeMap<String, String>,
    /// When the token expires (RFC 3339).
    pub expires: String,
}

/// What is known of a run: `GET /v1/runs/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// `active` or `ended`.
    pub state: String,
    /// The digest of its policy.
    pub policy: String,
    /// The project folder.
    pub project: String,
    /// When it was created (RFC 3339).
    pub created: String,
    /// When its token expires (RFC 3339).
    pub expires: String,
    /// When it ended (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// Asks for a step of a run, now: `POST /v1/runs/{id}/steps`. What it says is what an entry of a steps file says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStep {
    /// The step's name, which decides what the policy leaves to it.
    pub name: String,
    /// The command and its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// A line of shell, in the place of `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Variables on top of the policy's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How often it is tried again at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// What it is tried again for; every failure if nothing is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retry_on: Vec<String>,
    /// How long to wait before the second attempt, such as `"2s"`; twice as long before each further one, a minute at
    /// most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_wait: Option<String>,
    /// Drop what it changed if it fails; without this, the next step sees it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rollback_failed: bool,
    /// Time on the clock, such as `"2m"`. No limit may be above the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<String>,
    /// Processor time of the whole process tree, such as `"60s"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<String>,
    /// Processors' worth of time per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Memory, such as `"512MiB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Bytes written to the workspace and `/tmp`, such as `"1GiB"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Bytes in one file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size: Option<String>,
    /// Bytes of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Open files of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// A step that was asked for: `GET /v1/runs/{id}/steps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Its name.
    pub name: String,
    /// Its place, from 1.
    pub index: u32,
    /// `waiting`, `running` or `ended`.
    pub state: String,
    /// What became of it, once it has ended; none if nothing of it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Step>,
}

/// What is known of a secret: its name and bindings, never its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretInfo {
    /// The owner's name for it.
    pub name: String,
    /// The kind of source it comes from.
    pub source: String,
    /// The hosts it may be sent to.
    pub hosts: Vec<String>,
    /// The provider of the catalogue it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// What went wrong with a call (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A short sentence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, where, and what to do.
    pub detail: String,
}
