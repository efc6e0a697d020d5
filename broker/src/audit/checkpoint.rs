//! Proof that a chain is ours: lines that sign it, with a key that is not there any more.
//!
//! A checkpoint is a line of the log. It carries an Ed25519 signature over the chain so far, and a MAC under a key that
//! only the writer has, in memory, and that is replaced by its own hash at once. Whoever takes over the machine later
//! can forge neither the MACs of earlier checkpoints nor lines under them, unless they also hold the verification key,
//! from which all MAC keys follow. It is written once to `audit-verification.key`, for its owner to move elsewhere.

use ring::hmac;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::hex;

use super::line::Chain;

/// The body of a checkpoint line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    pub(crate) event: String,
    /// The key that signed.
    pub(crate) kid: String,
    /// How many checkpoints the segment had before.
    pub(crate) epoch: u64,
    pub(crate) mac: String,
    pub(crate) signature: String,
}

/// The `event` of a checkpoint line.
pub(crate) const EVENT: &str = "log.checkpoint";

impl Checkpoint {
    /// Signs a chain, and uses the key of this epoch up.
    pub(crate) fn sign(
        segment: &str,
        chain: &Chain,
        epoch: u64,
        key: &mut EpochKey,
        signer: &Signer,
    ) -> Self {
        let said = said(segment, chain, epoch);
        let mac = key.tag(&said);
        key.evolve();
        Self {
            event: EVENT.to_owned(),
            kid: signer.kid.clone(),
            epoch,
            mac: hex::encode(mac.as_ref()),
            signature: hex::encode(signer.pair.sign(&said).as_ref()),
        }
    }

    /// Whether the signature is that of a key over the chain before the line.
    pub(crate) fn is_signed(&self, segment: &str, chain: &Chain, public_key: &[u8]) -> bool {
        let Some(signature) = decode_signature(&self.signature) else {
            return false;
        };
        UnparsedPublicKey::new(&ED25519, public_key)
            .verify(&said(segment, chain, self.epoch), &signature)
            .is_ok()
    }

    /// Whether the MAC is that of the epoch's key.
    pub(crate) fn is_tagged(&self, segment: &str, chain: &Chain, key: &EpochKey) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key.0);
        hex::decode(&self.mac)
            .is_some_and(|mac| hmac::verify(&key, &said(segment, chain, self.epoch), &mac).is_ok())
    }
}

/// The key pair that signs checkpoints.
pub(crate) struct Signer {
    pub(crate) kid: String,
    pub(crate) pair: Ed25519KeyPair,
}

/// A MAC key that is good for one checkpoint.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct EpochKey(pub(crate) [u8; 32]);

impl EpochKey {
    /// Replaces the key by the next one; nobody can go back.
    pub(crate) fn evolve(&mut self) {
        self.0 = derive(&self.0, b"valetkey audit next epoch");
    }

    fn tag(&self, said: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), said)
    }
}

/// The key from which the first key of each segment follows; it moves on with each segment.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct VerificationKey(pub(crate) [u8; 32]);

impl VerificationKey {
    /// The first key of a segment.
    pub(crate) fn segment(&self) -> EpochKey {
        EpochKey(derive(&self.0, b"valetkey audit segment"))
    }

    /// Moves on to the next segment.
    pub(crate) fn evolve(&mut self) {
        self.0 = derive(&self.0, b"valetkey audit next segment");
    }
}

fn derive(key: &[u8; 32], label: &[u8]) -> [u8; 32] {
    let mut next = [0; 32];
    next.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), label).as_ref());
    next
}

/// What a checkpoint says, in one unambiguous form: a segment's name holds no NUL.
fn said(segment: &str, chain: &Chain, epoch: u64) -> Vec<u8> {
    let mut said = b"valetkey audit checkpoint v1\0".to_vec();
    said.extend_from_slice(segment.as_bytes());
    said.push(0);
    said.extend_from_slice(&epoch.to_be_bytes());
    said.extend_from_slice(&chain.seq.to_be_bytes());
    said.extend_from_slice(&chain.hash);
    said
}

fn decode_signature(text: &str) -> Option<[u8; 64]> {
    let (front, back) = text.split_at_checked(64)?;
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(&hex::decode(front)?);
    signature[32..].copy_from_slice(&hex::decode(back)?);
    Some(signature)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        Signer {
            kid: "k1".to_owned(),
            pair,
        }
    }

    #[test]
    fn a_checkpoint_holds_for_its_chain_only() {
        use ring::signature::KeyPair as _;
        let (signer, chain) = (signer(), Chain::start("a"));
        let checkpoint = Checkpoint::sign("a", &chain, 0, &mut EpochKey([1; 32]), &signer);
        let public = signer.pair.public_key().as_ref();
        assert!(checkpoint.is_signed("a", &chain, public));
        assert!(!checkpoint.is_signed("b", &chain, public));
        let longer = Chain { seq: 1, ..chain };
        assert!(!checkpoint.is_signed("a", &longer, public));
    }

    #[test]
    fn the_key_of_an_epoch_cannot_make_the_mac_of_the_epoch_before() {
        let chain = Chain::start("a");
        let mut key = EpochKey([1; 32]);
        let checkpoint = Checkpoint::sign("a", &chain, 0, &mut key, &signer());
        assert!(checkpoint.is_tagged("a", &chain, &EpochKey([1; 32])));
        assert!(!checkpoint.is_tagged("a", &chain, &key));
    }
}
