//! What went wrong in a case, by the keys of its oracle.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;

use super::case::{Case, Input};
use super::recorder::Forwarded;
use super::wire::Answer;

/// Every expectation that was not met. It never shows the secret.
pub(super) fn judge(
    case: &Case,
    answer: &Answer,
    forwarded: &[Forwarded],
    secret: &str,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let status = answer.status(case);
    let is_success = status.is_some_and(|status| (200..300).contains(&status));
    if case.expects("ok") && (!is_success || forwarded.is_empty()) {
        wrong.push(format!("not answered with success: {status:?}"));
    }
    if case.expects("deny") || case.expects("noforward") {
        if let Some(first) = forwarded.first() {
            wrong.push(format!("forwarded as {} {}", first.method, first.target));
        }
        // A refused CONNECT may be answered inside the tunnel, where these bytes do not look.
        if case.expects("deny") && is_success && !is_connect(case) {
            wrong.push(format!("answered with {status:?}"));
        }
    }
    if let Some(max) = case.oracle["max"].as_u64()
        && forwarded.len() as u64 > max
    {
        wrong.push(format!(
            "forwarded {} requests instead of at most {max}",
            forwarded.len()
        ));
    }
    if case.expects("notunnel") && status == Some(101) {
        wrong.push("switched protocols".to_owned());
    }
    if case.expects("nosecret") && contains(&answer.all(), secret) {
        wrong.push("the secret is in the answer".to_owned());
    }
    for request in forwarded {
        judge_forwarded(case, request, secret, &mut wrong);
    }
    wrong
}

fn judge_forwarded(case: &Case, request: &Forwarded, secret: &str, wrong: &mut Vec<String>) {
    if case.expects("clean") {
        wrong.extend(
            request
                .faults
                .iter()
                .map(|fault| format!("forwarded with {fault}")),
        );
        if request.target.contains("smuggled") || request.target.contains("evil.test/") {
            wrong.push(format!("forwarded {}", request.target));
        }
    }
    if request
        .values("host")
        .iter()
        .any(|host| host.contains("evil"))
    {
        wrong.push("forwarded with an evil Host".to_owned());
    }
    if case.expects("single_auth")
        && request.values("authorization") != [format!("Bearer {secret}")]
    {
        let count = request.values("authorization").len();
        wrong.push(format!(
            "not exactly the real bearer in {count} Authorization fields"
        ));
    }
    if let Some(host) = case.oracle["host"].as_str()
        && request.values("host") != [host]
    {
        wrong.push(format!("forwarded with Host {:?}", request.values("host")));
    }
    for name in case.oracle["nohdr"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        let found = match name.split_once(": ") {
            Some((name, part)) => request
                .values(name)
                .iter()
                .any(|value| value.contains(part)),
            None => !request.values(name).is_empty(),
        };
        if found {
            wrong.push(format!("forwarded with the field {name}"));
        }
    }
    if let Some(pattern) = case.oracle["notpath"].as_str() {
        let path = request.target.split('?').next().unwrap_or_default();
        if Regex::new(pattern).unwrap().is_match(path) {
            wrong.push(format!("forwarded the path {path}"));
        }
    }
}

fn is_connect(case: &Case) -> bool {
    match &case.input {
        Input::Raw(bytes) => bytes.starts_with(b"CONNECT "),
        // The tunnel's own answer is no answer of the inside's.
        Input::Tunnel { .. } => false,
    }
}

fn contains(text: &[u8], secret: &str) -> bool {
    let has = |form: &[u8]| text.windows(form.len()).any(|window| window == form);
    has(secret.as_bytes()) || has(STANDARD.encode(secret).trim_end_matches('=').as_bytes())
}
