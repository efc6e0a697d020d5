//! Server-sent events whose later events wait for a sign, so that buffering anywhere shows as a hang, not as a delay.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt, Channel};
use tokio::sync::Notify;

use crate::support::origin::{Answer, RUNTIME};

/// An answer that sends `events` at once.
pub(crate) fn stream(events: Vec<String>) -> Answer {
    stream_with_a_pause(events, usize::MAX, None)
}

/// An answer that sends the first `before` events, then waits for `gate`, then sends the rest.
pub(crate) fn stream_with_a_pause(
    events: Vec<String>,
    before: usize,
    gate: Option<Arc<Notify>>,
) -> Answer {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    RUNTIME.spawn(async move {
        for (index, event) in events.into_iter().enumerate() {
            if index == before
                && let Some(gate) = &gate
            {
                gate.notified().await;
            }
            if sender.send_data(Bytes::from(event)).await.is_err() {
                return;
            }
        }
    });
    Response::builder()
        .header("content-type", "text/event-stream")
        .body(body.boxed())
        .unwrap()
}

/// One event with a name.
pub(crate) fn named(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
