//! What runs and requests are called: a prefix that says what the thing is, and a value that sorts by time.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The name of a run, such as `run_01jx3v6m8k9q2w4e000`.
pub type RunId = Id<Run>;

/// The name of a request, such as `req_01jx3v6m8k9q2w4e000`.
pub type RequestId = Id<Request>;

/// The name of one thing of a kind.
pub struct Id<K> {
    text: Arc<str>,
    kind: PhantomData<fn() -> K>,
}

/// A kind of thing that has names.
pub trait Named {
    /// What every name of this kind begins with.
    const PREFIX: &'static str;
}

/// The kind of [`RunId`].
pub enum Run {}

/// The kind of [`RequestId`].
pub enum Request {}

impl Named for Run {
    const PREFIX: &'static str = "run_";
}

impl Named for Request {
    const PREFIX: &'static str = "req_";
}

/// Text that names nothing of the kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an identifier that begins with `{prefix}`")]
pub struct IdError {
    text: String,
    prefix: &'static str,
}

impl<K: Named> Id<K> {
    /// Makes a name from the time, in milliseconds since the epoch, and random bits, of which 50 are used.
    ///
    /// Written in Crockford's base 32, so that names sort by time and hold no look-alike letters.
    pub fn new(unix_ms: u64, entropy: u64) -> Self {
        let mut text = String::with_capacity(K::PREFIX.len() + TIME_DIGITS + RANDOM_DIGITS);
        text.push_str(K::PREFIX);
        for (value, digits) in [(unix_ms, TIME_DIGITS), (entropy, RANDOM_DIGITS)] {
            for digit in (0..digits).rev() {
                text.push(char::from(ALPHABET[(value >> (5 * digit)) as usize & 31]));
            }
        }
        Self::from_checked(text.into())
    }
}

impl<K> Id<K> {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn from_checked(text: Arc<str>) -> Self {
        Self {
            text,
            kind: PhantomData,
        }
    }
}

impl<K: Named> FromStr for Id<K> {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let is_name = text.strip_prefix(K::PREFIX).is_some_and(|body| {
            body.len() == TIME_DIGITS + RANDOM_DIGITS
                && body.bytes().all(|byte| ALPHABET.contains(&byte))
        });
        if is_name {
            Ok(Self::from_checked(text.into()))
        } else {
            Err(IdError {
                text: text.chars().take(64).collect(),
                prefix: K::PREFIX,
            })
        }
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        Self::from_checked(Arc::clone(&self.text))
    }
}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<K> Eq for Id<K> {}

impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de, K: Named> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

// Nine digits of five bits hold milliseconds until the year 3084.
const TIME_DIGITS: usize = 9;
const RANDOM_DIGITS: usize = 10;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_as_itself() {
        let id = RunId::new(1_764_549_391_000, 0x1234_5678_9abc);
        assert_eq!(id.as_str().parse::<RunId>().unwrap(), id);
    }

    #[test]
    fn names_sort_by_time() {
        assert!(RunId::new(1, u64::MAX) < RunId::new(2, 0));
    }

    #[test]
    fn a_path_is_not_a_name() {
        assert!("run_../../etc/passwd".parse::<RunId>().is_err());
        assert!("req_000000000000000000a".parse::<RunId>().is_err());
    }
}
