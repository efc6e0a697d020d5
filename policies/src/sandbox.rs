//! How the sandbox of a run looks.

use std::collections::BTreeMap;

/// What the launcher builds around a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The project's files.
    pub workspace: Workspace,
    /// Paths of the machine that are shown read-only, on top of the system's own.
    pub read: Vec<String>,
    /// Patterns of files in the workspace that are hidden, on top of the launcher's defaults.
    pub hide: Vec<String>,
    /// Whether there is a way out at all.
    pub network: NetworkMode,
    /// Variables that are set inside.
    pub env: BTreeMap<String, String>,
}

/// How the project's folder appears inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The folder, relative to the project's.
    pub path: String,
    /// What may be done with it.
    pub mode: WorkspaceMode,
}

/// What a run may do with the workspace, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkspaceMode {
    /// It is not there.
    None,
    /// It can be read.
    ReadOnly,
    /// It can be changed; the changes are captured and the owner decides about them.
    Overlay,
    /// It can be changed in place.
    ReadWrite,
}

/// What network a run has, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkMode {
    /// None at all.
    None,
    /// Only the proxy.
    ProxyOnly,
}

impl WorkspaceMode {
    /// Every mode, the least first.
    pub const ALL: [Self; 4] = [Self::None, Self::ReadOnly, Self::Overlay, Self::ReadWrite];

    /// The mode as the policy file writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadOnly => "read-only",
            Self::Overlay => "overlay",
            Self::ReadWrite => "read-write",
        }
    }
}

impl NetworkMode {
    /// The mode as the policy file writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ProxyOnly => "proxy",
        }
    }
}
