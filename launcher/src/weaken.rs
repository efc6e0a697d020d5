//! Which layers of the sandbox a test has switched off, to see what they stop.
//!
//! Without the feature `weaken` the value is empty and nothing can be switched off. The feature is for tests alone: a
//! build with optimisations for use refuses it.

use serde::{Deserialize, Serialize};

#[cfg(all(feature = "weaken", not(debug_assertions)))]
compile_error!("a sandbox with layers switched off is for tests, not for use");

/// Layers that are switched off. There is no way to switch one off outside of the tests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Hash, PartialEq, Eq, Serialize)]
pub struct Weaken {
    #[cfg(feature = "weaken")]
    off: u64,
}

impl Weaken {
    /// A sandbox without these layers.
    #[cfg(feature = "weaken")]
    pub fn without(layers: &[Layer]) -> Self {
        let off = layers.iter().fold(0, |off, layer| off | layer.bit());
        // Found in the binary by the test that looks whether what is shipped has the switch.
        std::hint::black_box(MARK);
        Self { off }
    }

    /// Whether a layer is switched off.
    #[cfg(feature = "weaken")]
    pub(crate) fn is_off(self, layer: Layer) -> bool {
        self.off & layer.bit() != 0
    }

    /// Whether a layer is switched off: never.
    #[cfg(not(feature = "weaken"))]
    pub(crate) const fn is_off(self, _layer: Layer) -> bool {
        false
    }
}

#[cfg(feature = "weaken")]
const MARK: &str = "valetkey-launcher: layers can be switched off";

/// One layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is named after what it is; the tests' table says what it stops"
)]
pub enum Layer {
    // The system call filter: all of it, then by its parts.
    Calls,
    CallsOtherAbis,
    CallsUnknown,
    CallsTerminal,
    CallsNamespaces,
    CallsMounts,
    CallsHandles,
    CallsIoUring,
    CallsKeys,
    CallsOthers,
    CallsKernel,
    CallsMachine,
    CallsSockets,
    CallsPersonality,
    Landlock,
    // Rights.
    Capabilities,
    NoNewPrivileges,
    // Processes.
    Descriptors,
    Environment,
    Undumpable,
    ProcessNamespace,
    Session,
    SupervisorsDeath,
    CoreLimit,
    // The machine.
    HostName,
    IpcNamespace,
    NestedUsers,
    // Files.
    View,
    Devices,
    ReadOnly,
    MountFlags,
    ProcCovers,
    Hide,
    Masks,
    // No layer of protection: without it the workspace is copied, as where the kernel has no overlay.
    Overlay,
    // Network.
    NetworkNamespace,
    Capture,
}

#[cfg(feature = "weaken")]
impl Layer {
    fn bit(self) -> u64 {
        1 << self as u32
    }
}
