//! How far each segment of the audit log had come, and the keys its checkpoints are made with.

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use crate::audit::{Chain, EpochKey, Signer, VerificationKey};
use crate::state::{Folder, SealingKey};
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
    pub(crate) fn begin_segment(&self, name: &str) -> Result<(EpochKey, Signer), Error> {
        self.write(|transaction| {
            let (position, sealed): (i64, Vec<u8>) = transaction
                .query_row("SELECT position, sealed FROM audit_chain", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .map_err(Error::Store)?;
            let opened = self.key.open(CHAIN, &sealed)?;
            let mut key = VerificationKey(opened[..].try_into().map_err(|_| Error::SealBroken)?);
            let epoch = key.segment();
            key.evolve();
            transaction
                .execute(
                    "UPDATE audit_chain SET position = position + 1, sealed = ?1",
                    params![self.key.seal(CHAIN, &key.0)?],
                )
                .map_err(Error::Store)?;
            transaction
                .execute(
                    "INSERT INTO segments (name, position, is_closed, seq, hash) VALUES (?1, ?2, 0, 0, ?3)",
                    params![name, position, Chain::start(name).hash],
                )
                .map_err(Error::Store)?;
            Ok((epoch, signer(transaction, &self.key)?))
        })
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
    transaction
        .execute(
            "INSERT INTO audit_chain (position, sealed) VALUES (0, ?1)",
            params![key.seal(CHAIN, &first.0)?],
        )
        .map_err(Error::Store)?;
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

/// What the chain of verification keys is sealed as.
const CHAIN: &str = "audit chain";

/// What the key that signs checkpoints is sealed as.
const SIGNER: &str = "audit signer";

const SCHEMA: &str = "
CREATE TABLE segments (
    name TEXT PRIMARY KEY, position INTEGER NOT NULL UNIQUE, is_closed INTEGER NOT NULL, seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX segments_open ON segments (position) WHERE is_closed = 0;
CREATE TABLE audit_chain (position INTEGER NOT NULL, sealed BLOB NOT NULL) STRICT;
CREATE TABLE audit_keys (kid TEXT PRIMARY KEY, public BLOB NOT NULL, sealed BLOB NOT NULL) STRICT;
";
