//! Which paths a rule means.

use std::fmt;

use crate::path::{SLASH, hex_pair, is_path_byte, loosen, push_encoded};

/// A pattern of paths: `*` or `{name}` is one segment or a part of one, `**` any number of segments.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathPattern {
    strict: Vec<Segment>,
    loose: Vec<Segment>,
}

/// A part of a pattern between two slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Segment {
    /// Exactly this, decoded.
    Literal(Box<[u8]>),
    /// These in their order, with at least one byte between two; the first and last are at the ends.
    Glob(Vec<Box<[u8]>>),
    /// Any number of segments.
    Rest,
}

/// How letters are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// As they are.
    Sensitive,
    /// Without regard to ASCII case: some servers do, so a `[[deny]]` does.
    Insensitive,
}

/// Why a text is not a path pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// It does not begin with `/`.
    #[error("a path begins with `/`")]
    NotAbsolute,
    /// A query or fragment stands in it.
    #[error("a path has no `?` or `#`; conditions on the query go into `query`")]
    Query,
    /// A `.` or `..` segment can never match.
    #[error("a path with a `.` or `..` segment never matches")]
    Dots,
    /// `**` is not a whole segment.
    #[error("`**` must stand alone between slashes")]
    Rest,
    /// A `{` or `}` is alone, or what is between them is no name.
    #[error("a `{{name}}` has letters, digits and `_` between its braces")]
    Braces,
    /// Two wildcards stand side by side.
    #[error("two wildcards stand side by side")]
    Adjacent,
    /// A control, a `\` or a broken percent-encoding.
    #[error("a path has no control characters, `\\` or lone `%`")]
    Character,
    /// More segments or wildcards than any rule needs.
    #[error("the path has too many segments or wildcards")]
    TooLong,
}

impl PathPattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self, PathPatternError> {
        let segments = text
            .strip_prefix('/')
            .ok_or(PathPatternError::NotAbsolute)?;
        if text.contains(['?', '#']) {
            return Err(PathPatternError::Query);
        }
        let strict: Vec<Segment> = segments
            .split('/')
            .map(Segment::parse)
            .collect::<Result<_, _>>()?;
        let rests = strict.iter().filter(|s| matches!(s, Segment::Rest)).count();
        if strict.len() > MAX_SEGMENTS || rests > MAX_RESTS {
            return Err(PathPatternError::TooLong);
        }
        let loose = strict.iter().flat_map(Segment::loosen).collect();
        Ok(Self { strict, loose })
    }

    /// The pattern of everything at and below a path that was already canonical or comes from a configuration.
    pub fn below(prefix: &str) -> Result<Self, PathPatternError> {
        let prefix = prefix.trim_end_matches('/');
        let escaped = prefix
            .replace('*', "%2A")
            .replace('{', "%7B")
            .replace('}', "%7D");
        Self::parse(&format!("{escaped}/**"))
    }

    /// Whether the decoded path, strictly read, is one of those meant.
    pub(crate) fn matches_strict(&self, path: &[u8], case: Case) -> bool {
        matches(&self.strict, path, case)
    }

    /// Whether the path, loosely read, is one of those meant.
    pub(crate) fn matches_loose(&self, path: &[u8], case: Case) -> bool {
        matches(&self.loose, path, case)
    }

    /// Whether every path that this pattern matches is surely matched by the other.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        is_within(&self.strict, &other.strict)
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.strict {
            let text = match segment {
                Segment::Rest => "**".to_owned(),
                Segment::Literal(literal) => encode(literal),
                Segment::Glob(pieces) => {
                    let pieces: Vec<_> = pieces.iter().map(|piece| encode(piece)).collect();
                    pieces.join("*")
                }
            };
            write!(f, "/{text}")?;
        }
        Ok(())
    }
}

impl Segment {
    fn parse(text: &str) -> Result<Self, PathPatternError> {
        if text == "**" {
            return Ok(Self::Rest);
        }
        if text.contains("**") {
            return Err(PathPatternError::Rest);
        }
        let mut pieces = vec![Vec::new()];
        let mut rest = text.as_bytes();
        while let [byte, tail @ ..] = rest {
            rest = tail;
            let piece = match pieces.last_mut() {
                Some(piece) => piece,
                None => return Err(PathPatternError::Character),
            };
            match byte {
                b'%' => {
                    let decoded = hex_pair(tail).ok_or(PathPatternError::Character)?;
                    rest = &tail[2..];
                    if matches!(decoded, 0..0x20 | 0x7f | b'\\') {
                        return Err(PathPatternError::Character);
                    }
                    piece.push(if decoded == b'/' { SLASH } else { decoded });
                }
                b'*' => pieces.push(Vec::new()),
                b'{' => {
                    let end = tail.iter().position(|byte| *byte == b'}');
                    let name = &tail[..end.ok_or(PathPatternError::Braces)?];
                    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                    if name.is_empty() || !name.iter().all(is_name) {
                        return Err(PathPatternError::Braces);
                    }
                    rest = &tail[name.len() + 1..];
                    pieces.push(Vec::new());
                }
                b'}' => return Err(PathPatternError::Braces),
                0..0x20 | 0x7f | b'\\' => return Err(PathPatternError::Character),
                other => piece.push(*other),
            }
        }
        let mut pieces: Vec<Box<[u8]>> = pieces.into_iter().map(Vec::into_boxed_slice).collect();
        let inner = pieces.len().saturating_sub(1);
        if pieces
            .iter()
            .skip(1)
            .take(inner.saturating_sub(1))
            .any(|p| p.is_empty())
        {
            return Err(PathPatternError::Adjacent);
        }
        match pieces.len() {
            1 => {
                let literal = pieces.remove(0);
                if matches!(&*literal, b"." | b"..") {
                    return Err(PathPatternError::Dots);
                }
                Ok(Self::Literal(literal))
            }
            _ => Ok(Self::Glob(pieces)),
        }
    }

