//! What a key of a provider looks like, so that clients accept a harmless value in its place.

/// The shape of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderShape(Vec<Part>);

/// A part of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Fixed(String),
    Random {
        alphabet: &'static [u8],
        length: usize,
    },
}

impl PlaceholderShape {
    /// Reads a shape such as `sk-{rand:48}`: `{rand:N}` letters and digits, `{hex:N}`, `{b32:N}`, `{digits:N}`,
    /// `{uuid}` and `{jwt}`. `None` if it is none, or has too little in it that is random.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((fixed, after)) = rest.split_once('{') {
            let (token, tail) = after.split_once('}')?;
            push_fixed(&mut parts, fixed);
            push_token(&mut parts, token)?;
            rest = tail;
        }
        push_fixed(&mut parts, rest);
        let shape = Self(parts);
        (!rest.contains('}') && shape.random_length() >= MIN_RANDOM).then_some(shape)
    }

    /// The shape of a key of which nothing is known.
    pub fn unknown() -> Self {
        Self(vec![
            Part::Fixed("vk-placeholder-".into()),
            Part::Random {
                alphabet: BASE62,
                length: 32,
            },
        ])
    }

    /// A harmless value of this shape; `entropy` gives one random byte a call.
    pub fn fill(&self, entropy: &mut dyn FnMut() -> u8) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Fixed(fixed) => text.push_str(fixed),
                Part::Random { alphabet, length } => {
                    for _ in 0..*length {
                        text.push(char::from(pick(alphabet, entropy)));
                    }
                }
            }
        }
        text
    }

    fn random_length(&self) -> usize {
        let length = |part: &Part| match part {
            Part::Fixed(_) => 0,
            Part::Random { length, .. } => *length,
        };
        self.0.iter().map(length).sum()
    }
}

/// Fewer random characters could be met by accident or guessed.
const MIN_RANDOM: usize = 12;
const MAX_LENGTH: usize = 1024;

const BASE62: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const HEX: &[u8] = b"0123456789abcdef";
const BASE32: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const DIGITS: &[u8] = b"0123456789";

fn push_fixed(parts: &mut Vec<Part>, text: &str) {
    if !text.is_empty() {
        parts.push(Part::Fixed(text.to_owned()));
    }
}

fn push_token(parts: &mut Vec<Part>, token: &str) -> Option<()> {
    let random = |alphabet, length| Part::Random { alphabet, length };
    match token.split_once(':') {
        Some((kind, length)) => {
            let length = length
                .parse()
                .ok()
                .filter(|n| (1..=MAX_LENGTH).contains(n))?;
            let alphabet = match kind {
                "rand" => BASE62,
                "hex" => HEX,
                "b32" => BASE32,
                "digits" => DIGITS,
                _ => return None,
            };
            parts.push(random(alphabet, length));
        }
        None => match token {
            "uuid" => {
                // Version 4, variant 8: what parsers of UUIDs accept.
                parts.extend([random(HEX, 8), Part::Fixed("-".into()), random(HEX, 4)]);
                parts.extend([Part::Fixed("-4".into()), random(HEX, 3)]);
                parts.extend([Part::Fixed("-8".into()), random(HEX, 3)]);
                parts.extend([Part::Fixed("-".into()), random(HEX, 12)]);
            }
            "jwt" => {
                // `{"alg":"HS256"}` and `{}`: it can be decoded, and says nothing.
                parts.push(Part::Fixed("eyJhbGciOiJIUzI1NiJ9.e30.".into()));
                parts.push(random(BASE62, 43));
            }
            _ => return None,
        },
    }
    Some(())
}

/// One character, each as likely as the others.
fn pick(alphabet: &[u8], entropy: &mut dyn FnMut() -> u8) -> u8 {
    let fair = 256 - 256 % alphabet.len();
    // A source that always gives the same byte must not hang us.
    for _ in 0..64 {
        let byte = usize::from(entropy());
        if byte < fair {
            return alphabet[byte % alphabet.len()];
        }
    }
    alphabet[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_filled() {
        let shape = PlaceholderShape::parse("sk-{hex:12}-{digits:4}").unwrap();
        assert_eq!(shape.fill(&mut || 0), "sk-000000000000-0000");
        let uuid = PlaceholderShape::parse("{uuid}").unwrap();
        assert_eq!(
            uuid.fill(&mut || 255),
            "ffffffff-ffff-4fff-8fff-ffffffffffff"
        );
    }

    #[test]
    fn a_text_that_could_be_met_by_accident_is_no_shape() {
        for text in [
            "",
            "key",
            "{hex:4}",
            "{rand:x}",
            "{rand:9999999}",
            "{what:20}",
            "{rand:20",
            "rand:20}",
        ] {
            assert_eq!(PlaceholderShape::parse(text), None, "{text}");
        }
    }
}
