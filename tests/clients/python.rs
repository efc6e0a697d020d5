//! Python: requests, httpx, urllib, the openai and anthropic packages; aiohttp and http.client where traffic is captured.

use super::{Setting, Way};

const REQUESTS: &str = "
import os, requests
headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}
def call(url): return requests.get(url, headers=headers if 'openai' in url else {}, timeout=30)
";
const HTTPX: &str = "
import os, httpx
headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}
def call(url): return httpx.get(url, headers=headers if 'openai' in url else {}, timeout=30)
";
const HTTPX_HTTP2: &str = "
import os, httpx
headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']}
def call(url):
    with httpx.Client(http2=True, timeout=30) as client:
        answer = client.get(url, headers=headers if 'openai' in url else {})
        assert answer.http_version == 'HTTP/2', answer.http_version
        return answer
";
// It asks no proxy variable and takes its roots from OpenSSL's defaults.
const HTTP_CLIENT: &str = "
import http.client, os
from urllib.parse import urlsplit
class Answer: pass
def call(url):
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(parts.hostname, timeout=30)
    headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']} if 'openai' in url else {}
    connection.request('GET', parts.path, headers=headers)
    response, answer = connection.getresponse(), Answer()
    answer.status_code, answer.headers, answer.text = response.status, response.headers, response.read().decode()
    return answer
";
// By default it asks no proxy variable either.
const AIOHTTP: &str = "
import aiohttp, asyncio, os
class Answer: pass
async def fetch(url):
    headers = {'Authorization': 'Bearer ' + os.environ['OPENAI_API_KEY']} if 'openai' in url else {}
    async with aiohttp.ClientSession() as session:
        async with session.get(url, headers=headers) as response:
            answer = Answer()
            answer.status_code, answer.headers, answer.text = response.status, response.headers, await response.text()
            return answer
def call(url): return asyncio.run(fetch(url))
";
const CALL: &str = "
answer = call('https://api.openai.com/v1/models')
print(answer.status_code, answer.text)
";
const REFUSAL: &str = "
answer = call('https://elsewhere.example/x')
print(answer.status_code, answer.headers['valetkey-denial'])
";
const OPENAI: &str = "
import openai
client = openai.OpenAI(max_retries=0, timeout=30)
print([model.id for model in client.models.list()])
print(client.responses.create(model='small', input='hello').output_text)
message = [{'role': 'user', 'content': 'hello'}]
print(client.chat.completions.create(model='small', messages=message).choices[0].message.content)
chunks = client.chat.completions.create(model='small', messages=message, stream=True)
print('streamed', ''.join(chunk.choices[0].delta.content or '' for chunk in chunks))
events = client.responses.create(model='small', input='hello', stream=True)
print('events', ''.join(e.delta for e in events if e.type == 'response.output_text.delta'))
";
const OPENAI_ELSEWHERE: &str = "
import openai
try:
    openai.OpenAI(max_retries=0, timeout=30, base_url='https://elsewhere.example/v1', api_key='x').models.list()
except openai.PermissionDeniedError as error:
    print(error.status_code, error.response.headers['valetkey-denial'])
";
const ANTHROPIC: &str = "
import anthropic
client = anthropic.Anthropic(max_retries=0, timeout=30)
asked = dict(model='small', max_tokens=64, messages=[{'role': 'user', 'content': 'hello'}])
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    print('streamed', ''.join(stream.text_stream))
";
const ANTHROPIC_ELSEWHERE: &str = "
import anthropic
client = anthropic.Anthropic(max_retries=0, timeout=30, base_url='https://elsewhere.example', api_key='x')
try:
    client.messages.create(model='small', max_tokens=64, messages=[{'role': 'user', 'content': 'hello'}])
except anthropic.PermissionDeniedError as error:
    print(error.status_code, error.response.headers['valetkey-denial'])
";

fn calls(way: Way, client: &str) {
    let setting = Setting::new(way);
    let program = format!("{client}{CALL}");
    setting
        .place
        .python(&program)
        .passed()
        .says("200 {")
        .says("\"small\"");
}

fn is_refused(way: Way, client: &str) {
    let setting = Setting::new(way);
    let program = format!("{client}{REFUSAL}");
    setting
        .place
        .python(&program)
        .passed()
        .says("403 host-not-allowed");
    setting.assert_nothing_arrived_elsewhere();
}

fn openai_calls(way: Way) {
    let setting = Setting::new(way);
    let finished = setting.place.python(OPENAI).passed();
    let answer = crate::support::stand_in::openai::ANSWER;
    finished
        .says("['small']")
        .says(answer)
        .says(&format!("streamed {answer}"))
        .says(&format!("events {answer}"));
}

fn anthropic_calls(way: Way) {
    let setting = Setting::new(way);
    let finished = setting.place.python(ANTHROPIC).passed();
    let answer = crate::support::stand_in::anthropic::ANSWER;
    finished.says(answer).says(&format!("streamed {answer}"));
    assert!(setting.anthropic.seen().len() == 2);
}

fn sdk_is_refused(way: Way, program: &str) {
    let setting = Setting::new(way);
    setting
        .place
        .python(program)
        .passed()
        .says("403 host-not-allowed");
    setting.assert_nothing_arrived_elsewhere();
}

#[test]
fn requests_calls() {
    calls(Way::Sidecar, REQUESTS);
}

#[test]
fn requests_is_refused() {
    is_refused(Way::Sidecar, REQUESTS);
}

#[test]
fn requests_calls_from_a_sandbox() {
    calls(Way::Sandbox, REQUESTS);
}

#[test]
fn requests_is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox, REQUESTS);
}

#[test]
fn httpx_calls() {
    calls(Way::Sidecar, HTTPX);
}

#[test]
fn httpx_is_refused() {
    is_refused(Way::Sidecar, HTTPX);
}

#[test]
fn httpx_calls_over_http2() {
    calls(Way::Sidecar, HTTPX_HTTP2);
}

#[test]
fn httpx_is_refused_over_http2() {
    is_refused(Way::Sidecar, HTTPX_HTTP2);
}

#[test]
fn httpx_calls_over_http2_from_a_sandbox() {
    calls(Way::Sandbox, HTTPX_HTTP2);
}

#[test]
fn http_client_which_knows_no_proxy_calls_from_a_sandbox() {
    calls(Way::Sandbox, HTTP_CLIENT);
}

#[test]
fn http_client_which_knows_no_proxy_is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox, HTTP_CLIENT);
}

#[test]
fn aiohttp_which_asks_no_proxy_calls_from_a_sandbox() {
    calls(Way::Sandbox, AIOHTTP);
}

#[test]
fn aiohttp_which_asks_no_proxy_is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox, AIOHTTP);
}

#[test]
fn openai_calls_and_streams() {
    openai_calls(Way::Sidecar);
}

#[test]
fn openai_calls_and_streams_from_a_sandbox() {
    openai_calls(Way::Sandbox);
}

#[test]
fn openai_is_refused() {
    sdk_is_refused(Way::Sidecar, OPENAI_ELSEWHERE);
}

#[test]
fn openai_is_refused_in_a_sandbox() {
    sdk_is_refused(Way::Sandbox, OPENAI_ELSEWHERE);
}

#[test]
fn anthropic_calls_and_streams() {
    anthropic_calls(Way::Sidecar);
}

#[test]
fn anthropic_calls_and_streams_from_a_sandbox() {
    anthropic_calls(Way::Sandbox);
}

#[test]
fn anthropic_is_refused() {
    sdk_is_refused(Way::Sidecar, ANTHROPIC_ELSEWHERE);
}
