//! A connection on which what hyper answers to an unreadable request is kept back, so that it is said in our words.
//!
//! hyper writes a bare `400`, `414` or `431` by itself, says nothing about it to its caller until it has ended, and has
//! no hook for it. So an answer of just that form is not passed on at once: whatever hyper does next on the connection
//! shows what it was. After its own answer it reads nothing more and ends with an error; after any other it goes on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// The bytes of a connection, without hyper's own refusals.
pub(crate) struct Unread<S> {
    stream: S,
    /// What may be a refusal of hyper's, or what is left of it once it turned out to be none.
    held: Bytes,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Unread<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            held: Bytes::new(),
        }
    }

    /// The status that hyper would have answered with, if the last thing it said was a refusal.
    pub(crate) fn status(&self) -> Option<u16> {
        let digits = self.held.get(9..12)?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Passes on what was kept back to the end, if there is anything: hyper has no complaint.
    pub(crate) async fn end(&mut self, patience: Duration) {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return;
        }
        let passing = async {
            self.stream.write_all(&held).await?;
            self.stream.shutdown().await
        };
        // A client that does not listen is not told.
        let _ = timeout(patience, passing).await;
    }

    /// Says this instead, and ends the connection so that the client can read it.
    pub(crate) async fn end_with(&mut self, answer: &[u8], patience: Duration) {
        self.held.clear();
        let saying = async {
            self.stream.write_all(answer).await?;
            self.stream.shutdown().await?;
            // A socket that is closed with unread bytes in it takes back what it has sent (RFC 9112, section 9.6).
            let mut rest = vec![0; 16 * 1024];
            for _ in 0..MOST_DRAINED {
                if self.stream.read(&mut rest).await? == 0 {
                    break;
                }
            }
            Ok::<_, io::Error>(())
        };
        // A client that does not listen is not told.
        let _ = timeout(patience, saying).await;
    }

    /// Passes on what was kept back: it was no refusal.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.held))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(count);
            if self.held.is_empty() {
                ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Unread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_release(cx))?;
        match refusal_at(bytes) {
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
            Some(0) => {
                self.held = Bytes::copy_from_slice(bytes);
                Poll::Ready(Ok(bytes.len()))
            }
            // The end of another answer comes first.
            Some(start) => Pin::new(&mut self.stream).poll_write(cx, &bytes[..start]),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_release(cx))?;
        let last = slices.iter().rposition(|slice| !slice.is_empty());
        match last {
            Some(last) if refusal_at(&slices[last]).is_some() => {
                let before = &slices[..last];
                if before.iter().all(|slice| slice.is_empty()) {
                    self.poll_write(cx, &slices[last])
                } else {
                    Pin::new(&mut self.stream).poll_write_vectored(cx, before)
                }
            }
            Some(_) | None => Pin::new(&mut self.stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Which of the two it was is known only once hyper has ended; then the one or the other end follows.
        if !self.held.is_empty() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where an answer as hyper makes it up begins, if these bytes end with one.
fn refusal_at(bytes: &[u8]) -> Option<usize> {
    let end = bytes.strip_suffix(b" GMT\r\n\r\n")?;
    let head = &end[..end.len().checked_sub(DATE)?];
    let head = head.strip_suffix(b"date: ")?;
    REFUSALS
        .iter()
        .find_map(|refusal| head.strip_suffix(*refusal))
        .map(<[u8]>::len)
}

/// `Tue, 01 Dec 2026 02:40:50`.
const DATE: usize = 25;
const REFUSALS: [&[u8]; 3] = [
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n",
    b"HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n",
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n",
];
/// Reads, each of a few segments.
const MOST_DRAINED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSAL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Tue, 01 Dec 2026 02:40:50 GMT\r\n\r\n";

    #[tokio::test]
    async fn a_refusal_is_kept_back_and_said_otherwise() {
        let (client, mut server) = tokio::io::duplex(1024);
        let mut unread = Unread::new(client);
        unread.write_all(b"the end of an answer").await.unwrap();
        unread.write_all(REFUSAL).await.unwrap();
        unread.flush().await.unwrap();
        assert_eq!(unread.status(), Some(400));
        let mut seen = vec![0; 20];
        server.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, b"the end of an answer");
        drop(server);
        unread.end_with(b"no", Duration::ZERO).await;
        assert_eq!(unread.status(), None);
    }

    #[tokio::test]
    async fn what_only_looks_like_a_refusal_passes_at_the_end_too() {
        let (client, mut server) = tokio::io::duplex(1024);
        let mut unread = Unread::new(client);
        unread.write_all(REFUSAL).await.unwrap();
        unread.shutdown().await.unwrap();
        unread.end(Duration::from_secs(1)).await;
        let mut seen = Vec::new();
        server.read_to_end(&mut seen).await.unwrap();
        assert_eq!(seen, REFUSAL);
    }

    #[tokio::test]
    async fn what_only_looks_like_a_refusal_passes_before_anything_else_happens() {
        let (client, mut server) = tokio::io::duplex(1024);
        let mut unread = Unread::new(client);
        let body = [b"body ", REFUSAL].concat();
        unread.write_all(&body).await.unwrap();
        let waiting = tokio::spawn(async move { unread.read_u8().await });
        let mut seen = vec![0; body.len()];
        server.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, body);
        drop(server);
        assert!(waiting.await.unwrap().is_err());
    }
}
