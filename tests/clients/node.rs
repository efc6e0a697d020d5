//! Node: fetch, axios, the openai and @anthropic-ai/sdk packages.

use super::{Setting, Way};

// Node before 22 has no switch for proxy variables; undici, which fetch is made of, brings one.
const BY_ENVIRONMENT: &str = "
if (process.env.HTTPS_PROXY) {
  const { EnvHttpProxyAgent, setGlobalDispatcher, fetch } = require('undici');
  setGlobalDispatcher(new EnvHttpProxyAgent());
  globalThis.fetch = fetch;
}
const key = process.env.OPENAI_API_KEY;
const fail = (error) => { console.error(error); process.exit(1); };
";
const FETCH: &str = "
fetch('https://api.openai.com/v1/models', { headers: { authorization: `Bearer ${key}` } })
  .then(async (answer) => console.log(answer.status, await answer.text())).catch(fail);
";
const FETCH_ELSEWHERE: &str = "
fetch('https://elsewhere.example/x')
  .then((answer) => console.log(answer.status, answer.headers.get('valetkey-denial'))).catch(fail);
";
const AXIOS: &str = "
const axios = require('axios');
axios.get('https://api.openai.com/v1/models', { headers: { authorization: `Bearer ${key}` } })
  .then((answer) => console.log(answer.status, JSON.stringify(answer.data))).catch(fail);
";
const AXIOS_ELSEWHERE: &str = "
const axios = require('axios');
axios.get('https://elsewhere.example/x').then(fail, (error) => {
  console.log(error.response.status, error.response.headers['valetkey-denial']);
});
";
const OPENAI: &str = "
const OpenAI = require('openai').default;
(async () => {
  const client = new OpenAI({ maxRetries: 0, timeout: 30000, fetch: globalThis.fetch });
  const answer = await client.responses.create({ model: 'small', input: 'hello' });
  console.log(answer.output_text);
  const messages = [{ role: 'user', content: 'hello' }];
  let text = '';
  for await (const chunk of await client.chat.completions.create({ model: 'small', messages, stream: true })) {
    text += chunk.choices[0].delta.content ?? '';
  }
  console.log('streamed', text);
})().catch(fail);
";
const OPENAI_ELSEWHERE: &str = "
const OpenAI = require('openai').default;
const client = new OpenAI({
  maxRetries: 0, timeout: 30000, fetch: globalThis.fetch, baseURL: 'https://elsewhere.example/v1', apiKey: 'x',
});
client.models.list().then(fail, (error) => console.log(error.status, error.headers.get('valetkey-denial')));
";
const ANTHROPIC: &str = "
const Anthropic = require('@anthropic-ai/sdk').default;
(async () => {
  const client = new Anthropic({ maxRetries: 0, timeout: 30000, fetch: globalThis.fetch });
  const messages = [{ role: 'user', content: 'hello' }];
  const answer = await client.messages.create({ model: 'small', max_tokens: 64, messages });
  console.log(answer.content[0].text);
})().catch(fail);
";

fn calls(way: Way, program: &str, says: &str) {
    let setting = Setting::new(way);
    let program = format!("{BY_ENVIRONMENT}{program}");
    setting.place.node(&program).passed().says(says);
}

fn is_refused(way: Way, program: &str) {
    let setting = Setting::new(way);
    let program = format!("{BY_ENVIRONMENT}{program}");
    setting
        .place
        .node(&program)
        .passed()
        .says("403 host-not-allowed");
    setting.assert_nothing_arrived_elsewhere();
}

fn openai_calls(way: Way) {
    let answer = crate::support::stand_in::openai::ANSWER;
    calls(way, OPENAI, &format!("{answer}\nstreamed {answer}"));
}

#[test]
fn fetch_calls() {
    calls(Way::Sidecar, FETCH, "200 {");
}

#[test]
fn fetch_is_refused() {
    is_refused(Way::Sidecar, FETCH_ELSEWHERE);
}

#[test]
fn fetch_calls_from_a_sandbox() {
    calls(Way::Sandbox, FETCH, "200 {");
}

#[test]
fn fetch_is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox, FETCH_ELSEWHERE);
}

#[test]
fn axios_calls() {
    calls(Way::Sidecar, AXIOS, "200 {");
}

#[test]
fn axios_is_refused() {
    is_refused(Way::Sidecar, AXIOS_ELSEWHERE);
}

#[test]
fn axios_calls_from_a_sandbox() {
    calls(Way::Sandbox, AXIOS, "200 {");
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
    is_refused(Way::Sidecar, OPENAI_ELSEWHERE);
}

#[test]
fn openai_is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox, OPENAI_ELSEWHERE);
}

#[test]
fn anthropic_calls() {
    calls(
        Way::Sidecar,
        ANTHROPIC,
        crate::support::stand_in::anthropic::ANSWER,
    );
}