    /// The segments that this one is to a careless server.
    fn loosen(&self) -> Vec<Self> {
        match self {
            Self::Rest => vec![Self::Rest],
            Self::Glob(pieces) => vec![Self::Glob(pieces.clone())],
            Self::Literal(literal) => loosen(literal)
                .split(|byte| *byte == b'/')
                .filter(|name| !name.is_empty())
                .map(|name| Self::Literal(name.into()))
                .collect(),
        }
    }

    fn matches(&self, name: &[u8], case: Case) -> bool {
        match self {
            Self::Literal(literal) => is_same(literal, name, case),
            Self::Glob(pieces) => matches_glob(pieces, name, case),
            Self::Rest => false,
        }
    }
}

/// More are not needed; the bounds keep hostile patterns cheap.
const MAX_SEGMENTS: usize = 64;
const MAX_RESTS: usize = 4;

/// Matches segment by segment; after a `**`, a mismatch goes back and lets it take one segment more.
fn matches(pattern: &[Segment], path: &[u8], case: Case) -> bool {
    let mut pattern = pattern;
    let mut path = split_first(path);
    let mut retry = None;
    loop {
        match (pattern.split_first(), path) {
            (Some((Segment::Rest, after)), _) => {
                retry = Some((after, path));
                pattern = after;
                continue;
            }
            (Some((segment, after)), Some((name, rest))) if segment.matches(name, case) => {
                pattern = after;
                path = split_first(rest);
                continue;
            }
            (None, None) => return true,
            (None, Some(_)) | (Some(_), _) => {}
        }
        let Some((after, Some((_, rest)))) = retry else {
            return false;
        };
        retry = Some((after, split_first(rest)));
        pattern = after;
        path = split_first(rest);
    }
}

/// The first segment of a path and what follows it; `None` at the end. The root alone has no segment but an empty
/// one, as has a path that ends in a slash.
fn split_first(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let names = path.strip_prefix(b"/")?;
    let end = names.iter().position(|byte| *byte == b'/');
    Some(names.split_at(end.unwrap_or(names.len())))
}

fn is_same(a: &[u8], b: &[u8], case: Case) -> bool {
    match case {
        Case::Sensitive => a == b,
        Case::Insensitive => a.eq_ignore_ascii_case(b),
    }
}

fn matches_glob(pieces: &[Box<[u8]>], name: &[u8], case: Case) -> bool {
    let Some(([first, middle @ ..], last)) = pieces.split_last().map(|(l, f)| (f, l)) else {
        return false;
    };
    let Some((head, rest)) = name.split_at_checked(first.len()) else {
        return false;
    };
    let Some((mut rest, tail)) = rest
        .len()
        .checked_sub(last.len())
        .and_then(|at| rest.split_at_checked(at))
    else {
        return false;
    };
    if !is_same(first, head, case) || !is_same(last, tail, case) {
        return false;
    }
    for piece in middle {
        // A wildcard takes at least one byte.
        let found = rest
            .windows(piece.len())
            .skip(1)
            .position(|window| is_same(piece, window, case));
        let Some(at) = found else {
            return false;
        };
        rest = &rest[at + 1 + piece.len()..];
    }
    !rest.is_empty()
}

fn is_within(inner: &[Segment], outer: &[Segment]) -> bool {
    match (inner.split_first(), outer.split_first()) {
        (None, None) => true,
        (None, Some((Segment::Rest, after))) => is_within(inner, after),
        (None, Some(_)) | (Some(_), None) => false,
        (Some((_, inner_after)), Some((Segment::Rest, after))) => {
            is_within(inner, after) || is_within(inner_after, outer)
        }
        (Some((Segment::Rest, _)), Some(_)) => false,
        (Some((a, inner_after)), Some((b, after))) => {
            a.is_segment_within(b) && is_within(inner_after, after)
        }
    }
}

impl Segment {
    fn is_segment_within(&self, outer: &Self) -> bool {
        match (self, outer) {
            (Self::Literal(literal), outer) => outer.matches(literal, Case::Sensitive),
            // `*` alone takes every segment that a wildcard can take.
            (Self::Glob(_), Self::Glob(pieces)) => {
                self == outer || pieces.iter().all(|piece| piece.is_empty())
            }
            (Self::Glob(_), Self::Literal(_)) | (Self::Rest, _) | (_, Self::Rest) => false,
        }
    }
}

fn encode(literal: &[u8]) -> String {
    let mut text = String::with_capacity(literal.len());
    for byte in literal {
        match *byte {
            SLASH => text.push_str("%2F"),
            b'*' => push_encoded(&mut text, b'*'),
            plain if is_path_byte(plain) => text.push(char::from(plain)),
            other => push_encoded(&mut text, other),
        }
    }
    text
}

#[cfg(test)]
mod tests;
