//! What the first message of a TLS client says, read without answering it.

use std::io;

use bytes::Bytes;
use rustls::server::{Accepted, Acceptor};
use tokio::io::AsyncWriteExt;

use crate::stream::Stream;

/// A ClientHello, and the bytes it came in.
pub(crate) struct Hello {
    pub(crate) accepted: Accepted,
    pub(crate) bytes: Bytes,
}

impl Hello {
    /// The name in it.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.accepted
            .client_hello()
            .server_name()
            .map(str::to_owned)
    }
}

impl Hello {
    /// Whether it may name another host where only that host reads it (Encrypted Client Hello). Browsers send one that
    /// means nothing too, made so that it cannot be told from one that does.
    ///
    /// What cannot be read is taken for one.
    pub(crate) fn hides_a_name(&self) -> bool {
        extensions(&self.bytes).is_none_or(|all| all.contains(&ENCRYPTED_CLIENT_HELLO))
    }
}

/// The numbers of the extensions of a ClientHello (RFC 8446, section 4.1.2).
fn extensions(records: &[u8]) -> Option<Vec<u16>> {
    let message = message(records)?;
    // Type and length of the message, version, random; then three vectors before the one that is wanted.
    let rest = message.get(4 + 2 + 32..)?;
    let rest = skip_vector(rest, 1)?;
    let rest = skip_vector(rest, 2)?;
    let rest = skip_vector(rest, 1)?;
    let mut rest = rest.get(2..)?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (number, after) = rest.split_first_chunk::<2>()?;
        all.push(u16::from_be_bytes(*number));
        rest = skip_vector(after, 2)?;
    }
    Some(all)
}

/// The first message, put together from its records.
fn message(mut records: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(records.len());
    loop {
        if let Some([_, length @ ..]) = message.first_chunk::<4>() {
            let end = 4 + length
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            if message.len() >= end {
                message.truncate(end);
                return Some(message);
            }
        }
        let (header, after) = records.split_at_checked(RECORD_HEADER)?;
        let length = u16::from_be_bytes([header[3], header[4]]);
        let (fragment, after) = after.split_at_checked(length.into())?;
        message.extend_from_slice(fragment);
        records = after;
    }
}

/// What comes after a vector with a length of so many bytes.
fn skip_vector(bytes: &[u8], width: usize) -> Option<&[u8]> {
    let (length, rest) = bytes.split_at_checked(width)?;
    let length = length
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    rest.get(length..)
}

/// Reads a ClientHello, however it is cut into records and segments. What comes after it stays in the stream.
///
/// A false one is answered with its alert.
pub(crate) async fn read_hello(stream: &mut Stream) -> io::Result<Hello> {
    let mut acceptor = Acceptor::default();
    let mut fed = 0;
    loop {
        while fed < stream.ahead().len() {
            let mut rest = &stream.ahead()[fed..];
            let count = acceptor.read_tls(&mut rest)?;
            fed += count;
            match acceptor.accept() {
                Ok(Some(accepted)) => {
                    let bytes = stream.ahead().split_to(fed).freeze();
                    return Ok(Hello { accepted, bytes });
                }
                Ok(None) if count > 0 => {}
                Ok(None) => return Err(io::ErrorKind::InvalidData.into()),
                Err((error, mut alert)) => {
                    let mut bytes = Vec::new();
                    alert.write_all(&mut bytes)?;
                    // The client may be gone; it is refused either way.
                    let _ = stream.write_all(&bytes).await;
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
        if fed > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if !stream.read_ahead().await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

// Key shares of post-quantum exchanges make it long, not that long.
const LONGEST: usize = 64 * 1024;
const RECORD_HEADER: usize = 5;
/// RFC 9849.
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
