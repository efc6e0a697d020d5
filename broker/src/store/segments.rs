//! How far each segment of the audit log had come, and the keys its checkpoints are made with.

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use crate::audit::{Chain, EpochKey, Signer, VerificationKey};
use crate::state::{Evolving, Folder, SealingKey};
use crate::{Error, hex, random};

use super::Store;

/// What the store knows of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSegment {
    pub(crate) name: String,
    /// Its place among all segments: how often the verification key had moved on.
    pub(crate) position: u64,
    /// Whether nothing is written to it any more.
    pub(crate) is_closed: bool,
    /// How far it had come at least; exactly, if it is closed.
    pub(crate) head: Chain,
}

/// The file that holds the verification key.
pub(crate) const VERIFICATION_KEY_FILE: &str = "audit-verification.key";

impl Store {
    /// Begins a segment, and gives the keys of its checkpoints.
    ///
    /// The key of the chain has moved on, on the disk, before the segment is there: whoever reads the folder from then on
    /// cannot make this segment's keys. A process that is killed in between leaves a place that no segment has.
    pub(crate) fn begin_segment(&self, name: &str) -> Result<(EpochKey, Signer), Error> {
        // The transaction is what keeps other processes away from the file.
        self.write(|transaction| {
            let mut chain = self.chain()?;
            let next: i64 = transaction
                .query_row(
                    "SELECT ifnull(max(position) + 1, 0) FROM segments",
                    [],
                    |row| row.get(0),
                )
                .map_err(Error::Store)?;
            let position = chain.number.max(next.cast_unsigned());
            let mut key = VerificationKey(*chain.value);
            for _ in chain.number..position {
                key.evolve();
            }
            let epoch = key.segment();
            key.evolve();
            chain
                .replace(position + 1, &key.0)
                .map_err(|source| self.folder.failed(CHAIN_FILE, source))?;
            transaction
                .execute(
                    "INSERT INTO segments (name, position, is_closed, seq, hash) VALUES (?1, ?2, 0, 0, ?3)",
                    params![name, position.cast_signed(), Chain::start(name).hash],
                )
                .map_err(Error::Store)?;
            Ok((epoch, signer(transaction, &self.key)?))
        })
    }

    /// Wipes the key that a killed process has left behind, if it has.
    pub(super) fn tidy_chain(&self) -> Result<(), Error> {
        if self.chain()?.is_tidy() {
            return Ok(());
        }
        // Looked at again while nobody else moves it on.
        self.write(|_| {
            self.chain()?
                .tidy_up()
                .map_err(|source| self.folder.failed(CHAIN_FILE, source))
        })
    }

    pub(super) fn chain(&self) -> Result<Evolving<'_>, Error> {
        let gone = || {
            let source = std::io::ErrorKind::NotFound.into();
            self.folder.failed(CHAIN_FILE, source)
        };
        let file = self.folder.open_to_change(CHAIN_FILE)?.ok_or_else(gone)?;
        Evolving::read(file, &self.key)
            .map_err(|source| self.folder.failed(CHAIN_FILE, source))?
            .ok_or(Error::SealBroken)
    }

    /// Records how far an open segment has come.
    pub(crate) fn record_head(&self, name: &str, head: &Chain) -> Result<(), Error> {
        self.write_head(name, head, false)
    }

    /// Records where a segment ends.
    pub(crate) fn close_segment(&self, name: &str, head: &Chain) -> Result<(), Error> {
        self.write_head(name, head, true)
    }

    fn write_head(&self, name: &str, head: &Chain, is_closed: bool) -> Result<(), Error> {
        self.write(|transaction| {
            // A head never goes back, and a closed segment stays as it is.
            transaction
                .execute(
                    "UPDATE segments SET seq = ?2, hash = ?3, is_closed = ?4
                     WHERE name = ?1 AND seq <= ?2 AND is_closed = 0",
                    params![name, head.seq.cast_signed(), head.hash, is_closed],
                )
                .map_err(Error::Store)?;
            Ok(())
        })
    }

    /// Every segment, oldest first.
    pub(crate) fn segments(&self) -> Result<Vec<StoredSegment>, Error> {
        self.read(|connection| {
            connection
                .prepare(
                    "SELECT name, position, is_closed, seq, hash FROM segments ORDER BY position",
                )?
                .query_map([], from_row)?
                .collect()
        })
    }

    /// The segments that are not closed: of processes that live, or were killed.
    pub(crate) fn open_segments(&self) -> Result<Vec<StoredSegment>, Error> {
        self.read(|connection| {
            connection
                .prepare(
                    "SELECT name, position, is_closed, seq, hash FROM segments
                     WHERE is_closed = 0 ORDER BY position",
                )?
                .query_map([], from_row)?
                .collect()
        })
    }
}

