//! Sees that another process has changed the state.

use rusqlite::Connection;

use crate::{Durability, Error};

use super::{Store, connect};

/// A connection that only looks whether something changed.
pub(crate) struct Watch {
    connection: Connection,
    version: i64,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(store: &Store) -> Result<Self, Error> {
        let connection = connect(&store.path, Durability::Process).map_err(Error::Store)?;
        let mut watch = Self {
            connection,
            version: 0,
        };
        watch.version = watch.current()?;
        Ok(watch)
    }

    /// The version of the state, if anybody has committed anything since the one seen last.
    pub(crate) fn changed(&self) -> Result<Option<i64>, Error> {
        let version = self.current()?;
        Ok((version != self.version).then_some(version))
    }

    /// This version was dealt with. Not to be called before: a change must not be lost to an error.
    pub(crate) fn seen(&mut self, version: i64) {
        self.version = version;
    }

    fn current(&self) -> Result<i64, Error> {
        self.connection
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .map_err(Error::Store)
    }
}
