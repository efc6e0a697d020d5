//! Which policy of each project the owner approved last.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rusqlite::{OptionalExtension, params};

use crate::Error;

use super::Store;

impl Store {
    /// Keeps an approval in the place of the one before: an old approved policy cannot come back.
    pub(crate) fn approve(&self, project: &Path, digest: &str, now: i64) -> Result<(), Error> {
        self.write(|transaction| {
            transaction
                .execute(
                    "INSERT INTO approvals (project, digest, approved) VALUES (?1, ?2, ?3)
                     ON CONFLICT (project) DO UPDATE SET digest = ?2, approved = ?3",
                    params![project.as_os_str().as_bytes(), digest, now],
                )
                .map_err(Error::Store)?;
            Ok(())
        })
    }

    /// The digest that was approved last for a project.
    pub(crate) fn approved(&self, project: &Path) -> Result<Option<String>, Error> {
        self.read(|connection| {
            connection
                .query_row(
                    "SELECT digest FROM approvals WHERE project = ?1",
                    params![project.as_os_str().as_bytes()],
                    |row| row.get(0),
                )
                .optional()
        })
    }
}
