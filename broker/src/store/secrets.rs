//! Secrets that the owner gave us to keep: sealed values, each with its binding.

use rusqlite::{OptionalExtension, params};
use zeroize::Zeroizing;

use crate::{Error, Existing};

use super::Store;

/// A kept secret without its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSecret {
    pub(crate) name: String,
    /// The binding, in the grammar of `secrets.toml`; none where `secrets.toml` itself has it.
    pub(crate) binding: Option<String>,
}

impl Store {
    /// Keeps secrets, all of them or none. Returns the names that were kept before and are replaced.
    ///
    /// # Errors
    /// If names are kept already and `existing` says to leave them; all of them are named.
    pub(crate) fn put_secrets(
        &self,
        secrets: &[(StoredSecret, Zeroizing<String>)],
        existing: Existing,
        now: i64,
    ) -> Result<Vec<String>, Error> {
        let sealed = secrets
            .iter()
            .map(|(secret, value)| self.key.seal(&sealed_as(&secret.name), value.as_bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        self.write(|transaction| {
            let mut kept = Vec::new();
            for (secret, _) in secrets {
                let sql = "SELECT 1 FROM secrets WHERE name = ?1";
                let found = transaction.query_row(sql, [&secret.name], |_| Ok(()));
                if found.optional().map_err(Error::Store)?.is_some() {
                    kept.push(secret.name.clone());
                }
            }
            match existing {
                Existing::Keep if !kept.is_empty() => return Err(Error::SecretExists(kept)),
                Existing::Keep | Existing::Replace => {}
            }
            for ((secret, _), sealed) in secrets.iter().zip(&sealed) {
                transaction
                    .execute(
                        "INSERT INTO secrets (name, sealed, binding, created) VALUES (?1, ?2, ?3, ?4)
                         ON CONFLICT (name) DO UPDATE SET sealed = ?2, binding = ?3, created = ?4",
                        params![secret.name, sealed, secret.binding, now],
                    )
                    .map_err(Error::Store)?;
            }
            Ok(kept)
        })
    }

    /// Keeps one secret that is new.
    #[cfg(test)]
    pub(crate) fn put_secret(
        &self,
        secret: &StoredSecret,
        value: &str,
        now: i64,
    ) -> Result<(), Error> {
        let value = Zeroizing::new(value.to_owned());
        self.put_secrets(&[(secret.clone(), value)], Existing::Keep, now)
            .map(|_| ())
    }

    /// Removes a secret. Whether it was there.
    pub(crate) fn remove_secret(&self, name: &str) -> Result<bool, Error> {
        self.write(|transaction| {
            transaction
                .execute("DELETE FROM secrets WHERE name = ?1", [name])
                .map(|count| count == 1)
                .map_err(Error::Store)
        })
    }

    /// Every kept secret, by name.
    pub(crate) fn kept_secrets(&self) -> Result<Vec<StoredSecret>, Error> {
        self.read(|connection| {
            connection
                .prepare("SELECT name, binding FROM secrets ORDER BY name")?
                .query_map([], |row| {
                    Ok(StoredSecret {
                        name: row.get(0)?,
                        binding: row.get(1)?,
                    })
                })?
                .collect()
        })
    }

    /// The value of a kept secret; none if there is none.
    pub(crate) fn secret_value(&self, name: &str) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let sealed: Option<Vec<u8>> = self.read(|connection| {
            connection
                .query_row(
                    "SELECT sealed FROM secrets WHERE name = ?1",
                    [name],
                    |row| row.get(0),
                )
                .optional()
        })?;
        sealed
            .map(|sealed| self.key.open(&sealed_as(name), &sealed))
            .transpose()
    }
}

fn sealed_as(name: &str) -> String {
    format!("secret {name}")
}
