//! Speaks HTTP on one connection of a run until it ends.

use std::convert::Infallible;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sdk::Code;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use crate::exchange;
use crate::inbound::{Inbound, Owner};
use crate::record::Record;
use crate::refusal::Refusal;

/// Serves HTTP/1.1.
pub(crate) async fn http1<S>(inbound: Arc<Inbound>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let core = Arc::clone(&inbound.core);
    let activity = inbound.activity.clone();
    let serving = Arc::clone(&inbound);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Silence is watched below, where an unfinished header is told from an idle connection.
        .header_read_timeout(None)
        .preserve_header_case(true)
        .max_header_size(core.limits.header_bytes)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request: Request<Incoming>| {
                let inbound = Arc::clone(&serving);
                async move { Ok::<_, Infallible>(exchange::answer(&inbound, request).await) }
            }),
        );
    let ended = Arc::clone(&inbound.ended);
    // In a task of their own, for here they would be asked again at every byte.
    let mut watching = Watching(tokio::spawn(async move {
        tokio::select! {
            () = activity.silence(&core.limits, false) => {}
            () = ended.notified() => {}
        }
    }));
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended
                && error.is_parse()
            {
                note_unreadable(&inbound).await;
            }
        }
        _ = &mut watching.0 => {}
    }
}

/// A task that ends with the connection it watches.
struct Watching(JoinHandle<()>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Serves HTTP/2.
pub(crate) async fn http2<S>(inbound: Arc<Inbound>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let core = Arc::clone(&inbound.core);
    let activity = inbound.activity.clone();
    let limits = &core.limits;
    let owner = match &inbound.owner {
        Owner::Door(principal) | Owner::Known(principal) => Some(principal),
        Owner::Token(_) => None,
    };
    let wide = owner.and_then(|run| Arc::clone(&run.wide).try_acquire_owned().ok());
    // What nobody reads is kept in memory, up to the windows. A run that opens more such connections than any program
    // does gets narrow ones.
    let (streams, window) = match &wide {
        Some(_) => (limits.streams, STREAM_WINDOW),
        None => (limits.streams.min(NARROW_STREAMS), NARROW_WINDOW),
    };
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(window)
        .initial_connection_window_size(window.saturating_mul(streams).max(NARROW_WINDOW))
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request: Request<Incoming>| {
                let inbound = Arc::clone(&inbound);
                async move { Ok::<_, Infallible>(exchange::answer(&inbound, request).await) }
            }),
        );
    tokio::select! {
        _ = connection => {}
        () = activity.silence(limits, true) => {}
    }
}

/// A request that no parser reads is refused by hyper, and recorded here.
async fn note_unreadable(inbound: &Inbound) {
    let mut record = Record::new(&inbound.core.broker, inbound.door, "?");
    match &inbound.owner {
        Owner::Door(principal) | Owner::Known(principal) => {
            record.of_run(principal.run());
        }
        Owner::Token(_) => {}
    }
    if let crate::inbound::Leads::To(destination) = &inbound.leads {
        record.to(destination);
    }
    let refusal = Refusal::new(Code::AmbiguousRequest);
    if record.refuse(&refusal).await.is_err() {
        tracing::error!("the audit log cannot be written");
    }
}

const STREAM_WINDOW: u32 = 256 * 1024;
const NARROW_STREAMS: u32 = 4;
/// What every client starts with (RFC 9113, section 6.9.2).
const NARROW_WINDOW: u32 = 65_535;
