//! A provider shaped like Anthropic: 401 unless exactly the real key arrives, as `x-api-key` or as a bearer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::sse;
use crate::support::origin::{self, Answer, Behaviour};

/// What the model always says.
pub(crate) const ANSWER: &str = "March was the best month.";

pub(crate) fn behaviour(key: &str) -> Behaviour {
    let key = key.to_owned();
    Arc::new(move |seen| {
        let bearer = seen.field("authorization");
        let by_key = seen.field("x-api-key") == key && bearer.is_empty();
        let by_bearer = bearer == format!("Bearer {key}") && !seen.has("x-api-key");
        // Both at once, each with the real key, is what a proxy that fills every slot sends.
        let by_both = seen.field("x-api-key") == key && bearer == format!("Bearer {key}");
        if !(by_key || by_bearer || by_both) {
            return refusal();
        }
        let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        match (seen.method(), seen.path()) {
            ("POST", "/v1/messages") if body["stream"] == true => sse::stream(events()),
            ("POST", "/v1/messages") => origin::json(200, &message(ANSWER)),
            _ => origin::json(
                404,
                &json!({"type": "error", "error": {"type": "not_found_error", "message": "no such endpoint"}}),
            ),
        }
    })
}

fn refusal() -> Answer {
    origin::json(
        401,
        &json!({"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}),
    )
}

fn message(text: &str) -> Value {
    let content = if text.is_empty() {
        json!([])
    } else {
        json!([{"type": "text", "text": text}])
    };
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "small", "content": content,
        "stop_reason": "end_turn", "stop_sequence": null, "usage": {"input_tokens": 7, "output_tokens": 5},
    })
}

fn events() -> Vec<String> {
    let event = |name: &str, mut body: Value| {
        body["type"] = json!(name);
        sse::named(name, &body)
    };
    let mut events = vec![
        event("message_start", json!({"message": message("")})),
        event(
            "content_block_start",
            json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
    ];
    for word in ANSWER.split_inclusive(' ') {
        let delta = json!({"index": 0, "delta": {"type": "text_delta", "text": word}});
        events.push(event("content_block_delta", delta));
    }
    events.push(event("content_block_stop", json!({"index": 0})));
    events.push(event(
        "message_delta",
        json!({"delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 5}}),
    ));
    events.push(event("message_stop", json!({})));
    events
}
