//! The policy decision point: text becomes a policy, and a policy decides requests.
//!
//! Nothing here reads a file, a socket or a clock. [`load`] turns documents into a [`Policy`]; the policy's
//! `decide_connection` and `decide` are pure functions of their arguments. What is not understood is refused.

#![forbid(unsafe_code)]

pub mod authority;
pub mod catalogue;
mod condition;
pub mod decide;
pub mod diagnostic;
pub mod digest;
pub mod host;
mod index;
pub mod limits;
pub mod load;
pub mod path;
pub mod path_pattern;
pub mod pattern;
pub mod placeholder;
pub mod policy;
pub mod reader;
pub mod rule;
pub mod sandbox;
pub mod scheme;
pub mod slot;
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
pub use load::{Document, Origin, Sources, load};
pub use path::{PathError, RequestPath};
pub use pattern::HostPattern;
pub use placeholder::PlaceholderShape;
pub use policy::Policy;
pub use rule::Rule;
pub use sandbox::{NetworkMode, Sandbox, Workspace, WorkspaceMode};
pub use scheme::Scheme;
pub use slot::Slot;
