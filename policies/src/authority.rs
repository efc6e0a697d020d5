//! What a host with a port is.

use std::fmt;

use crate::host::{Host, HostError};

/// A host and a port, as in CONNECT or in a `Host` field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port; never 0.
    pub port: u16,
}

/// Why a text is not an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// A user name stands in it. It hides the real host from a reader.
    #[error("an authority cannot hold a user name")]
    Userinfo,
    /// A byte stands in it that no authority has: a control, a space, a slash, something not ASCII.
    #[error("the authority has a character that authorities cannot have")]
    Character,
    /// The port is missing where one is needed, empty, zero, too big, or not a plain decimal number.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// The host is not a host.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Authority {
    /// Reads `host:port` as it comes over the wire: ASCII only, IPv6 addresses in brackets.
    ///
    /// `default_port` is meant where no port is written; without one, a port must be written.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, AuthorityError> {
        if text.contains('@') {
            return Err(AuthorityError::Userinfo);
        }
        if !text.bytes().all(is_authority_byte) {
            return Err(AuthorityError::Character);
        }
        let (host, port) = if text.starts_with('[') {
            let end = text.find(']').ok_or(HostError::Ipv6)?;
            let (host, rest) = text.split_at(end + 1);
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(AuthorityError::Port),
            }
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = match port {
            Some(digits) => parse_port(digits),
            None => default_port.filter(|port| *port != 0),
        };
        Ok(Self {
            host: Host::parse(host)?,
            port: port.ok_or(AuthorityError::Port)?,
        })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(_) | Host::V4(_) => write!(f, "{}:{}", self.host, self.port),
            Host::V6(address) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// A port in its only spelling: no sign, no leading zero, not 0.
fn parse_port(digits: &str) -> Option<u16> {
    let plain =
        digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    plain.then(|| digits.parse().ok()).flatten()
}

/// Letters, digits, and what names, addresses and ports are written with. `%` is not among them: a host is never
/// percent-encoded here, because not everyone behind us would decode it.
fn is_authority_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
}