/// Makes the tables of this file, and the first keys.
pub(super) fn create(
    transaction: &Transaction<'_>,
    folder: &Folder,
    key: &SealingKey,
) -> Result<(), Error> {
    transaction.execute_batch(SCHEMA).map_err(Error::Store)?;
    let first = VerificationKey(random::bytes()?);
    // A crash may have left the file of an attempt that was rolled back; what is in it then is the key.
    folder.write_once(VERIFICATION_KEY_FILE, hex::encode(&first.0).as_bytes())?;
    let text = folder.read_small(VERIFICATION_KEY_FILE)?;
    let first = text
        .as_deref()
        .and_then(|text| std::str::from_utf8(text).ok())
        .and_then(|text| hex::decode(text.trim_end()))
        .map(VerificationKey)
        .ok_or(Error::SealBroken)?;
    write_chain(folder, key, 0, &first)?;
    let document =
        Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| Error::NoEntropy)?;
    let pair = pair(document.as_ref())?;
    let kid = hex::encode(&random::bytes::<8>()?);
    transaction
        .execute(
            "INSERT INTO audit_keys (kid, public, sealed) VALUES (?1, ?2, ?3)",
            params![
                kid,
                pair.public_key().as_ref(),
                key.seal(SIGNER, document.as_ref())?
            ],
        )
        .map_err(Error::Store)?;
    Ok(())
}

/// Takes the key of the chain out of the database of an earlier version, and leaves no copy there.
pub(super) fn move_chain(
    connection: &mut Connection,
    folder: &Folder,
    key: &SealingKey,
) -> Result<(), Error> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(Error::Store)?;
    let (position, sealed): (i64, Vec<u8>) = transaction
        .query_row("SELECT position, sealed FROM audit_chain", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(Error::Store)?;
    let opened = key.open(CHAIN, &sealed)?;
    let chain = VerificationKey(opened[..].try_into().map_err(|_| Error::SealBroken)?);
    write_chain(folder, key, position.cast_unsigned(), &chain)?;
    transaction
        .execute_batch("DROP TABLE audit_chain; PRAGMA user_version = 2;")
        .map_err(Error::Store)?;
    transaction.commit().map_err(Error::Store)?;
    // Its rows were overwritten, and with the write-ahead log go the pages as they were.
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(Error::Store)
}

/// Writes the file of the chain. One that an attempt left that was killed is as good, or further.
fn write_chain(
    folder: &Folder,
    key: &SealingKey,
    position: u64,
    chain: &VerificationKey,
) -> Result<(), Error> {
    let bytes = Evolving::first(key, position, &chain.0).ok_or(Error::SealBroken)?;
    folder.write_once(CHAIN_FILE, &bytes).map(|_| ())
}

impl Store {
    /// The name of this installation: nobody else's tokens are for it.
    pub(crate) fn installation(&self) -> Result<String, Error> {
        self.read(|connection| {
            connection.query_row("SELECT kid FROM audit_keys", [], |row| row.get(0))
        })
    }

    /// The public key that checkpoints of this `kid` are signed with.
    pub(crate) fn audit_public_key(&self, kid: &str) -> Result<Option<Vec<u8>>, Error> {
        self.read(|connection| {
            connection
                .query_row(
                    "SELECT public FROM audit_keys WHERE kid = ?1",
                    [kid],
                    |row| row.get(0),
                )
                .optional()
        })
    }
}

fn signer(transaction: &Transaction<'_>, key: &SealingKey) -> Result<Signer, Error> {
    let (kid, sealed): (String, Vec<u8>) = transaction
        .query_row("SELECT kid, sealed FROM audit_keys", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(Error::Store)?;
    let pair = pair(&key.open(SIGNER, &sealed)?)?;
    Ok(Signer { kid, pair })
}

fn pair(document: &[u8]) -> Result<Ed25519KeyPair, Error> {
    Ed25519KeyPair::from_pkcs8(document).map_err(|_| Error::SealBroken)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<StoredSegment> {
    Ok(StoredSegment {
        name: row.get(0)?,
        position: row.get::<_, i64>(1)?.cast_unsigned(),
        is_closed: row.get(2)?,
        head: Chain {
            seq: row.get::<_, i64>(3)?.cast_unsigned(),
            hash: row.get(4)?,
        },
    })
}

/// What the chain of verification keys was sealed as in the database.
pub(super) const CHAIN: &str = "audit chain";

/// The file that the chain of verification keys has come to.
pub(super) const CHAIN_FILE: &str = "audit-chain.key";

/// What the key that signs checkpoints is sealed as.
const SIGNER: &str = "audit signer";

const SCHEMA: &str = "
CREATE TABLE segments (
    name TEXT PRIMARY KEY, position INTEGER NOT NULL UNIQUE, is_closed INTEGER NOT NULL, seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX segments_open ON segments (position) WHERE is_closed = 0;
CREATE TABLE audit_keys (kid TEXT PRIMARY KEY, public BLOB NOT NULL, sealed BLOB NOT NULL) STRICT;
";
