//! Can a program follow what happens? `--events` tells it line by line, while it happens.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use sdk::happening::{Happening, RunEvent};
use serde_json::{Value, json};

use crate::support::World;

/// Two steps: one that fails twice, and one that its time ends.
const STEPS: &str = r#"
[[step]]
name = "twice"
shell = "echo tried; test -e /proc/self/none || exit 3"
retries = 1
continue_on_failure = true

[[step]]
name = "slow"
shell = "echo begun; exec sleep 600"
wall = "200ms"
"#;

fn events(text: &str) -> Vec<RunEvent> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(read).collect()
}

/// The kinds of events, each with its step.
fn kinds(events: &[RunEvent]) -> Vec<String> {
    let kind = |event: &RunEvent| match event.data["step"].as_str() {
        Some(step) => format!("{} {step}", event.kind),
        None => event.kind.clone(),
    };
    events.iter().map(kind).collect()
}

/// What was written to a stream, put together again.
fn written(events: &[RunEvent], stream: &str) -> String {
    let text = |event: &RunEvent| match event.happening() {
        Some(Happening::Output(output)) if output.stream == stream => Some(output.text),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn what_happens_is_told_in_order_and_the_report_stays_the_last_line() {
    let world = World::new();
    world.file("steps.toml", STEPS);
    let ended = world
        .valetkey(&["run", "--json", "--events", "-", "--steps", "steps.toml"])
        .exited(3);
    let (told, report) = ended.stdout.trim_end().rsplit_once('\n').unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    assert_eq!(report["steps"][1]["name"], "slow");
    let events = events(told);
    let without_notes: Vec<RunEvent> = (events.iter())
        .filter(|event| event.kind != "note")
        .cloned()
        .collect();
    assert_eq!(
        kinds(&without_notes),
        [
            "run.started",
            "started twice",
            "output twice",
            "retry twice",
            "started twice",
            "output twice",
            "ended twice",
            "started slow",
            "output slow",
            "limit slow",
            "ended slow",
            "run.ended",
        ]
    );
    assert!(events.iter().all(|event| event.happening().is_some()));
    let numbers: Vec<u64> = events.iter().filter_map(|event| event.number).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    let of_kind = |kind: &str| {
        without_notes
            .iter()
            .find(|event| event.kind == kind)
            .unwrap()
    };
    assert_eq!(of_kind("retry").data["failed"]["because"], "exit");
    assert_eq!(of_kind("limit").data["limit"]["which"], "wall");
    assert_eq!(
        of_kind("run.ended").data["outcome"],
        json!({"failed": {"exit": 3}})
    );
    assert_eq!(of_kind("run.ended").data["run"], report["run"]);
    // What the steps wrote is on standard error, as with --json alone.
    assert!(ended.stderr.contains("slow  | begun"), "{}", ended.stderr);
}

#[test]
fn events_in_a_file_are_for_its_owner_and_leave_the_output_as_it_is() {
    let world = World::new();
    let file = world.path("elsewhere/events");
    let place = file.display().to_string();
    let ended = world
        .valetkey(&[
            "run",
            "--events",
            &place,
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2",
        ])
        .passed();
    assert_eq!(ended.stdout, "out\n");
    let events = events(&fs::read_to_string(&file).unwrap());
    assert_eq!(written(&events, "stdout"), "out\n");
    assert_eq!(written(&events, "stderr"), "err\n");
    assert_eq!(events.last().unwrap().data["outcome"], "passed");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[test]
fn bytes_that_are_no_text_are_told_exactly_and_text_as_text() {
    let world = World::new();
    let file = world.path("elsewhere/events");
    let place = file.display().to_string();
    let line = r"printf 'a\377b'; printf '\342\202\254' >&2";
    world
        .valetkey(&["run", "--events", &place, "--", "sh", "-c", line])
        .passed();
    let events = events(&fs::read_to_string(&file).unwrap());
    assert_eq!(written(&events, "stdout"), "a\u{fffd}b");
    assert_eq!(written(&events, "stderr"), "\u{20ac}");
    let exact: Vec<&Value> = (events.iter())
        .filter_map(|event| event.data.get("base64"))
        .collect();
    assert_eq!(exact, ["Yf9i"]);
}

#[test]
fn a_refused_request_is_told_as_the_log_has_it() {
    let world = World::new();
    world.policy("[[allow]]\nhost = \"fine.example\"\nmethods = [\"GET\"]\n[sandbox]\n");
    let file = world.path("elsewhere/events");
    let place = file.display().to_string();
    let ask = "import urllib.request as u, sys\ntry: u.urlopen('https://evil.example/')\nexcept Exception: print('refused')";
    world
        .valetkey(&["run", "--events", &place, "--", "python3", "-c", ask])
        .passed()
        .says("refused");
    let events = events(&fs::read_to_string(&file).unwrap());
    let refused = events
        .iter()
        .find(|event| event.data["event"] == "request.denied");
    let refused = refused.unwrap_or_else(|| panic!("{:?}", kinds(&events)));
    assert_eq!(refused.kind, "request");
    assert_eq!(refused.data["code"], "host-not-allowed");
    assert_eq!(refused.data["request"]["host"], "evil.example");
}

#[test]
fn a_reader_that_goes_away_holds_nothing_up() {
    let world = World::new();
    let run = world.command(&[]);
    let script = "{ \"$0\" run --quiet --events /dev/fd/3 -- sh -c 'yes | head -c 5000000; exit 7' 3>&1 >/dev/null; \
                  echo \"code $?\" >&2; } | head -n 1";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(run.get_program())
        .current_dir(run.get_current_dir().unwrap())
        .env_clear()
        .envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null());
    let ended = world.finish(command, "").passed().says("code 7");
    assert_eq!(events(&ended.stdout)[0].kind, "run.started");
    // Its going is nothing that anybody has to hear of.
    assert!(
        !ended.stderr.contains("note: no more events"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_link_in_the_place_of_the_file_is_not_followed() {
    let world = World::new();
    world.file("kept", "the owner's");
    symlink(world.path("project/kept"), world.path("project/link")).unwrap();
    let told = |file: &str| world.valetkey(&["run", "--events", file, "--", "echo", "ran"]);
    told("link")
        .exited(125)
        .says("cannot write events to `link`")
        .says_nothing_of("ran");
    assert_eq!(
        fs::read_to_string(world.path("project/kept")).unwrap(),
        "the owner's"
    );
    // The twin: a file that is there is begun anew.
    world.file("plain", "something old");
    told("plain").passed().says("ran");
    let events = events(&fs::read_to_string(world.path("project/plain")).unwrap());
    assert_eq!(events[0].kind, "run.started");
}

#[test]
fn events_are_not_mixed_with_the_commands_output() {
    let world = World::new();
    world
        .valetkey(&["run", "--events", "-", "--", "echo", "ran"])
        .exited(125)
        .says("add `--json`")
        .says_nothing_of("ran\n");
}
