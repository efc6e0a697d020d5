//! What a later process needs to go on with a run: sealed, and gone with the run.

use rusqlite::{OptionalExtension, Transaction, params};
use sdk::RunId;
use zeroize::Zeroizing;

use crate::Error;

use super::{Store, StoredRun};

/// Whose a sealed run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SealedRun {
    pub(crate) run: StoredRun,
    /// The segment of the process that serves it, or did.
    pub(crate) holder: String,
}

impl Store {
    /// Seals what a run consists of, with its policy, of which one copy serves all its runs.
    pub(crate) fn seal_run(
        &self,
        run: &RunId,
        digest: &str,
        plain: &[u8],
        policy: impl FnOnce() -> Result<Vec<u8>, Error>,
        holder: &str,
    ) -> Result<(), Error> {
        let sealed = self.key.seal(&run_as(run.as_str()), plain)?;
        self.write(|transaction| {
            let is_there: bool = transaction
                .query_row(
                    "SELECT EXISTS (SELECT 1 FROM sealed_policies WHERE digest = ?1)",
                    [digest],
                    |row| row.get(0),
                )
                .map_err(Error::Store)?;
            if !is_there {
                let policy = self.key.seal(&policy_as(digest), &policy()?)?;
                transaction
                    .execute(
                        "INSERT INTO sealed_policies (digest, sealed) VALUES (?1, ?2)",
                        params![digest, policy],
                    )
                    .map_err(Error::Store)?;
            }
            transaction
                .execute(
                    "INSERT INTO sealed_runs (run, policy, holder, sealed) VALUES (?1, ?2, ?3, ?4)",
                    params![run.as_str(), digest, holder, sealed],
                )
                .map_err(Error::Store)?;
            Ok(())
        })
    }

    /// The sealed runs that have not ended and whose time is not over, oldest first.
    pub(crate) fn sealed_runs(&self, now: i64) -> Result<Vec<SealedRun>, Error> {
        let held: Vec<(String, String)> = self.read(|connection| {
            connection
                .prepare(
                    "SELECT runs.id, sealed_runs.holder FROM sealed_runs
                     JOIN runs ON runs.id = sealed_runs.run
                     WHERE runs.ended IS NULL AND runs.expires > ?1 ORDER BY runs.id",
                )?
                .query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        let mut runs = Vec::with_capacity(held.len());
        for (id, holder) in held {
            let stored = match id.parse() {
                Ok(id) => self.run(&id)?,
                Err(_) => None,
            };
            runs.extend(stored.map(|run| SealedRun { run, holder }));
        }
        Ok(runs)
    }

    /// What a run consists of; none if it is not sealed.
    pub(crate) fn open_run(&self, run: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        self.opened(
            "SELECT sealed FROM sealed_runs WHERE run = ?1",
            run,
            &run_as(run),
        )
    }

    /// The policy of sealed runs; none if none of them has it.
    pub(crate) fn open_policy(&self, digest: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        self.opened(
            "SELECT sealed FROM sealed_policies WHERE digest = ?1",
            digest,
            &policy_as(digest),
        )
    }

    /// The run is served by another process from now on. Whether it has not ended.
    pub(crate) fn adopt_run(&self, run: &RunId, holder: &str) -> Result<bool, Error> {
        self.write(|transaction| {
            let changed = transaction
                .execute(
                    "UPDATE sealed_runs SET holder = ?2 WHERE run = ?1",
                    params![run.as_str(), holder],
                )
                .map_err(Error::Store)?;
            transaction
                .execute(
                    "INSERT OR IGNORE INTO run_segments (run, segment) VALUES (?1, ?2)",
                    params![run.as_str(), holder],
                )
                .map_err(Error::Store)?;
            Ok(changed == 1)
        })
    }

    /// Removes what is sealed of runs that have ended or whose time is over.
    pub(crate) fn forget_runs(&self, now: i64) -> Result<(), Error> {
        let is_any: bool = self.read(|connection| {
            connection.query_row(
                &format!("SELECT EXISTS (SELECT 1 FROM sealed_runs WHERE run IN ({OVER}))"),
                [now],
                |row| row.get(0),
            )
        })?;
        if !is_any {
            return Ok(());
        }
        self.write(|transaction| {
            transaction
                .execute(
                    &format!("DELETE FROM sealed_runs WHERE run IN ({OVER})"),
                    [now],
                )
                .map_err(Error::Store)?;
            forget_policies(transaction)
        })
    }

    fn opened(
        &self,
        query: &str,
        which: &str,
        sealed_as: &str,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let sealed: Option<Vec<u8>> = self.read(|connection| {
            connection
                .query_row(query, [which], |row| row.get(0))
                .optional()
        })?;
        sealed
            .map(|sealed| self.key.open(sealed_as, &sealed))
            .transpose()
    }
}

/// Removes what is sealed of a run that has just ended.
pub(super) fn forget_run(transaction: &Transaction<'_>, run: &str) -> Result<(), Error> {
    let count = transaction
        .execute("DELETE FROM sealed_runs WHERE run = ?1", [run])
        .map_err(Error::Store)?;
    if count > 0 {
        forget_policies(transaction)?;
    }
    Ok(())
}

fn forget_policies(transaction: &Transaction<'_>) -> Result<(), Error> {
    transaction
        .execute(
            "DELETE FROM sealed_policies WHERE digest NOT IN (SELECT policy FROM sealed_runs)",
            [],
        )
        .map(|_| ())
        .map_err(Error::Store)
}

fn run_as(run: &str) -> String {
    format!("run {run}")
}

fn policy_as(digest: &str) -> String {
    format!("policy {digest}")
}

/// The runs that are over at a time.
const OVER: &str = "SELECT id FROM runs WHERE ended IS NOT NULL OR expires <= ?1";

/// `run_segments`: where a run is told of besides the segment that it was created in.
pub(super) const SCHEMA: &str = "
CREATE TABLE sealed_runs (
    run TEXT PRIMARY KEY, policy TEXT NOT NULL, holder TEXT NOT NULL, sealed BLOB NOT NULL
) STRICT;
CREATE TABLE sealed_policies (digest TEXT PRIMARY KEY, sealed BLOB NOT NULL) STRICT;
CREATE TABLE run_segments (run TEXT NOT NULL, segment TEXT NOT NULL, PRIMARY KEY (run, segment)) STRICT;
PRAGMA user_version = 3;
";
