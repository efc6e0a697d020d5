//! A client of HTTP/2 that sends whatever frames a test wants.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::World;

/// A connection of HTTP/2, frame by frame.
pub(crate) struct Frames {
    stream: TlsStream<TcpStream>,
}

/// A frame as it was read.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    pub(crate) async fn open(world: &World) -> Self {
        let stream = world.tunnel("api.test:443").await;
        let mut stream = world.handshake(stream, "api.test", b"h2").await.unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await
            .unwrap();
        let mut frames = Self { stream };
        assert!(frames.send(SETTINGS, 0, 0, b"").await);
        let first = frames.read().await.unwrap();
        assert_eq!(first.kind, SETTINGS);
        frames
    }

    /// Whether the connection took it.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await.is_ok() && self.stream.flush().await.is_ok()
    }

    /// A request without a body; its header is given as HPACK.
    pub(crate) async fn request(&mut self, stream: u32, header: &[u8]) {
        // END_STREAM, END_HEADERS.
        self.send(HEADERS, 0x5, stream, header).await;
    }

    pub(crate) async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some(Frame {
            kind: head[3],
            stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
            payload,
        })
    }

    /// `200` if the answer on this stream is that, another text if it is another, none if there is no answer.
    pub(crate) async fn answer(&mut self, stream: u32) -> Option<String> {
        loop {
            let frame = self.read().await?;
            match frame.kind {
                // 8 is `:status: 200` in the static table; it may come after changes of the table's size.
                HEADERS if frame.stream == stream => {
                    let is_200 = frame.payload.contains(&0x88);
                    return Some(if is_200 { "200" } else { "other" }.to_owned());
                }
                RST_STREAM if frame.stream == stream => return None,
                GOAWAY => return None,
                _ => {}
            }
        }
    }

    /// Reads until the connection has nothing more to say about what was sent before.
    pub(crate) async fn end(&mut self) {
        if !self.send(PING, 0, 0, b"the end!").await {
            return;
        }
        while let Some(frame) = self.read().await {
            if frame.kind == GOAWAY || frame.kind == PING && frame.payload == b"the end!" {
                return;
            }
        }
    }
}

/// A field as a literal that is not indexed (RFC 7541, section 6.2.2).
pub(crate) fn field(name: &str, value: &str) -> String {
    let length = |text: &str| char::from(u8::try_from(text.len()).unwrap());
    assert!(name.len() < 127 && value.len() < 127);
    format!("\0{}{name}{}{value}", length(name), length(value))
}

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
