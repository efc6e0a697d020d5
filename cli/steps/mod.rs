//! The steps of a run: what one is, in which order they run, and what is told of them.

mod attempts;
mod file;
mod graph;
mod labelled;
mod layers;
mod many;
mod one;
mod report;
mod retry;
mod shown;
mod sink;
mod touched;

pub(crate) use attempts::Attempted;
pub(crate) use file::{Plan, read};
pub(crate) use labelled::Labelled;
pub(crate) use layers::{Layer, Layers};
pub(crate) use many::{Progress, run_all};
pub(crate) use one::{Context, Ended, StepSpec, make_run_folder, run_step};
pub(crate) use report::{State, report};
pub(crate) use shown::{headline, lines, outcome};
pub(crate) use sink::{Plain, Sink};
