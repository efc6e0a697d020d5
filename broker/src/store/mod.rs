//! The state that outlives a process: one SQLite database that many processes share.
//!
//! It is in WAL mode, so readers never wait; writers wait for each other for a bounded time. A process may be killed
//! at any moment: what was committed stands, what was not never was.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::state::{Folder, SealingKey};
use crate::{Durability, Error};

mod approvals;
mod keys;
mod reports;
mod runs;
mod sealed_runs;
mod secrets;
mod segments;
mod watch;

pub(crate) use keys::StoredKey;
pub(crate) use runs::StoredRun;
pub(crate) use sealed_runs::SealedRun;
pub(crate) use secrets::StoredSecret;
pub(crate) use segments::{StoredSegment, VERIFICATION_KEY_FILE};
pub(crate) use watch::Watch;

/// The database of a state folder.
pub(crate) struct Store {
    connection: Mutex<Connection>,
    folder: Folder,
    key: SealingKey,
}

impl Store {
    /// Opens the database of a folder, and makes it if it is not there; many processes may do so at once.
    pub(crate) fn open(folder: &Folder, durability: Durability) -> Result<Arc<Self>, Error> {
        // Whoever comes first sets the folder up; the others wait here and find it ready.
        let _lock = folder.lock()?;
        let path = folder.database()?;
        let mut connection = connect(&path, durability).map_err(Error::Store)?;
        let version: u32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(Error::Store)?;
        if version > SCHEMA_VERSION {
            return Err(Error::StateTooNew);
        }
        let key = SealingKey::new(&*folder.key(version == 0)?)?;
        if version == 0 {
            let transaction = connection.transaction().map_err(Error::Store)?;
            segments::create(&transaction, folder, &key)?;
            transaction.execute_batch(SCHEMA).map_err(Error::Store)?;
            transaction
                .execute_batch(sealed_runs::SCHEMA)
                .map_err(Error::Store)?;
            transaction.commit().map_err(Error::Store)?;
        }
        if version == 1 {
            segments::move_chain(&mut connection, folder, &key)?;
        }
        if version == 1 || version == 2 {
            let transaction = connection.transaction().map_err(Error::Store)?;
            transaction
                .execute_batch(sealed_runs::SCHEMA)
                .map_err(Error::Store)?;
            transaction.commit().map_err(Error::Store)?;
        }
        let store = Self {
            connection: Mutex::new(connection),
            folder: folder.clone(),
            key,
        };
        store.tidy_chain()?;
        Ok(Arc::new(store))
    }

    /// Reads.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        read(&self.lock()).map_err(Error::Store)
    }

    /// Writes everything or nothing.
    fn write<T>(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut connection = self.lock();
        // It takes the write lock at once: a transaction that reads first could find itself overtaken.
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(Error::Store)?;
        let value = write(&transaction)?;
        transaction.commit().map_err(Error::Store)?;
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic left behind was rolled back when it was dropped.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection as every one of ours is.
fn connect(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Disk => "FULL",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Keys that were replaced and secrets that were removed leave the file, too.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// How long a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);

const SCHEMA_VERSION: u32 = 3;

/// Times are milliseconds since the epoch; folders are bytes, because a path need not be text.
const SCHEMA: &str = "
CREATE TABLE keys (
    kid TEXT PRIMARY KEY, purpose TEXT NOT NULL, public BLOB NOT NULL, sealed BLOB NOT NULL,
    created INTEGER NOT NULL, last_expiry INTEGER NOT NULL
) STRICT;
CREATE TABLE runs (
    id TEXT PRIMARY KEY, policy TEXT NOT NULL, project BLOB NOT NULL, created INTEGER NOT NULL,
    expires INTEGER NOT NULL, ended INTEGER, segment TEXT NOT NULL, ended_segment TEXT
) STRICT;
CREATE INDEX runs_active ON runs (segment) WHERE ended IS NULL;
CREATE TABLE approvals (
    project BLOB PRIMARY KEY, digest TEXT NOT NULL, approved INTEGER NOT NULL
) STRICT;
CREATE TABLE secrets (
    name TEXT PRIMARY KEY, sealed BLOB NOT NULL, binding TEXT, created INTEGER NOT NULL
) STRICT;
CREATE TABLE reports (run TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT;
";

#[cfg(test)]
pub(crate) mod tests;
