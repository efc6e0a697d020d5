//! Can it be fooled? Hostile requests, byte for byte, against the real binary. The cases are in `tests/data/attacks.jsonl`.

mod case;
mod http2;
mod recorder;
mod verdict;
mod wire;

use std::collections::BTreeMap;

use case::Case;
use recorder::Recorder;
use wire::Wire;

use crate::support::World;

/// Every name that may be reached in the laboratory, and every name that must not be.
const ALLOWED: &[&str] = &["allowed.test", "api.wild.test", "paths.test"];
const FORBIDDEN: &[&str] = &[
    "evil.test",
    "evil-wild.test",
    "evilwild.test",
    "wild.test",
    "allowed.test.evil.test",
];

const POLICY: &str = r#"
[[allow]]
host = "allowed.test"
scheme = "http"
ports = [18100]
secret = "lab"
[[allow]]
host = "allowed.test"
ports = [18200]
secret = "lab"
[[allow]]
host = "*.wild.test"
scheme = "http"
ports = [18100]
[[allow]]
host = "*.wild.test"
ports = [18200]
[[allow]]
host = "paths.test"
scheme = "http"
ports = [18100]
methods = ["GET", "POST"]
paths = ["/v1/**"]
[[deny]]
host = "paths.test"
scheme = "http"
ports = [18100]
paths = ["/v1/admin", "/v1/admin/**"]
"#;

/// Plays every case of a class whose number leaves `part` when divided by `parts`; fails with all that went wrong.
#[track_caller]
fn play(class: &str, part: usize, parts: usize) {
    let cases: Vec<Case> = case::all()
        .into_iter()
        .filter(|case| case.id.starts_with(class) && case.later.is_none())
        .enumerate()
        .filter(|(number, _)| number % parts == part)
        .map(|(_, case)| case)
        .collect();
    assert!(!cases.is_empty(), "no case of class {class}");

    let mut world = World::new();
    let secret = world.secret(
        "lab",
        "hosts = [\"allowed.test\"]\nports = [18100, 18200]\nplaintext = true\ninject = \"bearer\"",
    );
    let names = [ALLOWED, FORBIDDEN].concat();
    let recorder = Recorder::start(world.authority().server(&names, &["http/1.1"]));
    let forbidden = Recorder::start(world.authority().server(&names, &["http/1.1"]));
    for (names, recorder) in [(ALLOWED, &recorder), (FORBIDDEN, &forbidden)] {
        for name in names {
            world.dial(&format!("{name}:18100"), &recorder.plain.to_string());
            world.dial(&format!("{name}:18200"), &recorder.tls.to_string());
        }
    }
    world.policy(POLICY);
    let serving = world.serve();
    let run = serving.create_run(&world);
    let wire = Wire::new(serving.address(), &run);

    let mut failures = BTreeMap::new();
    for case in &cases {
        let answer = wire.play(case);
        let forwarded = recorder.take();
        let mut wrong = verdict::judge(case, &answer, &forwarded, &secret);
        if !forbidden.take().is_empty() || forbidden.connections() > 0 {
            wrong.push("a forbidden host was reached".to_owned());
        }
        if !wrong.is_empty() {
            failures.insert(&case.id, format!("{}: {}", case.title, wrong.join("; ")));
        }
    }
    let list: Vec<String> = failures
        .iter()
        .map(|(id, text)| format!("{id} {text}"))
        .collect();
    assert!(
        list.is_empty(),
        "{} of {} cases:\n{}",
        list.len(),
        cases.len(),
        list.join("\n")
    );
}

#[test]
fn no_spelling_of_a_host_is_taken_for_another() {
    play("HST", 0, 1);
}

#[test]
fn no_spelling_of_an_address_is_let_through() {
    play("IPA", 0, 1);
}

#[test]
fn no_spelling_of_a_path_is_taken_for_another() {
    play("PTH", 0, 1);
}

#[test]
fn no_field_gets_round_the_rules_or_the_injection() {
    play("HDR", 0, 1);
}

#[test]
fn nothing_is_smuggled_in_heads() {
    play("SMG", 0, 3);
}

#[test]
fn nothing_is_smuggled_in_bodies() {
    play("SMG", 1, 3);
}

#[test]
fn nothing_is_smuggled_in_streams() {
    play("SMG", 2, 3);
}

#[test]
fn a_tunnel_leads_to_one_host_only() {
    play("TLS", 0, 1);
}

#[test]
fn no_other_protocol_gets_in() {
    play("PRT", 0, 1);
}

#[test]
fn nothing_but_the_token_opens_the_door() {
    play("TOK", 0, 1);
}

#[test]
fn redirects_are_not_followed() {
    play("RDR", 0, 1);
}

#[test]
fn every_case_left_for_later_says_why() {
    for case in case::all() {
        assert!(
            case.later.is_none_or(|reason| reason.len() > 20),
            "{}",
            case.id
        );
    }
}
