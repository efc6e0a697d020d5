//! Secrets at rest: sealed with the key of the state folder, each bound to its name.
//!
//! AES-256-GCM with random nonces (NIST SP 800-38D, section 8.2.2): safe for some 2^32 seals under one key, far more
//! than an owner has secrets. A place for an operating system's keyring is left here: only the origin of the key would
//! differ. It is not built yet, because the keyring of Linux needs a daemon that servers and containers do not run.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::{Error, random};

/// Seals and opens.
pub(crate) struct SealingKey(LessSafeKey);

impl SealingKey {
    /// The key made of these bytes.
    pub(crate) fn new(bytes: &[u8; 32]) -> Result<Self, Error> {
        let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| Error::SealBroken)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals bytes under a name, without which they cannot be opened.
    pub(crate) fn seal(&self, name: &str, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let nonce: [u8; NONCE_LEN] = random::bytes()?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(plain.len() + AES_256_GCM.tag_len()));
        bytes.extend_from_slice(plain);
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut *bytes,
            )
            .map_err(|_| Error::SealBroken)?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + bytes.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&bytes);
        Ok(sealed)
    }

    /// Opens what was sealed under this name.
    pub(crate) fn open(&self, name: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let rest = sealed.strip_prefix(&[VERSION]).ok_or(Error::SealBroken)?;
        let (nonce, rest) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(Error::SealBroken)?;
        let mut bytes = Zeroizing::new(rest.to_vec());
        let length = self
            .0
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(name.as_bytes()),
                &mut bytes,
            )
            .map_err(|_| Error::SealBroken)?
            .len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// The first byte of everything sealed.
const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealingKey {
        SealingKey::new(&[7; 32]).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_under_its_name_only() {
        let sealed = key().seal("openai", b"test-secret-openai").unwrap();
        let opened = key().open("openai", &sealed).unwrap();
        assert_eq!(&opened[..], b"test-secret-openai");
        assert!(key().open("github", &sealed).is_err());
    }

    #[test]
    fn what_was_changed_does_not_open() {
        let sealed = key().seal("openai", b"test-secret-openai").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key().open("openai", &changed).is_err());
        }
        assert!(key().open("openai", b"").is_err());
    }

    #[test]
    fn a_sealed_value_does_not_show_itself() {
        let sealed = key().seal("openai", b"test-secret-openai").unwrap();
        let is_seen = sealed.windows(6).any(|window| window == b"secret");
        assert!(!is_seen);
    }
}
