//! The bytes of a stream as pieces of text: characters that come in parts are put together again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// One stream, cut into pieces.
#[derive(Debug, Default)]
pub struct Pieces {
    /// Bytes of a character that has not come as a whole yet.
    begun: Vec<u8>,
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The text, with bytes that are not UTF-8 replaced.
    pub text: String,
    /// The bytes (base64), where the text is not what was written.
    pub base64: Option<String>,
}

impl Pieces {
    /// The pieces that are whole by now, none longer than [`LONGEST`] bytes.
    pub fn add(&mut self, bytes: &[u8]) -> Vec<Piece> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        self.begun = all.split_off(whole(&all));
        let (mut rest, mut pieces) = (all.as_slice(), Vec::new());
        while !rest.is_empty() {
            let most = rest.len().min(LONGEST);
            // A character longer than that is none, so there is always something to take.
            let length = if most < rest.len() {
                whole(&rest[..most])
            } else {
                most
            };
            let (piece, left) = rest.split_at(length);
            pieces.push(Piece::of(piece));
            rest = left;
        }
        pieces
    }

    /// What is left when the stream has ended, if anything is.
    pub fn end(&mut self) -> Option<Piece> {
        let rest = std::mem::take(&mut self.begun);
        (!rest.is_empty()).then(|| Piece::of(&rest))
    }
}

impl Piece {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self {
                text: text.to_owned(),
                base64: None,
            },
            Err(_) => Self {
                text: String::from_utf8_lossy(bytes).into_owned(),
                base64: Some(STANDARD.encode(bytes)),
            },
        }
    }
}

/// How many of the bytes are whole characters, or none of UTF-8 at all.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // Only an end that may go on is kept back: three bytes at most.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => {
            let tail = bytes.len().saturating_sub(3);
            let begins = bytes[tail..].iter().rposition(|byte| *byte >= 0xC0);
            match begins.map(|at| tail + at) {
                Some(at)
                    if std::str::from_utf8(&bytes[at..])
                        .is_err_and(|error| error.error_len().is_none()) =>
                {
                    at
                }
                Some(_) | None => bytes.len(),
            }
        }
    }
}

/// No piece has more bytes than this.
pub const LONGEST: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_comes_in_parts_is_told_as_one() {
        let mut pieces = Pieces::default();
        let mut told = pieces.add(b"a\xe2\x82");
        told.extend(pieces.add(b"\xac!"));
        let text: String = told.iter().map(|piece| piece.text.as_str()).collect();
        assert_eq!(text, "a\u{20ac}!");
        assert!(told.iter().all(|piece| piece.base64.is_none()));
        assert_eq!(pieces.end(), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_there_too() {
        let mut pieces = Pieces::default();
        let told = pieces.add(b"a\xffb");
        assert_eq!(told[0].text, "a\u{fffd}b");
        assert_eq!(told[0].base64.as_deref(), Some("Yf9i"));
        // What ends within a character, too.
        assert_eq!(pieces.add(b"\xf0\x9f"), []);
        assert_eq!(pieces.end().unwrap().base64.as_deref(), Some("8J8="));
    }

    #[test]
    fn no_piece_is_long_and_nothing_gets_lost() {
        let long = "\u{20ac}".repeat(10_000);
        let told = Pieces::default().add(long.as_bytes());
        assert!(
            told.iter()
                .all(|piece| piece.text.len() <= LONGEST && piece.base64.is_none())
        );
        let text: String = told.into_iter().map(|piece| piece.text).collect();
        assert_eq!(text, long);
    }
}
