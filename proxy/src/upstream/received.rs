//! The body of an upstream's answer, in either version of HTTP.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

/// A body as it comes from an upstream.
pub(crate) enum Received {
    /// On a connection of its own.
    One(Incoming),
    /// On a connection that others use, too.
    Many(Stream),
}

/// A body that is one of many streams.
pub(crate) struct Stream {
    stream: RecvStream,
    /// How much is still to come, if that was said.
    left: Option<u64>,
    /// Whether only trailers may follow.
    is_data_over: bool,
}

impl Received {
    pub(super) fn many(stream: RecvStream, length: Option<u64>) -> Self {
        let left = length.or_else(|| stream.is_end_stream().then_some(0));
        Self::Many(Stream {
            stream,
            left,
            is_data_over: false,
        })
    }
}

impl Stream {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    // It can fail only for more than was received.
                    let _ = self.stream.flow_control().release_capacity(bytes.len());
                    if let Some(left) = &mut self.left {
                        *left = left.saturating_sub(bytes.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => return Poll::Ready(broken(error)),
                None => self.is_data_over = true,
            }
        }
        match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Poll::Ready(broken(error)),
        }
    }
}

/// What a broken stream is to those who read it.
fn broken(error: h2::Error) -> Option<Result<Frame<Bytes>, h2::Error>> {
    // The whole answer was sent, and no more of the request is wanted (RFC 9113, section 8.1).
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(error))
}

impl Body for Received {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::One(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Self::Many(stream) => stream.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::One(incoming) => incoming.is_end_stream(),
            Self::Many(stream) => stream.stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::One(incoming) => incoming.size_hint(),
            Self::Many(stream) => stream
                .left
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
