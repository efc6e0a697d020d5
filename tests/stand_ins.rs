//! Would a wrong key be noticed? The stand-ins answer only to the real one, and the official packages accept them.

use std::process::Command;

use crate::support::origin::{Behaviour, Origin};
use crate::support::process::Finished;
use crate::support::stand_in::{anthropic, npm, openai, pypi};
use crate::support::{World, tools};

/// Runs Python with `base` set to the stand-in's URL.
fn python(behaviour: Behaviour, program: &str) -> Finished {
    let world = World::new();
    let tls = world.authority().server(&["localhost"], &["http/1.1"]);
    let origin = Origin::start(Some(tls), behaviour);
    let mut command = Command::new(tools::python());
    command
        .args(["-c", program])
        .env(
            "BASE",
            format!("https://localhost:{}", origin.address().port()),
        )
        .env("SSL_CERT_FILE", world.path("elsewhere/ca.pem"))
        .env("REQUESTS_CA_BUNDLE", world.path("elsewhere/ca.pem"))
        .env("NO_PROXY", "localhost");
    world.finish(command, "")
}

const OPENAI: &str = "
import os, openai
client = openai.OpenAI(base_url=os.environ['BASE'] + '/v1', api_key='right', max_retries=0)
print(client.responses.create(model='small', input='hello').output_text)
events = client.responses.create(model='small', input='hello', stream=True)
print('events', ''.join(e.delta for e in events if e.type == 'response.output_text.delta'))
chunks = client.chat.completions.create(model='small', messages=[], stream=True)
print('streamed', ''.join(chunk.choices[0].delta.content or '' for chunk in chunks))
";
const ANTHROPIC: &str = "
import os, anthropic
client = anthropic.Anthropic(base_url=os.environ['BASE'], api_key='right', max_retries=0)
asked = dict(model='small', max_tokens=64, messages=[{'role': 'user', 'content': 'hello'}])
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    print('streamed', ''.join(stream.text_stream))
";

#[test]
fn the_openai_package_accepts_the_stand_in() {
    let finished = python(openai::behaviour("right", None), OPENAI).passed();
    finished
        .says(&format!("events {}", openai::ANSWER))
        .says(&format!("streamed {}", openai::ANSWER));
}

#[test]
fn the_openai_stand_in_refuses_another_key() {
    python(openai::behaviour("wrong", None), OPENAI)
        .exited(1)
        .says("AuthenticationError");
}

#[test]
fn the_anthropic_package_accepts_the_stand_in() {
    let finished = python(anthropic::behaviour("right"), ANTHROPIC).passed();
    finished.says(&format!("streamed {}", anthropic::ANSWER));
}

#[test]
fn the_anthropic_stand_in_refuses_another_key() {
    python(anthropic::behaviour("wrong"), ANTHROPIC)
        .exited(1)
        .says("AuthenticationError");
}

#[test]
fn the_package_stand_ins_know_only_their_own() {
    let program = "
import os, requests
for path in ['/simple/valetkey-tiny/', '/simple/other/']: print(requests.get(os.environ['BASE'] + path).status_code)";
    python(pypi::behaviour(), program).passed().says("200\n404");
    let program = "
import os, requests
for path in ['/valetkey-tree', '/valetkey-leaf-7', '/other']: print(requests.get(os.environ['BASE'] + path).status_code)";
    python(npm::behaviour("localhost"), program)
        .passed()
        .says("200\n200\n404");
}
