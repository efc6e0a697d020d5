//! The body of a request on its way to an upstream that speaks HTTP/2.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use tokio::task::AbortHandle;

use crate::body::Upload;

/// A body on its way. It is broken off when this is dropped.
pub(super) struct Uploading(Option<AbortHandle>);

impl Uploading {
    pub(super) fn start(body: Upload, stream: SendStream<Bytes>) -> Self {
        let task = tokio::spawn(async move {
            if let Err(error) = pass(body, stream).await {
                // The answer, or that there is none, is what the run is told.
                tracing::debug!(%error, "a body was not sent to its end");
            }
        });
        Self(Some(task.abort_handle()))
    }

    /// Lets it go on by itself.
    pub(super) fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

/// Passes a body on as fast as the upstream takes it.
async fn pass(mut body: Upload, mut stream: SendStream<Bytes>) -> Result<(), h2::Error> {
    loop {
        let frame = poll_fn(|cx| {
            if let Poll::Ready(stopped) = stopped(&mut stream, cx) {
                return Poll::Ready(Err(stopped));
            }
            Pin::new(&mut body).poll_frame(cx).map(Ok)
        });
        let frame = match frame.await? {
            None => return stream.send_data(Bytes::new(), true),
            Some(Err(error)) => {
                stream.send_reset(reason(&error));
                return Ok(());
            }
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => {
                let is_last = body.is_end_stream();
                if !data.is_empty() {
                    // No more than that: what is claimed and not used is missing to other streams.
                    stream.reserve_capacity(1);
                    poll_fn(|cx| room(&mut stream, cx)).await?;
                }
                stream.send_data(data, is_last)?;
                if is_last {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    stream.reserve_capacity(0);
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

/// Ready when the upstream takes more.
fn room(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
    if let Poll::Ready(stopped) = stopped(stream, cx) {
        return Poll::Ready(Err(stopped));
    }
    while stream.capacity() == 0 {
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => return Poll::Ready(Err(Reason::STREAM_CLOSED.into())),
        }
    }
    Poll::Ready(Ok(()))
}

/// Ready when the upstream takes nothing any more.
fn stopped(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<h2::Error> {
    stream
        .poll_reset(cx)
        .map(|reset| reset.map_or_else(|error| error, h2::Error::from))
}

/// What the upstream is told of a body that breaks off: what the run's own connection says, where that is HTTP/2.
fn reason(error: &(dyn Error + 'static)) -> Reason {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(reason) = error
            .downcast_ref::<h2::Error>()
            .and_then(h2::Error::reason)
        {
            return reason;
        }
        cause = error.source();
    }
    Reason::INTERNAL_ERROR
}
