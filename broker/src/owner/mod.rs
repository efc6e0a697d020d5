//! What the owner says: where each secret is and where it may go, and how this machine reaches the network.

mod binding;

pub(crate) use binding::Binding;
