//! What each run was, once it has ended.

use rusqlite::{OptionalExtension, params};
use sdk::RunId;
use sdk::report::Report;

use crate::Error;

use super::Store;

impl Store {
    /// Keeps the report of a run in the place of an earlier one.
    pub(crate) fn put_report(&self, report: &Report) -> Result<(), Error> {
        let json = serde_json::to_string(report).map_err(Error::Json)?;
        self.write(|transaction| {
            transaction
                .execute(
                    "INSERT INTO reports (run, json) VALUES (?1, ?2)
                     ON CONFLICT (run) DO UPDATE SET json = ?2",
                    params![report.run.as_str(), json],
                )
                .map_err(Error::Store)?;
            Ok(())
        })
    }

    /// The report of a run.
    pub(crate) fn report(&self, run: &RunId) -> Result<Option<Report>, Error> {
        let json: Option<String> = self.read(|connection| {
            connection
                .query_row(
                    "SELECT json FROM reports WHERE run = ?1",
                    [run.as_str()],
                    |row| row.get(0),
                )
                .optional()
        })?;
        json.map(|json| serde_json::from_str(&json).map_err(Error::Json))
            .transpose()
    }
}
