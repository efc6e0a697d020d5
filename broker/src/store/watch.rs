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
        watch.has_changed()?;
        Ok(watch)
    }

    /// Whether anybody has committed anything since the last call.
    pub(crate) fn has_changed(&mut self) -> Result<bool, Error> {
        let version = self
            .connection
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .map_err(Error::Store)?;
        let is_new = version != self.version;
        self.version = version;
        Ok(is_new)
    }
}
