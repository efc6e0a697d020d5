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
