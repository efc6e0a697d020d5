//! Random bytes, from the operating system through ring.

use ring::rand::{SecureRandom, SystemRandom};

use crate::Error;

/// Random bytes; an error if the operating system gives none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::NoEntropy)?;
    Ok(bytes)
}

/// A random number.
pub(crate) fn number() -> Result<u64, Error> {
    Ok(u64::from_le_bytes(bytes()?))
}
