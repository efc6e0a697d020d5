//! Runs, run tokens, secrets, grants and the audit log.
//!
//! The broker is what the owner trusts: it reads secrets, lets a run use them where the owner and the policy both say
//! so, and writes down what was done. It knows nothing of forwarding.

#![forbid(unsafe_code)]

pub mod audit;
mod authority;
mod broker;
mod config;
mod credential;
mod error;
mod grant;
mod hex;
mod owner;
mod random;
mod run;
mod settings;
mod source;
mod state;
mod store;
mod token;
mod tripwire;

pub use audit::{Audit, AuditUnavailable};
pub use authority::Authority;
pub use broker::{Broker, CreateRunSpec, NewRun};
pub use config::{Config, Upstream};
pub use credential::{Credential, CredentialError};
pub use error::Error;
pub use grant::Grant;
pub use run::Run;
pub use settings::{Durability, Settings};
pub use token::{Alias, RunToken, TokenError};
pub use tripwire::{Found, Tripwire};
