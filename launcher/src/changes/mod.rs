//! What a run changed in its workspace: shown, taken over, or thrown away, long after the run.
//!
//! A run writes to layers in its own folder and never to the workspace. A [`Record`] beside the layers says which
//! workspace they belong to and since when, so that what its owner changed meanwhile is never written over.

mod error;
mod record;
mod text;

pub use error::Error;
pub use record::{Hold, Moment, Record, State};
pub use text::{escaped, unescaped};
