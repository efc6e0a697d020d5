//! The name of a policy: the hash of its canonical form.

use std::fmt;
use std::str::FromStr;

/// The SHA-256 of a canonical effective policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
        let mut digest = [0; 32];
        digest.copy_from_slice(hash.as_ref());
        Self(digest)
    }

    /// The raw hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text is not a digest.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest such as `sha256:` and 64 hexadecimal digits")]
pub struct NotADigest(String);

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let wrong = || NotADigest(text.chars().take(100).collect());
        let digits = text.strip_prefix(PREFIX).ok_or_else(wrong)?.as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let high = nibble(pair[0]).ok_or_else(wrong)?;
            let low = nibble(pair[1]).ok_or_else(wrong)?;
            *byte = high << 4 | low;
        }
        Ok(Self(digest))
    }
}

/// What a written digest begins with.
const PREFIX: &str = "sha256:";

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back_what_it_prints() {
        let digest = Digest::of(b"");
        assert_eq!(
            digest.to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
    }

    #[test]
    fn anything_else_is_not_a_digest() {
        for text in ["", "sha256:", "e3b0", "sha256:zz", &"x".repeat(71)] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
