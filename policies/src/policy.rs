//! What a loaded policy holds.

use crate::diagnostic::Diagnostic;
use crate::digest::Digest;
use crate::index::HostIndex;
use crate::limits::{Budget, Limits};
use crate::rule::Rule;
use crate::sandbox::{NetworkMode, Sandbox, Workspace, WorkspaceMode};

/// An effective policy: read, checked, with its bases and presets, ready to decide.
#[derive(Debug)]
pub struct Policy {
    /// In the order in which they are shown; nothing else depends on it.
    pub(crate) rules: Vec<Rule>,
    /// The allows. Each layer alone has to allow a request; the first is the policy's own, the others are locked
    /// bases. None: nothing is allowed.
    pub(crate) layers: Vec<HostIndex>,
    pub(crate) denies: HostIndex,
    pub(crate) digest: Digest,
    pub(crate) sandbox: Sandbox,
    pub(crate) limits: Limits,
    pub(crate) budget: Budget,
}

impl Policy {
    /// What holds where there is no policy file: an overlay of the workspace, no network, default limits.
    pub fn default_for_no_file() -> Self {
        Self {
            rules: Vec::new(),
            layers: Vec::new(),
            denies: HostIndex::default(),
            digest: Digest::of(b""),
            sandbox: Sandbox {
                workspace: Workspace {
                    path: ".".into(),
                    mode: WorkspaceMode::Overlay,
                },
                read: Vec::new(),
                hide: Vec::new(),
                network: NetworkMode::None,
                env: Default::default(),
            },
            limits: Limits {
                memory: None,
                cpus: None,
                cpu_time: None,
                wall: None,
                processes: None,
                disk: None,
                output: None,
                file_size: None,
                open_files: None,
            },
            budget: Budget {
                ttl: None,
                connections: None,
            },
        }
    }

    /// Reads a policy given as JSON of the same model. It cannot extend files or package presets.
    pub fn from_json(_text: &str) -> Result<Self, Vec<Diagnostic>> {
        Err(vec![Diagnostic::of_file("json", "not supported yet")])
    }

    /// The hash of the canonical effective policy; formatting, order and file names do not change it.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Whether the owner has to approve it: it asks for a host, a secret, an extra path or more than the defaults.
    pub fn needs_approval(&self) -> bool {
        true
    }

    /// The names of the secrets that it uses, each once, sorted.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }

    /// How the sandbox looks.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// What bounds each step.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the whole run may spend.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The effective policy as text in the grammar of the file, each rule with the place it came from.
    pub fn effective_toml(&self) -> String {
        String::new()
    }
}
