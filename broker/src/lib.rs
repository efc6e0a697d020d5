//! Runs, run tokens, secrets, grants and the audit log.
//!
//! The broker is what the owner trusts: it reads secrets, lets a run use them where the owner and the policy both say
//! so, and writes down what was done. It knows nothing of forwarding.

#![forbid(unsafe_code)]

mod approval;
pub mod audit;
mod authority;
mod broker;
mod config;
pub mod control;
mod create;
mod credential;
mod dotenv;
mod error;
mod freeze;
mod grant;
mod hex;
mod live;
mod owner;
mod probe;
mod random;
mod release;
mod resume;
mod run;
mod sealed;
mod secrets;
mod settings;
mod source;
mod state;
mod store;
mod token;
mod tripwire;
mod watcher;

#[cfg(test)]
mod tests;

pub use approval::short_code;
pub use audit::{Audit, AuditUnavailable};
pub use authority::Authority;
pub use broker::Broker;
pub use config::{Config, Upstream};
pub use create::{CreateRunSpec, NewRun, lifetime};
pub use credential::{Credential, CredentialError};
pub use error::{Error, ErrorKind};
pub use grant::Grant;
pub use probe::Probe;
pub use run::Run;
pub use secrets::{Added, Existing, Imported, NewSecret, Secrets};
pub use settings::{Durability, Settings};
pub use token::{Alias, RunToken, TokenError};
pub use tripwire::{Found, Tripwire};
