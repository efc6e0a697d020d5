//! The keys that sign and verify run tokens: the newest signs, the others verify until their last token has expired.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use zeroize::Zeroizing;

use crate::store::{Store, StoredKey};
use crate::{Error, hex, random};

use super::{Claims, RunToken, TokenError, jwt};

/// The keys of an installation, as this process knows them.
pub(crate) struct Keyring {
    store: Arc<Store>,
    issuer: String,
    keys: ArcSwap<Vec<Key>>,
}

/// One key.
struct Key {
    key: jwt::Key,
    created: i64,
}

impl Keyring {
    /// Reads the keys, and makes one if there is none that may sign.
    pub(crate) fn open(store: Arc<Store>, now: Timestamp) -> Result<Self, Error> {
        let keyring = Self {
            issuer: format!("valetkey:{}", store.installation()?),
            store,
            keys: ArcSwap::from_pointee(Vec::new()),
        };
        keyring.reload()?;
        let oldest = now
            .saturating_sub(ROTATION)
            .map_err(Error::Clock)?
            .as_millisecond();
        if keyring
            .keys
            .load()
            .first()
            .is_none_or(|key| key.created < oldest)
        {
            keyring.rotate_unless(now, oldest)?;
        }
        Ok(keyring)
    }

    /// Whom its tokens are from: this installation.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Makes a new key that signs from now on. Tokens of the old ones stay good.
    pub(crate) fn rotate(&self, now: Timestamp) -> Result<(), Error> {
        self.rotate_unless(now, i64::MAX)
    }

    fn rotate_unless(&self, now: Timestamp, since: i64) -> Result<(), Error> {
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| Error::NoEntropy)?;
        let pair = pair(document.as_ref())?;
        let newest = self.keys.load().first().map_or(0, |key| key.created);
        let key = StoredKey {
            kid: hex::encode(&random::bytes::<8>()?),
            document: Zeroizing::new(document.as_ref().to_vec()),
            public: pair.public_key().as_ref().to_vec(),
            // The newest key is the one that signs, also when the clock was set back.
            created: now.as_millisecond().max(newest + 1),
            last_expiry: 0,
        };
        self.store.add_token_key(&key, since)?;
        self.reload()
    }

    /// Reads the keys again, because another process may have changed them.
    pub(crate) fn reload(&self) -> Result<(), Error> {
        let keys = self
            .store
            .token_keys()?
            .into_iter()
            .map(|stored| {
                // Derived from what is sealed: the column beside it could have been changed by anybody.
                let pair = pair(&stored.document)?;
                let public = pair.public_key().as_ref();
                Ok(Key {
                    key: jwt::Key::new(&stored.kid, &stored.document, public)
                        .map_err(Error::Json)?,
                    created: stored.created,
                })
            })
            .collect::<Result<_, Error>>()?;
        self.keys.store(Arc::new(keys));
        Ok(())
    }

    /// Signs claims with the newest key, and says which that is.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<(RunToken, String), Error> {
        let keys = self.keys.load();
        let key = keys.first().ok_or(Error::KeyRetired)?;
        let token = key.key.sign(claims).map_err(Error::Token)?;
        Ok((RunToken(token), key.key.kid().to_owned()))
    }

    /// The claims of a token that one of the keys signed, if they are for us and not out of date.
    pub(crate) fn verify(&self, token: &[u8]) -> Result<Claims, TokenError> {
        let token = std::str::from_utf8(token).map_err(|_| TokenError::Invalid)?;
        let keys = self.keys.load();
        let key = keys
            .iter()
            .find(|key| key.key.is_named_by(token))
            .ok_or(TokenError::Invalid)?;
        key.key.verify(token, &self.issuer)
    }
}

fn pair(document: &[u8]) -> Result<Ed25519KeyPair, Error> {
    Ed25519KeyPair::from_pkcs8(document).map_err(|_| Error::SealBroken)
}

/// How long a key signs. Long enough to be rare, short enough that a copied key is worth little in the end.
const ROTATION: SignedDuration = SignedDuration::from_hours(30 * 24);

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::store::StoredRun;
    use crate::store::tests::Fixture;

    use crate::token::AUDIENCE;

    use super::*;

    fn claims(keyring: &Keyring) -> Claims {
        Claims {
            iss: keyring.issuer().to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: "run".to_owned(),
            iat: 0,
            exp: 9_999_999_999,
            jti: String::new(),
            pol: String::new(),
            step: None,
        }
    }

    fn run(expires: i64) -> StoredRun {
        StoredRun {
            id: format!("run_{expires}"),
            policy: String::new(),
            project: PathBuf::from("/p"),
            created: 0,
            expires,
            ended: None,
            segment: "s".to_owned(),
            ended_segment: None,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_of_the_old_key_is_good_after_a_rotation() {
        let fixture = Fixture::new();
        let keyring = Keyring::open(fixture.store(), at(10)).unwrap();
        let (old, kid) = keyring.sign(&claims(&keyring)).unwrap();
        fixture.store().add_run(&run(99_000), &kid).unwrap();
        keyring.rotate(at(20)).unwrap();
        let (_, new_kid) = keyring.sign(&claims(&keyring)).unwrap();
        assert_ne!(kid, new_kid);
        assert!(keyring.verify(old.danger_expose().as_bytes()).is_ok());
        let keys = fixture.store().token_keys().unwrap();
        assert_eq!((&keys[1].kid, keys[1].last_expiry), (&kid, 99_000));
    }

    #[test]
    fn a_key_goes_once_its_last_token_has_expired() {
        let fixture = Fixture::new();
        let keyring = Keyring::open(fixture.store(), at(10)).unwrap();
        let (old, kid) = keyring.sign(&claims(&keyring)).unwrap();
        fixture.store().add_run(&run(15_000), &kid).unwrap();
        keyring.rotate(at(20)).unwrap();
        let presented = old.danger_expose().as_bytes();
        assert_eq!(keyring.verify(presented), Err(TokenError::Invalid));
        assert!(fixture.store().add_run(&run(30_000), &kid).is_err());
    }

    #[test]
    fn two_processes_share_their_keys() {
        let fixture = Fixture::new();
        let one = Keyring::open(fixture.store(), at(10)).unwrap();
        let two = Keyring::open(fixture.store(), at(11)).unwrap();
        let (token, _) = one.sign(&claims(&one)).unwrap();
        assert!(two.verify(token.danger_expose().as_bytes()).is_ok());
    }

    #[test]
    fn a_key_of_another_installation_does_not_verify() {
        let (ours, theirs) = (Fixture::new(), Fixture::new());
        let ours = Keyring::open(ours.store(), at(10)).unwrap();
        let theirs = Keyring::open(theirs.store(), at(10)).unwrap();
        let (token, _) = theirs.sign(&claims(&theirs)).unwrap();
        let presented = token.danger_expose().as_bytes();
        assert_eq!(ours.verify(presented), Err(TokenError::Invalid));
    }
}
