//! Which runs there were, and which have ended.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rusqlite::{OptionalExtension, Row, params};
use sdk::RunId;

use crate::Error;

use super::{Store, sealed_runs};

/// A run as it is kept. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRun {
    pub(crate) id: String,
    pub(crate) policy: String,
    pub(crate) project: PathBuf,
    pub(crate) created: i64,
    pub(crate) expires: i64,
    pub(crate) ended: Option<i64>,
    /// The segment of the process that created it.
    pub(crate) segment: String,
    /// The segment of the process that ended it.
    pub(crate) ended_segment: Option<String>,
}

impl Store {
    /// Keeps a new run, and how long the key must stay that signed its token.
    pub(crate) fn add_run(&self, run: &StoredRun, kid: &str) -> Result<(), Error> {
        self.write(|transaction| {
            let kept = transaction
                .execute(
                    "UPDATE keys SET last_expiry = max(last_expiry, ?2) WHERE kid = ?1",
                    params![kid, run.expires],
                )
                .map_err(Error::Store)?;
            if kept != 1 {
                // Another process has retired the key since it was read.
                return Err(Error::KeyRetired);
            }
            transaction
                .execute(
                    "INSERT INTO runs (id, policy, project, created, expires, segment)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    params![
                        run.id,
                        run.policy,
                        run.project.as_os_str().as_bytes(),
                        run.created,
                        run.expires,
                        run.segment
                    ],
                )
                .map_err(Error::Store)?;
            Ok(())
        })
    }

    /// Marks a run as ended. Whether it had not ended before.
    pub(crate) fn end_run(&self, id: &RunId, now: i64, segment: &str) -> Result<bool, Error> {
        self.write(|transaction| {
            let changed = transaction
                .execute(
                    "UPDATE runs SET ended = ?2, ended_segment = ?3 WHERE id = ?1 AND ended IS NULL",
                    params![id.as_str(), now, segment],
                )
                .map_err(Error::Store)?;
            sealed_runs::forget_run(transaction, id.as_str())?;
            Ok(changed == 1)
        })
    }

    /// Marks the runs as ended that a process had when it died, but those that another process may go on with. How many
    /// there were.
    pub(crate) fn end_runs_of(&self, dead_segment: &str, now: i64) -> Result<usize, Error> {
        self.write(|transaction| {
            transaction
                .execute(
                    "UPDATE runs SET ended = ?2 WHERE segment = ?1 AND ended IS NULL
                     AND NOT (expires > ?2 AND id IN (SELECT run FROM sealed_runs))",
                    params![dead_segment, now],
                )
                .map_err(Error::Store)
        })
    }

    /// One run.
    pub(crate) fn run(&self, id: &RunId) -> Result<Option<StoredRun>, Error> {
        self.read(|connection| {
            connection
                .query_row(
                    &format!("SELECT {COLUMNS} FROM runs WHERE id = ?1"),
                    [id.as_str()],
                    from_row,
                )
                .optional()
        })
    }

    /// The segments that tell of a run, each once.
    pub(crate) fn segments_of(&self, run: &StoredRun) -> Result<Vec<String>, Error> {
        let adopted: Vec<String> = self.read(|connection| {
            connection
                .prepare("SELECT segment FROM run_segments WHERE run = ?1 ORDER BY segment")?
                .query_map([&run.id], |row| row.get(0))?
                .collect()
        })?;
        let mut all = vec![run.segment.clone()];
        for segment in adopted.into_iter().chain(run.ended_segment.clone()) {
            if !all.contains(&segment) {
                all.push(segment);
            }
        }
        Ok(all)
    }

    /// The newest runs, newest first.
    pub(crate) fn runs(&self, most: u32) -> Result<Vec<StoredRun>, Error> {
        self.read(|connection| {
            connection
                .prepare(&format!(
                    "SELECT {COLUMNS} FROM runs ORDER BY id DESC LIMIT ?1"
                ))?
                .query_map([most], from_row)?
                .collect()
        })
    }
}

const COLUMNS: &str = "id, policy, project, created, expires, ended, segment, ended_segment";

fn from_row(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
    let project: Vec<u8> = row.get(2)?;
    Ok(StoredRun {
        id: row.get(0)?,
        policy: row.get(1)?,
        project: PathBuf::from(OsStr::from_bytes(&project)),
        created: row.get(3)?,
        expires: row.get(4)?,
        ended: row.get(5)?,
        segment: row.get(6)?,
        ended_segment: row.get(7)?,
    })
}
