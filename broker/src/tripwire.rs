//! Finds in what leaves a run the things that must not: its token, and placeholders where they do not belong.

use aho_corasick::{AhoCorasick, AhoCorasickKind, Match, MatchKind};
use base64::Engine;
use base64::alphabet::{Alphabet, STANDARD, URL_SAFE};
use base64::engine::{GeneralPurpose, general_purpose::NO_PAD};

use crate::{Error, hex};

/// Finds a run's token and placeholders in header values and URLs.
///
/// It finds them as they are, percent-encoded, in base64 at any alignment, and in hexadecimal. It cannot find what was
/// transformed in another way.
pub struct Tripwire {
    patterns: AhoCorasick,
    /// The same, whatever the case of the letters.
    caseless: AhoCorasick,
    /// No pattern is shorter.
    shortest: usize,
    /// What each pattern stands for: a place in `secrets`, or none for the token.
    meaning: Vec<Option<usize>>,
    secrets: Vec<String>,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'t> {
    /// The placeholder of this secret, by the owner's name.
    Placeholder(&'t str),
    /// The run's token or its alias.
    RunToken,
}

impl Tripwire {
    /// A tripwire for placeholders, by secret, and for the forms of the token.
    pub(crate) fn new<'s>(
        placeholders: impl Iterator<Item = (&'s str, &'s str)>,
        tokens: &[&str],
    ) -> Result<Self, Error> {
        let (mut texts, mut meaning, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
        for token in tokens {
            for text in renderings(token) {
                texts.push(text);
                meaning.push(None);
            }
        }
        for (secret, placeholder) in placeholders {
            for text in renderings(placeholder) {
                texts.push(text);
                meaning.push(Some(secrets.len()));
            }
            secrets.push(secret.to_owned());
        }
        let patterns = AhoCorasick::builder()
            // Leftmost search may use vector instructions; a DFA would cost a megabyte a run.
            .match_kind(MatchKind::LeftmostFirst)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&texts)
            .map_err(Error::Tripwire)?;
        let caseless = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostFirst)
            .kind(Some(AhoCorasickKind::NoncontiguousNFA))
            .ascii_case_insensitive(true)
            .build(&texts)
            .map_err(Error::Tripwire)?;
        Ok(Self {
            shortest: texts.iter().map(String::len).min().unwrap_or(usize::MAX),
            patterns,
            caseless,
            meaning,
            secrets,
        })
    }

    /// The first thing found, if there is any.
    pub fn find(&self, text: &[u8]) -> Option<Found<'_>> {
        if text.len() < self.shortest {
            return None;
        }
        self.meaning_of(&self.patterns.find(text)?)
    }

    /// The first thing found in the name of a field or of a host: neither keeps the case of its letters, and who knows
    /// how they were written knows enough.
    pub fn find_in_name(&self, name: &[u8]) -> Option<Found<'_>> {
        if name.len() < self.shortest {
            return None;
        }
        self.meaning_of(&self.caseless.find(name)?)
    }

    fn meaning_of(&self, found: &Match) -> Option<Found<'_>> {
        let meaning = self.meaning.get(found.pattern().as_usize())?;
        Some(match meaning {
            None => Found::RunToken,
            Some(secret) => self
                .secrets
                .get(*secret)
                .map_or(Found::RunToken, |name| Found::Placeholder(name)),
        })
    }
}

/// The ways in which a text is cheaply written down.
fn renderings(text: &str) -> Vec<String> {
    let mut all = vec![text.to_owned(), percent(text, false), percent(text, true)];
    for alphabet in [&STANDARD, &URL_SAFE] {
        all.extend((0..3).map(|shift| base64_core(text, alphabet, shift)));
    }
    let digits = hex::encode(text.as_bytes());
    all.push(digits.to_ascii_uppercase());
    all.push(digits);
    all.sort_unstable();
    all.dedup();
    all
}

/// Percent-encoding of everything but unreserved characters (RFC 3986, section 2.3).
fn percent(text: &str, is_lower: bool) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ if is_lower => format!("%{byte:02x}"),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// The part of the base64 of any text around this one that depends on this one alone, if it begins at this place in a
/// group of three bytes.
fn base64_core(text: &str, alphabet: &Alphabet, shift: usize) -> String {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(text.as_bytes());
    let encoded = GeneralPurpose::new(alphabet, NO_PAD).encode(&bytes);
    // The digits that share bits with what stands before.
    let front = [0, 2, 3][shift];
    // Whole digits only: the last one shares bits with what comes after, unless the bytes fill their groups.
    let back = bytes.len() * 8 / 6;
    encoded[front..back].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACEHOLDER: &str = "sk-proj-placeholder+slash/0123456789";
    const TOKEN: &str = "vkr_0123456789abcdefghijklmnopqrstuvwxyz";

    fn tripwire() -> Tripwire {
        Tripwire::new([("openai", PLACEHOLDER)].into_iter(), &[TOKEN]).unwrap()
    }

    #[test]
    fn a_placeholder_is_found_by_its_secret() {
        let text = format!("Bearer {PLACEHOLDER}!");
        let tripwire = tripwire();
        let found = tripwire.find(text.as_bytes());
        assert_eq!(found, Some(Found::Placeholder("openai")));
    }

    #[test]
    fn the_token_is_found_in_base64_at_every_alignment() {
        let tripwire = tripwire();
        for front in ["", "a", "ab", "run:"] {
            for alphabet in [&STANDARD, &URL_SAFE] {
                let encoded =
                    GeneralPurpose::new(alphabet, NO_PAD).encode(format!("{front}{TOKEN}:tail"));
                assert_eq!(tripwire.find(encoded.as_bytes()), Some(Found::RunToken));
            }
        }
    }

    #[test]
    fn percent_encoding_in_either_case_hides_nothing() {
        let tripwire = tripwire();
        for text in [percent(PLACEHOLDER, false), percent(PLACEHOLDER, true)] {
            assert!(text.contains('%'));
            assert!(tripwire.find(text.as_bytes()).is_some());
        }
    }

    #[test]
    fn hexadecimal_hides_nothing() {
        let digits = hex::encode(TOKEN.as_bytes());
        let tripwire = tripwire();
        assert!(tripwire.find(digits.as_bytes()).is_some());
        assert!(tripwire.find(digits.to_uppercase().as_bytes()).is_some());
    }

    #[test]
    fn a_name_in_which_letters_lost_their_case_hides_nothing() {
        let tripwire = tripwire();
        let name = format!("x-{}", TOKEN.to_ascii_lowercase());
        assert_eq!(
            tripwire.find_in_name(name.as_bytes()),
            Some(Found::RunToken)
        );
        assert_eq!(
            tripwire.find_in_name(b"content-security-policy-report-only"),
            None
        );
    }

    #[test]
    fn an_ordinary_value_passes() {
        let tripwire = tripwire();
        for text in ["application/json", "sk-proj-placeholder", "", "vkr_0123"] {
            assert_eq!(tripwire.find(text.as_bytes()), None);
        }
    }
}
