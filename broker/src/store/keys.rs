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
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the store itself compares it; a test reads it")
    )]
    pub(crate) last_expiry: i64,
}

impl Store {
    /// Every key that signs or may still verify, newest first.
    pub(crate) fn token_keys(&self) -> Result<Vec<StoredKey>, Error> {
        let sealed: Vec<(StoredKey, Vec<u8>)> = self.read(|connection| {
            connection
                .prepare(
                    "SELECT kid, sealed, public, created, last_expiry FROM keys WHERE purpose = 'token'
                     ORDER BY created DESC, rowid DESC",
                )?
                .query_map([], |row| {
                    let key = StoredKey {
                        kid: row.get(0)?,
                        document: Zeroizing::new(Vec::new()),
                        public: row.get(2)?,
                        created: row.get(3)?,
                        last_expiry: row.get(4)?,
                    };
                    Ok((key, row.get(1)?))
                })?
                .collect()
        })?;
        sealed
            .into_iter()
            .map(|(mut key, sealed)| {
                key.document = self.key.open(&sealed_as(&key.kid), &sealed)?;
                Ok(key)
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
