//! What the owner says: where each secret is and where it may go, and how this machine reaches the network.

mod binding;
mod config_file;
mod file;
mod inject;
mod secrets_file;

pub(crate) use binding::Binding;
pub(crate) use config_file::parse as parse_config;
pub(crate) use file::{Readers, read};
pub(crate) use inject::describe;
pub(crate) use secrets_file::{Home, check_name, parse as parse_secrets, parse_kept};
