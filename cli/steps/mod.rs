//! The steps of a run: what one is, and how it is run.

mod layers;
mod one;
mod sink;

pub(crate) use layers::{Layer, Layers};
pub(crate) use one::{Context, Ended, StepSpec, make_run_folder, run_step};
pub(crate) use sink::{Plain, Sink};
