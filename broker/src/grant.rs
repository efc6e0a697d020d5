//! A run's right to use one secret.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use policies::{Host, HostPattern, Scheme, Slot};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::credential::Credential;
use crate::owner::Binding;

/// A run's right to use one binding, until the run ends.
///
/// The broker checks grants itself; it does not trust the proxy to have done so.
pub struct Grant {
    binding: Arc<Binding>,
    /// The owner's name of the secret, shared with what is recorded about it.
    name: Arc<str>,
    placeholder: String,
    pub(crate) value: Value,
}

/// The secret's value, while the run may use it.
pub(crate) struct Value {
    /// What was read, and until when it is good.
    pub(crate) current: ArcSwapOption<(Arc<Credential>, Instant)>,
    /// Held by the one who reads it.
    pub(crate) reading: Mutex<()>,
}

impl Grant {
    /// The right to a binding, with the placeholder that the run sees.
    pub(crate) fn new(binding: Arc<Binding>, placeholder: String) -> Self {
        Self {
            name: binding.name.as_str().into(),
            binding,
            placeholder,
            value: Value {
                current: ArcSwapOption::empty(),
                reading: Mutex::new(()),
            },
        }
    }

    /// The owner's name of the secret.
    pub fn secret(&self) -> &str {
        &self.name
    }

    /// The same, to be kept.
    pub fn secret_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Where in a request the secret may stand.
    pub fn slots(&self) -> &[Slot] {
        &self.binding.slots
    }

    /// The harmless value that the run has instead of the secret; of the secret's shape, and random.
    pub fn placeholder(&self) -> &str {
        &self.placeholder
    }

    /// The only hosts that the secret may be sent to.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.binding.hosts
    }

    /// The environment variables that hold the placeholder.
    pub fn variables(&self) -> &[String] {
        &self.binding.variables
    }

    /// Whether the owner lets the secret go there.
    pub fn covers(&self, scheme: Scheme, host: &Host, port: u16) -> bool {
        self.binding.covers(scheme, host, port)
    }

    pub(crate) fn binding(&self) -> &Arc<Binding> {
        &self.binding
    }

    /// Forgets the value. Requests that already hold it finish.
    pub(crate) fn forget(&self) {
        self.value.current.store(None);
    }
}
