//! curl, over HTTP/1.1 and HTTP/2.

use super::{Setting, Way};

fn calls(way: Way, version: &str, spoken: &str) {
    let setting = Setting::new(way);
    let line = format!(
        "curl -sS {version} --fail-with-body -w '\\nspoke %{{http_version}}\\n' \
         -H \"Authorization: Bearer $OPENAI_API_KEY\" https://api.openai.com/v1/models"
    );
    let finished = setting.place.run(&["sh", "-c", &line]).passed();
    finished.says("\"small\"").says(&format!("spoke {spoken}"));
    assert_eq!(setting.openai.seen().len(), 1);
}

fn is_refused(way: Way, version: &str) {
    let setting = Setting::new(way);
    let line = format!("curl -sS {version} -w '\\n%{{http_code}}\\n' https://elsewhere.example/x");
    let finished = setting.place.run(&["sh", "-c", &line]).passed();
    finished.says("\"host-not-allowed\"").says("\n403\n");
    setting.assert_nothing_arrived_elsewhere();
}

#[test]
fn calls_over_http1() {
    calls(Way::Sidecar, "--http1.1", "1.1");
}

#[test]
fn calls_over_http2() {
    calls(Way::Sidecar, "--http2", "2");
}

#[test]
fn calls_over_http1_from_a_sandbox() {
    calls(Way::Sandbox, "--http1.1", "1.1");
}

#[test]
fn calls_over_http2_from_a_sandbox() {
    calls(Way::Sandbox, "--http2", "2");
}

#[test]
fn is_refused_over_http1() {
    is_refused(Way::Sidecar, "--http1.1");
}

#[test]
fn is_refused_over_http2() {
    is_refused(Way::Sidecar, "--http2");
}

#[test]
fn is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox, "--http2");
}

#[test]
fn is_given_the_key_even_when_it_sends_none() {
    let setting = Setting::new(Way::Sidecar);
    let url = "https://api.openai.com/v1/models";
    setting
        .place
        .run(&["curl", "-sS", "--fail-with-body", url])
        .passed()
        .says("\"small\"");
}

#[test]
fn is_refused_with_a_key_of_its_own() {
    let setting = Setting::new(Way::Sidecar);
    let url = "https://api.openai.com/v1/models";
    let own = "Authorization: Bearer sk-somebody-elses-key-0123456789";
    let finished = setting.place.run(&["curl", "-sS", "-H", own, url]).passed();
    finished.says("\"foreign-credential\"");
    assert!(setting.openai.seen().is_empty());
}

#[test]
fn is_carried_to_the_upstream_over_http2_where_that_is_offered() {
    let setting = Setting::new(Way::Sidecar);
    let url = "https://api.openai.com/v1/models";
    setting
        .place
        .run(&["curl", "-sS", "--http1.1", url])
        .passed();
    assert!(setting.openai.last().is_http2());
}
