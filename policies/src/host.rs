//! What a host is, in its one canonical spelling.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// A host in canonical form: two hosts are the same exactly when they are equal.
///
/// Names are A-labels in lower case without a trailing dot. Every spelling of an IPv4 address that some resolver
/// or URL parser understands (`127.1`, `0x7f000001`, `017700000001`, `::ffff:127.0.0.1`) is that address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name.
    Name(Name),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address that is not a mapped IPv4 one.
    V6(Ipv6Addr),
}

/// A canonical DNS name: at most 253 octets, labels of 1 to 63 letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

/// Why a text is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing is there.
    #[error("the host is empty")]
    Empty,
    /// A label between two dots, or before the first, is empty.
    #[error("the host has an empty label")]
    EmptyLabel,
    /// A label has more than 63 octets or the name more than 253.
    #[error("the host is too long")]
    TooLong,
    /// A character stands in it that no host name has.
    #[error("the host has a character that host names cannot have")]
    Character,
    /// UTS-46 refuses it: a disallowed character or a false A-label.
    #[error("the host is not a valid internationalised name")]
    Idna,
    /// It ends in a number but is no IPv4 address.
    #[error("the host looks like an IPv4 address but is none")]
    Ipv4,
    /// It is no IPv6 address.
    #[error("the host is not an IPv6 address")]
    Ipv6,
    /// It names a network interface.
    #[error("an address with a zone is not a host")]
    Zone,
}

impl Host {
    /// Reads a host: a name, an IPv4 address in any spelling, or an IPv6 address with or without brackets.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.len() > MAX_INPUT {
            return Err(HostError::TooLong);
        }
        if let Some(inner) = text.strip_prefix('[') {
            return parse_v6(inner.strip_suffix(']').ok_or(HostError::Ipv6)?);
        }
        if text.contains(':') {
            return parse_v6(text);
        }
        if is_plain(text) {
            return from_ascii(text);
        }
        let ascii = Uts46::new()
            .to_ascii(
                text.as_bytes(),
                AsciiDenyList::URL,
                Hyphens::Allow,
                DnsLength::Ignore,
            )
            .map_err(|_| idna_reason(text))?;
        from_ascii(&ascii)
    }

    /// The host as it stands in a URI: IPv6 addresses in brackets.
    pub fn uri(&self) -> String {
        match self {
            Self::Name(_) | Self::V4(_) => self.to_string(),
            Self::V6(address) => format!("[{address}]"),
        }
    }

    /// The DNS name, if it is one.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Name(name) => Some(name),
            Self::V4(_) | Self::V6(_) => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&name.0),
            Self::V4(address) => address.fmt(f),
            Self::V6(address) => address.fmt(f),
        }
    }
}

impl Name {
    /// The name in its canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels, leftmost first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// No host is longer, however it is written; what is longer is not worth the work of mapping it.
const MAX_INPUT: usize = 1024;

/// Whether UTS-46 would return the text unchanged: lower-case ASCII without A-labels.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_'))
        && !text.contains("xn--")
}

/// What to blame when UTS-46 refused a text without saying why.
fn idna_reason(text: &str) -> HostError {
    if text.is_ascii() && !text.to_ascii_lowercase().contains("xn--") {
        HostError::Character
    } else {
        HostError::Idna
    }
}

/// Takes what UTS-46 made and checks what UTS-46 leaves open.
fn from_ascii(text: &str) -> Result<Host, HostError> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.is_empty() {
        return Err(HostError::EmptyLabel);
    }
    let mut last = "";
    for label in text.split('.') {
        if label.is_empty() {
            return Err(HostError::EmptyLabel);
        }
        if label.len() > 63 {
            return Err(HostError::TooLong);
        }
        if !label
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
        {
            return Err(HostError::Character);
        }
        last = label;
    }
    if is_number(last) {
        return parse_v4(text).map(Host::V4).ok_or(HostError::Ipv4);
    }
    if text.len() > 253 {
        return Err(HostError::TooLong);
    }
    Ok(Host::Name(Name(text.into())))
}

/// The WHATWG "ends in a number" check, of the last label.
fn is_number(label: &str) -> bool {
    label.bytes().all(|b| b.is_ascii_digit())
        || label
            .strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The WHATWG IPv4 parser: what `inet_aton` and URL parsers take for an address.
fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<u64> = text.split('.').map(parse_number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    if front.len() > 3 || front.iter().any(|part| *part > 255) {
        return None;
    }
    let room = 8 * (4 - front.len() as u32);
    if *last >= 1 << room {
        return None;
    }
    let high = front
        .iter()
        .enumerate()
        .fold(0, |sum, (at, part)| sum | part << (24 - 8 * at));
    u32::try_from(high | last).ok().map(Ipv4Addr::from)
}

fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if digits.is_empty() {
        // `0x` alone is zero to URL parsers.
        return (radix == 16).then_some(0);
    }
    u64::from_str_radix(digits, radix).ok()
}

fn parse_v6(text: &str) -> Result<Host, HostError> {
    if text.contains('%') {
        return Err(HostError::Zone);
    }
    let address: Ipv6Addr = text.parse().map_err(|_| HostError::Ipv6)?;
    Ok(match address.to_ipv4_mapped() {
        Some(mapped) => Host::V4(mapped),
        None => Host::V6(address),
    })
}
