//! Speaks HTTP on one connection of a run until it ends.

use std::sync::Arc;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sdk::Code;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use crate::exchange;
use crate::inbound::{Inbound, Leads, Owner};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::respond;
use crate::unread::Unread;

/// Serves HTTP/1.1.
pub(crate) async fn http1<S>(inbound: Arc<Inbound>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let core = Arc::clone(&inbound.core);
    let activity = inbound.activity.clone();
    let serving = Arc::clone(&inbound);
    let mut stream = Unread::new(stream);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Silence is watched below, where an unfinished header is told from an idle connection.
        .header_read_timeout(None)
        .preserve_header_case(true)
        .max_header_size(core.limits.header_bytes)
        // Bytes that wait to be passed on; hyper would let them grow to 400 KiB a connection.
        .max_buf_size(core.limits.header_bytes.max(SMALLEST_BUFFER))
        .serve_connection(
            TokioIo::new(&mut stream),
            service_fn(move |request| exchange::answer(Arc::clone(&serving), request)),
        );
    let (ended, limits) = (Arc::clone(&inbound.ended), core.limits);
    let visited = Arc::clone(&inbound);
    // In a task of their own, for here they would be asked again at every byte.
    let mut watching = Watching(tokio::spawn(async move {
        tokio::select! {
            () = activity.silence(&limits, false) => {}
            () = ended.notified() => {}
            () = visited.overstay() => {}
        }
    }));
    let is_unreadable = tokio::select! {
        ended = connection => ended.is_err_and(|error| error.is_parse()),
        _ = &mut watching.0 => false,
    };
    match stream.status() {
        Some(status) if is_unreadable => {
            let answer = refuse_unreadable(&inbound, status).await;
            stream.end_with(&answer, core.limits.first_byte).await;
        }
        // HTTP/2 without TLS, to which hyper says nothing.
        None if is_unreadable => {
            refuse_unreadable(&inbound, 400).await;
        }
        Some(_) | None => stream.end(core.limits.first_byte).await,
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
    let wide = owner.and_then(|run| Arc::clone(&run.bounds.wide).try_acquire_owned().ok());
    // What nobody reads is kept in memory, up to the windows. A run that opens more such connections than any program
    // does gets narrow ones.
    let (streams, window) = match &wide {
        Some(_) => (limits.streams, STREAM_WINDOW),
        None => (limits.streams.min(NARROW_STREAMS), NARROW_WINDOW),
    };
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        // What is longer than a header may be, but not by much, is refused by us, so that it is recorded.
        .max_header_list_size(u32::try_from(limits.header_bytes * 2).unwrap_or(u32::MAX))
        .initial_stream_window_size(window)
        .initial_connection_window_size(window.saturating_mul(streams).max(NARROW_WINDOW))
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |request| exchange::answer(Arc::clone(&inbound), request)),
        );
    tokio::select! {
        _ = connection => {}
        () = activity.silence(limits, true) => {}
    }
}

/// Records a request that no parser reads; returns what is said to it.
async fn refuse_unreadable(inbound: &Inbound, status: u16) -> Vec<u8> {
    let mut record = Record::new(&inbound.core.broker, inbound.door, "?");
    if let Some(principal) = inbound.known() {
        record.of(&principal, &principal.policy());
    }
    if let Leads::To(destination) = &inbound.leads {
        record.to(destination);
    }
    let refusal = Refusal::unreadable(status);
    let told = match record.refuse(&refusal).await {
        Ok(()) => refusal,
        Err(broker::AuditUnavailable) => Refusal::new(Code::AuditUnavailable),
    };
    respond::refuse_connect(&told, &record.asked(false))
}

/// What hyper needs at least.
const SMALLEST_BUFFER: usize = 8192;
const STREAM_WINDOW: u32 = 256 * 1024;
const NARROW_STREAMS: u32 = 4;
/// What every client starts with (RFC 9113, section 6.9.2).
const NARROW_WINDOW: u32 = 65_535;
