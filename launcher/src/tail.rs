//! The last part of a stream, kept while it passes.

use sdk::report::Tail;

/// What was last on a stream.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    bytes: Vec<u8>,
    all: u64,
}

impl Recent {
    /// Adds what has come.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.all += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        // Cut at twice the size, so that bytes are moved once for every one that comes.
        if self.bytes.len() > 2 * KEPT {
            self.bytes.drain(..self.bytes.len() - KEPT);
        }
    }

    /// The tail as text.
    pub(crate) fn into_tail(self) -> Tail {
        let start = self.bytes.len().saturating_sub(KEPT);
        let kept = &self.bytes[start..];
        Tail {
            text: String::from_utf8_lossy(kept).into_owned(),
            truncated: (kept.len() as u64) < self.all,
            bytes: self.all,
        }
    }
}

const KEPT: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_stream_is_kept_whole() {
        let mut recent = Recent::default();
        recent.add(b"hello");
        let tail = recent.into_tail();
        assert_eq!(
            (tail.text.as_str(), tail.truncated, tail.bytes),
            ("hello", false, 5)
        );
    }

    #[test]
    fn of_a_long_stream_the_end_is_kept() {
        let mut recent = Recent::default();
        for _ in 0..1000 {
            recent.add(&[b'x'; 1000]);
        }
        recent.add(b"end");
        let tail = recent.into_tail();
        assert!(tail.text.ends_with("end") && tail.truncated);
        assert_eq!((tail.text.len(), tail.bytes), (KEPT, 1_000_003));
    }
}
