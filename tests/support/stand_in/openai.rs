//! A provider shaped like OpenAI: 401 unless exactly the real key arrives.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::sse;
use crate::support::origin::{self, Answer, Behaviour, Seen};

/// What the model always says.
pub(crate) const ANSWER: &str = "Kettles sell in the north; toasters sell in the south.";

/// The provider; the second event of a stream is sent after `gate` was notified, when one is given.
pub(crate) fn behaviour(key: &str, gate: Option<Arc<Notify>>) -> Behaviour {
    let expected = format!("Bearer {key}");
    Arc::new(move |seen| {
        if seen.field("authorization") == expected {
            endpoint(seen, gate.clone())
        } else {
            refusal()
        }
    })
}

fn endpoint(seen: &Seen, gate: Option<Arc<Notify>>) -> Answer {
    let body: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
    let model = body["model"].as_str().unwrap_or("none");
    let streams = body["stream"] == true;
    match (seen.method(), seen.path(), streams) {
        ("GET", "/v1/models", _) => origin::json(200, &models()),
        ("POST", "/v1/chat/completions", false) => origin::json(200, &completion(model)),
        ("POST", "/v1/chat/completions", true) => {
            sse::stream_with_a_pause(completion_events(model), 1, gate)
        }
        ("POST", "/v1/responses", false) => origin::json(200, &response(model, "completed")),
        ("POST", "/v1/responses", true) => {
            sse::stream_with_a_pause(response_events(model), 1, gate)
        }
        _ => origin::json(404, &json!({"error": {"message": "no such endpoint"}})),
    }
}

fn refusal() -> Answer {
    origin::json(
        401,
        &json!({"error": {
            "message": "Incorrect API key provided.",
            "type": "invalid_request_error",
            "param": null,
            "code": "invalid_api_key",
        }}),
    )
}

fn models() -> Value {
    json!({"object": "list", "data": [
        {"id": "small", "object": "model", "created": 0, "owned_by": "stand-in"},
    ]})
}

fn completion(model: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{
            "index": 0, "finish_reason": "stop", "logprobs": null,
            "message": {"role": "assistant", "content": ANSWER, "refusal": null},
        }],
        "usage": usage(),
    })
}

fn completion_events(model: &str) -> Vec<String> {
    let chunk = |delta: Value, finish: Value| {
        let body = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        });
        format!("data: {body}\n\n")
    };
    let words = ANSWER.split_inclusive(' ');
    let mut events: Vec<String> = words
        .map(|word| chunk(json!({"role": "assistant", "content": word}), Value::Null))
        .collect();
    events.push(chunk(json!({}), json!("stop")));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn response(model: &str, status: &str) -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 0, "status": status, "model": model,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "output": [{
            "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": ANSWER, "annotations": []}],
        }],
        "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "usage": {
            "input_tokens": 7, "output_tokens": 9, "total_tokens": 16,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    })
}

fn response_events(model: &str) -> Vec<String> {
    let mut number = 0;
    let mut event = |name: &str, mut body: Value| {
        body["type"] = json!(name);
        body["sequence_number"] = json!(number);
        number += 1;
        sse::named(name, &body)
    };
    let mut events = vec![event(
        "response.created",
        json!({"response": response(model, "in_progress")}),
    )];
    for word in ANSWER.split_inclusive(' ') {
        let delta = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word, "logprobs": []});
        events.push(event("response.output_text.delta", delta));
    }
    events.push(event(
        "response.completed",
        json!({"response": response(model, "completed")}),
    ));
    events
}

fn usage() -> Value {
    json!({"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16})
}
