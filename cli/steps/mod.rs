//! The steps of a run: what one is, in which order they run, and what is told of them.

mod ahead;
mod attempts;
mod close;
mod ending;
mod file;
mod graph;
mod labelled;
mod layers;
mod many;
mod one;
mod report;
mod resume;
mod retry;
mod rows;
mod shown;
mod sink;
mod table;
mod telling;

pub(crate) use ahead::Ahead;
pub(crate) use attempts::{Attempted, attempt};
pub(crate) use ending::{Next, ending, of_step};
pub(crate) use file::{Plan, Planned, read, read_one};
pub(crate) use labelled::Labelled;
pub(crate) use layers::{Layer, Layers};
pub(crate) use many::{Progress, roll_back, rollback_impossible, run_all};
pub(crate) use one::{Context, Ended, StepSpec, make_run_folder, run_step};
pub(crate) use report::{State, of_attempted, report};
pub(crate) use resume::{Resumed, find as find_resumed, write as write_passed};
pub(crate) use shown::{first_failed, interrupted, outcome};
pub(crate) use sink::{Both, Plain, Sink};
pub(crate) use telling::Telling;
