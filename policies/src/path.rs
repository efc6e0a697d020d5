//! What a request's path and query are, in their one canonical spelling.
//!
//! What is judged is what is sent. Servers read some paths in two ways (is `%2F` a separator, is `//` one slash, is
//! `;x` a part of the name), so a path has a strict and a loose reading: an `[[allow]]` has to match under both, a
//! `[[deny]]` under either. What servers read in more ways than that is refused.

use std::borrow::Cow;

/// The canonical path and query of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestPath {
    sent: String,
    path_length: usize,
    // Both are `None` for almost every path, so that the usual request costs one allocation.
    strict: Option<Box<[u8]>>,
    loose: Option<Box<[u8]>>,
}

/// Why a text is not a path that we would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("the path does not begin with `/`")]
    NotAbsolute,
    /// A control, a space, a `#`, a `\` or something not ASCII stands in it.
    #[error("the path has a character that paths cannot have")]
    Character,
    /// A `%` is not followed by two hexadecimal digits.
    #[error("the path has a `%` without two hexadecimal digits")]
    Percent,
    /// Decoding yields a control or a `\`.
    #[error("the path hides a character behind percent-encoding that paths cannot have")]
    EncodedCharacter,
    /// Decoding does not yield UTF-8; overlong forms hide slashes and dots.
    #[error("the path is not UTF-8 after percent-decoding")]
    NotUtf8,
    /// A dot segment is hidden behind percent-encoding or a parameter.
    #[error("the path hides a `.` or `..` segment")]
    HiddenDots,
    /// There are more `..` than segments before them.
    #[error("the path climbs above its root")]
    AboveRoot,
    /// It is longer than any server takes.
    #[error("the path is too long")]
    TooLong,
}

impl RequestPath {
    /// Reads the path and query of a request target; an empty path is `/`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.len() > MAX_LENGTH {
            return Err(PathError::TooLong);
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let mut sent = String::with_capacity(text.len() + 1);
        canonical_path(path, &mut sent)?;
        let path_length = sent.len();
        if let Some(query) = query {
            sent.push('?');
            canonical_query(query, &mut sent)?;
        }
        let path = &sent.as_bytes()[..path_length];
        let strict = path.contains(&b'%').then(|| decode(path));
        let reading = strict.as_deref().unwrap_or(path);
        let loose = is_readable_otherwise(reading).then(|| loosen(reading).into_boxed_slice());
        let loose = loose.filter(|loose| **loose != *reading);
        Ok(Self {
            sent,
            path_length,
            strict: strict.map(Vec::into_boxed_slice),
            loose,
        })
    }

    /// The path and query, exactly as they are to be sent.
    pub fn sent(&self) -> &str {
        &self.sent
    }

    /// The path.
    pub fn path(&self) -> &str {
        &self.sent[..self.path_length]
    }

    /// What stands after the `?`.
    pub fn query(&self) -> Option<&str> {
        self.sent.get(self.path_length + 1..)
    }

    /// The names of the query's parameters, decoded where they can be, in their order.
    pub fn query_names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let query = self.query().unwrap_or("");
        query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let name = pair.split('=').next().unwrap_or(pair);
                decode_query(name).unwrap_or(Cow::Borrowed(name))
            })
    }

    /// The decoded path; `SLASH` stands for a `/` inside a segment.
    pub(crate) fn strict(&self) -> &[u8] {
        self.strict
            .as_deref()
            .unwrap_or(&self.sent.as_bytes()[..self.path_length])
    }

    /// The path as a careless server reads it, if that is something else.
    pub(crate) fn loose(&self) -> Option<&[u8]> {
        self.loose.as_deref()
    }
}

/// Stands for an encoded `/` in a decoded path. No path has a NUL, so it cannot be confused.
pub(crate) const SLASH: u8 = 0;

/// No server takes more in a request line.
const MAX_LENGTH: usize = 64 * 1024;

/// Decodes one parameter's name or value; `None` where that is not possible.
pub(crate) fn decode_query(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'%' => {
                decoded.push(hex_pair(tail)?);
                rest = &tail[2..];
            }
            b'+' => decoded.push(b' '),
            other => decoded.push(*other),
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// The value of two hexadecimal digits at the start.
pub(crate) fn hex_pair(bytes: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let value = digit(bytes.first()?)? << 4 | digit(bytes.get(1)?)?;
    u8::try_from(value).ok()
}

/// Whether a byte stands in a path as itself (RFC 3986, `pchar`).
pub(crate) fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(
            byte,
            b'!' | b'$'
                | b'&'
                | b'\''
                | b'('
                | b')'
                | b'*'
                | b'+'
                | b','
                | b';'
                | b'='
                | b':'
                | b'@'
        )
}

pub(crate) fn push_encoded(out: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(DIGITS[usize::from(byte >> 4)]));
    out.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The reading of a careless server: encoded slashes separate, empty segments do not count, parameters after `;`
