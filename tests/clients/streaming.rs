//! Streams pass at once: the first event arrives although the second is only sent after the client has seen the first.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Way;
use crate::support::World;
use crate::support::origin::{self, Behaviour};
use crate::support::stand_in::openai;

// The provider holds the stream after its first event until the program, having read that event, opens the gate.
const PROGRAM: &str = "
import os, requests
key = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}
body = {'model': 'small', 'stream': True, 'messages': []}
with requests.post('https://api.openai.com/v1/chat/completions', json=body, headers=key, stream=True) as answer:
    lines = answer.iter_lines()
    print('first', next(lines)[:5])
    print('gate', requests.post('https://gate.example/open').status_code)
    print('last', [line for line in lines if line][-1])
";

fn passes_at_once(way: Way) {
    let mut world = World::new();
    let key = world.secret("openai", "provider = \"openai\"");
    let gate = Arc::new(Notify::new());
    world.origin(
        "api.openai.com",
        openai::behaviour(&key, Some(Arc::clone(&gate))),
    );
    let opens: Behaviour = Arc::new(move |_| {
        gate.notify_one();
        origin::answer(200, "text/plain", "open\n")
    });
    world.origin("gate.example", opens);
    world.policy(
        "[[allow]]\nuse = \"openai\"\nsecret = \"openai\"\n[[allow]]\nhost = \"gate.example\"\nmethods = [\"POST\"]\n",
    );
    let place = way.place(world);
    place
        .python(PROGRAM)
        .passed()
        .says("first b'data:'")
        .says("last b'data: [DONE]'");
}

#[test]
fn the_first_event_of_a_stream_passes_at_once() {
    passes_at_once(Way::Sidecar);
}

#[test]
fn the_first_event_of_a_stream_passes_at_once_into_a_sandbox() {
    passes_at_once(Way::Sandbox);
}
