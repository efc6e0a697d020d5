//! Throwing changes away: the layers go, the workspace is not touched.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::record::{Record, State};
use super::{Error, remove};

/// Writes down what became of the changes, then removes the layers.
///
/// In this order: if we are killed in between, nobody takes half of the layers for all of the changes.
pub(crate) fn drop_layers(record: &mut Record) -> Result<(), Error> {
    record.layers.clear();
    record.save_durably()?;
    remove_layers(record)
}

/// Removes the layers that are left, once it is written down what became of the changes.
pub(crate) fn remove_layers(record: &Record) -> Result<(), Error> {
    let folder = record.folder().to_owned();
    File::open(&folder)
        .and_then(|run| remove::remove(run.as_fd(), "layers".as_ref()))
        .or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
        .map_err(|error| Error::machine("cannot remove the layers in", &folder, error))
}

/// Throws away what a run changed.
pub(crate) fn discard(record: &mut Record) -> Result<(), Error> {
    record.state = State::Discarded {
        at: super::Moment::now(),
    };
    drop_layers(record)
}
