//! The policy decision point: text becomes a policy, and a policy decides requests.
//!
//! Nothing here reads a file, a socket or a clock. [`load`] turns documents into a [`Policy`]; the policy's
//! `decide_connection` and `decide` are pure functions of their arguments. What is not understood is refused.

#![forbid(unsafe_code)]

mod amount;
mod arrange;
pub mod authority;
mod canonical;
pub mod catalogue;
mod condition;
pub mod decide;
pub mod diagnostic;
pub mod digest;
mod explain;
mod extend;
mod grammar;
pub mod host;
mod index;
pub mod limits;
pub mod load;
pub mod path;
pub mod path_pattern;
pub mod pattern;
pub mod placeholder;
pub mod policy;
pub mod presets;
mod read;
pub mod reader;
pub mod recipe;
pub mod rule;
pub mod sample;
pub mod sandbox;
pub mod schema;
pub mod scheme;
mod select;
mod settings;
mod share;
pub mod slot;
pub mod step;
mod tenants;
pub mod units;

pub use authority::{Authority, AuthorityError};
pub use catalogue::Provider;
pub use decide::{
    Allowed, ConnectionDecision, Decision, Fields, NoFields, Refusal, RefusalCode, Request,
};
pub use diagnostic::Diagnostic;
pub use digest::Digest;
pub use host::{Host, HostError, Name};
pub use limits::{Budget, Limits};
pub use load::{Document, Origin, Sources, load, load_json};
pub use path::{PathError, RequestPath};
pub use pattern::HostPattern;
pub use placeholder::PlaceholderShape;
pub use policy::Policy;
pub use recipe::Recipe;
pub use rule::Rule;
pub use sample::{Expectation, Sample};
pub use sandbox::{NetworkMode, Sandbox, Workspace, WorkspaceMode};
pub use scheme::Scheme;
pub use slot::Slot;
pub use step::StepName;
