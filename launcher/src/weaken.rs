//! Which layers of the sandbox a test has switched off, to see what they stop.
//!
//! Without the feature `weaken` the value is empty and nothing can be switched off. The feature is for tests alone: a
//! build with optimisations for use refuses it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::spec::Spec;

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

    /// What is asked for, without the limits that are switched off.
    #[cfg(feature = "weaken")]
    pub(crate) fn limited(self, spec: &Spec) -> Cow<'_, Spec> {
        let mut weaker = spec.clone();
        let limits = &mut weaker.limits;
        let take = |layer, is_off: &mut dyn FnMut()| {
            if self.is_off(layer) {
                is_off();
            }
        };
        take(Layer::LimitMemory, &mut || limits.memory = None);
        take(Layer::LimitProcesses, &mut || limits.processes = None);
        take(Layer::LimitCpuTime, &mut || limits.cpu_time = None);
        take(Layer::LimitWall, &mut || limits.wall = None);
        take(Layer::LimitOutput, &mut || limits.output = None);
        take(Layer::LimitDisk, &mut || limits.disk = None);
        take(Layer::LimitFileSize, &mut || limits.file_size = None);
        take(Layer::LimitOpenFiles, &mut || limits.open_files = None);
        Cow::Owned(weaker)
    }

    /// What is asked for, with all its limits.
    #[cfg(not(feature = "weaken"))]
    pub(crate) const fn limited(self, spec: &Spec) -> Cow<'_, Spec> {
        Cow::Borrowed(spec)
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
#[cfg_attr(
    feature = "weaken",
    expect(
        missing_docs,
        reason = "each is named after what it is; the tests' table says what it stops"
    )
)]
#[cfg_attr(
    not(feature = "weaken"),
    expect(
        unreachable_pub,
        dead_code,
        reason = "only the tests name layers from outside, and some layers nobody else"
    )
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
    // Paths of the view that lead through symbolic links are refused.
    Links,
    // What was opened first is what is shown.
    Exchange,
    // Limits.
    LimitMemory,
    LimitProcesses,
    LimitCpuTime,
    LimitWall,
    LimitOutput,
    LimitDisk,
    LimitFileSize,
    LimitOpenFiles,
}

#[cfg(feature = "weaken")]
impl Layer {
    fn bit(self) -> u64 {
        1 << self as u32
    }
}
