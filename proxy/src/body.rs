//! The bodies that pass: counted, never collected.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use broker::{Broker, Found, Run};
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use sdk::Code;
use sdk::audit::{Event, EventKind};
use tokio::sync::OwnedSemaphorePermit;

use crate::record::Record;
use crate::upstream::{Lease, Received};
use crate::watch::Carried;
use crate::{fields, leak};

/// The body of an answer to a run.
pub(crate) enum Body {
    /// Ours.
    Whole(Bytes),
    /// An upstream's, as it comes.
    Passing(Box<Passing>),
}

/// An upstream's answer on its way, with what has to happen at its end.
pub(crate) struct Passing {
    incoming: Received,
    /// Gives the connection back to the pool at the end of the body, not before.
    lease: Option<Lease>,
    record: Record,
    _place: OwnedSemaphorePermit,
    _active: Carried,
}

/// What a request holds until the last byte of its answer has passed.
pub(crate) struct Ends {
    pub(crate) lease: Lease,
    pub(crate) record: Record,
    /// One of the requests that its run may have in flight.
    pub(crate) place: OwnedSemaphorePermit,
    /// Its connection is not idle.
    pub(crate) active: Carried,
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }

    pub(crate) fn passing(incoming: Received, ends: Ends) -> Self {
        let mut passing = Passing {
            incoming,
            lease: Some(ends.lease),
            record: ends.record,
            _place: ends.place,
            _active: ends.active,
        };
        // Nobody polls a body that is known to be empty.
        if http_body::Body::is_end_stream(&passing.incoming) {
            passing.end();
        }
        Self::Passing(Box::new(passing))
    }
}

impl Passing {
    fn end(&mut self) {
        self.record.complete();
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Passing(passing) => {
                let polled = Pin::new(&mut passing.incoming).poll_frame(cx);
                match &polled {
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Some(data) = frame.data_ref() {
                            passing.record.sent(data.remaining());
                        }
                        if http_body::Body::is_end_stream(&passing.incoming) {
                            passing.end();
                        }
                    }
                    Poll::Ready(Some(Err(_))) => passing.record.broke_off(),
                    Poll::Ready(None) => passing.end(),
                    Poll::Pending => {}
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Passing(passing) => passing.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Passing(passing) => passing.incoming.size_hint(),
        }
    }
}

/// The body of a run's request, on its way to an upstream.
pub(crate) enum Upload {
    /// Nothing is sent.
    Empty,
    /// As it comes.
    Passing(Incoming, Box<Sent>),
}

/// What is kept of a body that passes.
pub(crate) struct Sent {
    pub(crate) count: Arc<AtomicU64>,
    pub(crate) broker: Arc<Broker>,
    pub(crate) run: Arc<Run>,
}

impl Sent {
    /// Trailers are a second header, so what may not stand in the first may not stand there. The request has left
    /// already, so that what is wrong is dropped instead of refused.
    fn clean(&self, trailers: &mut HeaderMap) {
        fields::strip_trailers(trailers);
        let Some(found) = leak::find_in_fields(self.run.tripwire(), trailers) else {
            return;
        };
        let mut event = Event::new(EventKind::PlaceholderMisplaced);
        event.run = Some(self.run.id().clone());
        event.code = Some(Code::PlaceholderMisplaced);
        event.detail = Some("in a trailer, which was dropped".to_owned());
        if let Found::Placeholder(secret) = found {
            event.secret = Some(secret.into());
        }
        trailers.clear();
        self.broker.audit().note(&event);
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self::Passing(incoming, sent) = &mut *self else {
            return Poll::Ready(None);
        };
        Pin::new(incoming).poll_frame(cx).map_ok(|frame| {
            if let Some(data) = frame.data_ref() {
                sent.count
                    .fetch_add(data.remaining() as u64, Ordering::Relaxed);
            }
            match frame.into_trailers() {
                Ok(mut trailers) => {
                    sent.clean(&mut trailers);
                    Frame::trailers(trailers)
                }
                Err(frame) => frame,
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Passing(incoming, _) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Passing(incoming, _) => incoming.size_hint(),
        }
    }
}
