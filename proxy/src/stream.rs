//! The bytes of one connection, whatever carries them, with those that were read ahead given back first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::watch::Activity;

/// One connection of a run.
pub(crate) struct Stream {
    transport: Transport,
    /// What was read to find out what is spoken here.
    ahead: BytesMut,
    /// Told of every byte, once there is one who watches.
    activity: Option<Activity>,
}

/// What carries a connection.
pub(crate) enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    Memory(DuplexStream),
}

impl Stream {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            ahead: BytesMut::new(),
            activity: None,
        }
    }

    /// What was read ahead and not yet taken.
    pub(crate) fn ahead(&mut self) -> &mut BytesMut {
        &mut self.ahead
    }

    /// Reads more ahead. Whether anything came.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<bool> {
        self.ahead.reserve(CHUNK);
        let count = match &mut self.transport {
            Transport::Tcp(stream) => stream.read_buf(&mut self.ahead).await?,
            Transport::Unix(stream) => stream.read_buf(&mut self.ahead).await?,
            Transport::Memory(stream) => stream.read_buf(&mut self.ahead).await?,
        };
        Ok(count > 0)
    }

    pub(crate) fn watched_by(&mut self, activity: Activity) {
        self.activity = Some(activity);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let polled = if this.ahead.is_empty() {
            match &mut this.transport {
                Transport::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
                Transport::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
                Transport::Memory(stream) => Pin::new(stream).poll_read(cx, buffer),
            }
        } else {
            let count = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(&this.ahead[..count]);
            this.ahead.advance(count);
            if this.ahead.is_empty() {
                this.ahead = BytesMut::new();
            }
            Poll::Ready(Ok(()))
        };
        if buffer.filled().len() > before
            && let Some(activity) = &this.activity
        {
            activity.received();
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Memory(stream) => Pin::new(stream).poll_write(cx, bytes),
        };
        self.note_sent(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match &mut self.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Memory(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        };
        self.note_sent(polled)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Memory(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Memory(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

impl Stream {
    fn note_sent(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(_)), Some(activity)) = (&polled, &self.activity) {
            activity.sent();
        }
        polled
    }
}

const CHUNK: usize = 4096;
