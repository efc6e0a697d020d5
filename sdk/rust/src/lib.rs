//! The public contract of Valetkey: what other programs see of runs, refusals, reports and the audit log.

#![forbid(unsafe_code)]

pub mod api;
pub mod audit;
#[cfg(feature = "client")]
pub mod client;
pub mod denial;
#[cfg(feature = "client")]
pub mod events;
pub mod exit;
pub mod happening;
pub mod id;
pub mod pieces;
pub mod report;
pub mod tally;

pub use denial::{Code, Denial};
pub use id::{RequestId, RunId};
