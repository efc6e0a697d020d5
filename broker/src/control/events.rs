//! How the events of a run are told as they happen: as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use http_body_util::channel::{Channel, Sender};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::feed::{Entry, Feed, News, Reader};

/// An answer that tells what happens, from the beginning or from where a reader was, until the run has ended.
///
/// A reader that does not read holds up nobody but itself.
pub(super) fn tell(
    feed: &Arc<Feed>,
    after: Option<u64>,
    place: OwnedSemaphorePermit,
    shutdown: CancellationToken,
) -> Response {
    let (sender, body) = Channel::<Bytes, Infallible>::new(1);
    let reader = feed.reader(after);
    tokio::spawn(async move {
        let _place = place;
        tokio::select! {
            () = pass(reader, sender) => {}
            () = shutdown.cancelled() => {}
        }
    });
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (head, Body::new(body)).into_response()
}

/// The number that a reader read last, where it says so.
pub(super) fn last_read(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let Some(value) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let number = |value: &HeaderValue| value.to_str().ok()?.parse().ok();
    number(value)
        .map(Some)
        .ok_or("`Last-Event-ID` is the number of an event")
}

async fn pass(mut reader: Reader, mut sender: Sender<Bytes, Infallible>) {
    loop {
        let news = tokio::select! {
            news = reader.next() => news,
            () = tokio::time::sleep(QUIET) => {
                // So that a reader that went away is noticed.
                if sender.send_data(Bytes::from_static(b": \n\n")).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let text = match news {
            News::Event(Entry { number, kind, data }) => {
                // JSON has no line ends of its own.
                format!("id: {number}\nevent: {kind}\ndata: {data}\n\n")
            }
            News::Missed(count) => format!("event: missed\ndata: {{\"events\":{count}}}\n\n"),
            News::Over => return,
        };
        if sender.send_data(Bytes::from(text)).await.is_err() {
            return;
        }
    }
}

const QUIET: Duration = Duration::from_secs(15);
