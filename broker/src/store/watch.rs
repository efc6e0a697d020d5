//! Sees that another process has changed the state.

use std::sync::Arc;

use crate::Error;

use super::Store;

/// What was seen last of the state.
///
/// It looks through the connection of the store, for which only what others commit is a change.
pub(crate) struct Watch {
    store: Arc<Store>,
    version: i64,
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn new(store: Arc<Store>) -> Result<Self, Error> {
        let mut watch = Self { store, version: 0 };
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
        self.store.read(|connection| {
            connection.pragma_query_value(None, "data_version", |row| row.get(0))
        })
    }
}
