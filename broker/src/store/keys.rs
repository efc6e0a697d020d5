//! The keys that run tokens are signed with: the newest signs, older ones verify while a token of theirs may live.

use rusqlite::params;
use zeroize::Zeroizing;

use crate::Error;

use super::Store;

/// A key as it is kept.
pub(crate) struct StoredKey {
    pub(crate) kid: String,
    /// The key pair (PKCS #8).
    pub(crate) document: Zeroizing<Vec<u8>>,
    pub(crate) public: Vec<u8>,
    /// Milliseconds since the epoch.
    pub(crate) created: i64,
    /// When the last token signed with it expires.
    pub(crate) last_expiry: i64,
}

impl Store {
    /// Every key that signs or may still verify, newest first.
    pub(crate) fn token_keys(&self) -> Result<Vec<StoredKey>, Error> {
        let rows: Vec<(String, Vec<u8>, Vec<u8>, i64, i64)> = self.read(|connection| {
            connection
                .prepare(
                    "SELECT kid, sealed, public, created, last_expiry FROM keys WHERE purpose = 'token'
                     ORDER BY created DESC, rowid DESC",
                )?
                .query_map([], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
                })?
                .collect()
        })?;
        rows.into_iter()
            .map(|(kid, sealed, public, created, last_expiry)| {
                Ok(StoredKey {
                    document: self.key.open(&sealed_as(&kid), &sealed)?,
                    kid,
                    public,
                    created,
                    last_expiry,
                })
            })
            .collect()
    }

    /// Adds a key, unless another process has added one since this time; removes those whose tokens are all dead.
    pub(crate) fn add_token_key(&self, key: &StoredKey, unless_since: i64) -> Result<(), Error> {
        let sealed = self.key.seal(&sealed_as(&key.kid), &key.document)?;
        self.write(|transaction| {
            transaction
                .execute(
                    "INSERT INTO keys (kid, purpose, public, sealed, created, last_expiry)
                     SELECT ?1, 'token', ?2, ?3, ?4, 0
                     WHERE NOT EXISTS (SELECT 1 FROM keys WHERE purpose = 'token' AND created > ?5)",
                    params![key.kid, key.public, sealed, key.created, unless_since],
                )
                .map_err(Error::Store)?;
            transaction
                .execute(
                    "DELETE FROM keys WHERE purpose = 'token' AND last_expiry < ?1 AND created <
                     (SELECT max(created) FROM keys WHERE purpose = 'token')",
                    params![key.created],
                )
                .map_err(Error::Store)?;
            Ok(())
        })
    }
}

fn sealed_as(kid: &str) -> String {
    format!("token key {kid}")
}