/// and trailing dots and spaces are not part of a name.
pub(crate) fn loosen(reading: &[u8]) -> Vec<u8> {
    let mut loose = Vec::with_capacity(reading.len());
    for segment in reading.split(|byte| matches!(*byte, b'/' | SLASH)) {
        let name = bare_name(segment);
        if !name.is_empty() {
            loose.push(b'/');
            loose.extend_from_slice(name);
        }
    }
    loose
}

/// A segment without parameters, trailing dots and trailing spaces; all of it if nothing else is left.
fn bare_name(segment: &[u8]) -> &[u8] {
    let end = segment.iter().position(|byte| *byte == b';');
    let name = &segment[..end.unwrap_or(segment.len())];
    let kept = name.iter().rposition(|byte| !matches!(byte, b'.' | b' '));
    match kept {
        Some(last) => &name[..=last],
        None => name,
    }
}

/// Whether the loose reading may differ from this one.
fn is_readable_otherwise(reading: &[u8]) -> bool {
    let mut before = 0;
    for (at, byte) in reading.iter().enumerate() {
        match *byte {
            SLASH | b';' => return true,
            b'/' if at > 0 && matches!(before, b'/' | b'.' | b' ') => return true,
            _ => {}
        }
        before = *byte;
    }
    reading.len() > 1 && matches!(before, b'/' | b'.' | b' ')
}

fn canonical_path(path: &str, out: &mut String) -> Result<(), PathError> {
    if path.is_empty() {
        out.push('/');
        return Ok(());
    }
    let segments = path.strip_prefix('/').ok_or(PathError::NotAbsolute)?;
    let mut is_last_a_dot_segment = false;
    for segment in segments.split('/') {
        is_last_a_dot_segment = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => out.truncate(out.rfind('/').ok_or(PathError::AboveRoot)?),
            _ => {
                out.push('/');
                canonical_segment(segment, out)?;
            }
        }
    }
    // RFC 3986, 5.2.4: `/a/.` and `/a/b/..` are the folder `/a/`.
    if is_last_a_dot_segment || out.is_empty() {
        out.push('/');
    }
    Ok(())
}

fn canonical_segment(segment: &str, out: &mut String) -> Result<(), PathError> {
    let start = out.len();
    let mut is_encoded = false;
    let mut rest = segment.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match *byte {
            b'%' => {
                let decoded = hex_pair(tail).ok_or(PathError::Percent)?;
                rest = &tail[2..];
                is_encoded = true;
                match decoded {
                    0..0x20 | 0x7f | b'\\' => return Err(PathError::EncodedCharacter),
                    plain if is_unreserved(plain) => out.push(char::from(plain)),
                    other => push_encoded(out, other),
                }
            }
            plain if is_path_byte(plain) => out.push(char::from(plain)),
            // Browsers and libraries send these both ways; encoded they mean the same to everyone.
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' => push_encoded(out, *byte),
            _ => return Err(PathError::Character),
        }
    }
    let canonical = &out.as_bytes()[start..];
    if is_encoded && std::str::from_utf8(&decode(canonical)).is_err() {
        return Err(PathError::NotUtf8);
    }
    if canonical.starts_with(b".") || canonical.contains(&b'%') {
        refuse_hidden_dots(canonical)?;
    }
    Ok(())
}

/// Refuses a segment in which some server would find a dot segment: after decoding, however often, split at the
/// slashes that appear, without parameters and trailing spaces.
fn refuse_hidden_dots(segment: &[u8]) -> Result<(), PathError> {
    let mut reading = segment.to_vec();
    // Each round shortens the text, and whoever decodes more often than this has no security left to lose.
    for _ in 0..4 {
        for name in reading.split(|byte| matches!(*byte, b'/' | b'\\' | SLASH)) {
            let end = name.iter().position(|byte| *byte == b';');
            if matches!(
                name[..end.unwrap_or(name.len())].trim_ascii_end(),
                b"." | b".."
            ) {
                return Err(PathError::HiddenDots);
            }
        }
        if !reading.contains(&b'%') {
            break;
        }
        reading = decode(&reading);
    }
    Ok(())
}

/// Decodes each percent triplet once; an encoded `/` becomes [`SLASH`].
fn decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match (byte, hex_pair(tail)) {
            (b'%', Some(value)) => {
                decoded.push(if value == b'/' { SLASH } else { value });
                rest = &tail[2..];
            }
            _ => decoded.push(*byte),
        }
    }
    decoded
}

/// Queries are passed on as they came, for signatures are made over them; only what breaks a request line goes.
fn canonical_query(query: &str, out: &mut String) -> Result<(), PathError> {
    for byte in query.bytes() {
        match byte {
            0..=0x20 | 0x7f.. | b'#' => return Err(PathError::Character),
            b'"' | b'<' | b'>' => push_encoded(out, byte),
            _ => out.push(char::from(byte)),
        }
    }
    Ok(())
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
