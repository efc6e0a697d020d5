//! What is left when the run is ended before its steps are?

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{kept, outcome, step};
use crate::support::World;

/// Starts steps of which the second runs until it is ended, and waits until it runs.
fn started(world: &World) -> Child {
    let steps = [
        step("first", "echo 1 > first", ""),
        step("second", "echo 2 > second; echo started; sleep 600", ""),
        step("third", "true", ""),
    ];
    world.file("steps.toml", &steps.concat());
    let mut child = world
        .command(&["run", "--steps", "steps.toml"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "second | started\n");
    child
}

fn send(signal: &str, child: &Child) {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{signal}"), &child.id().to_string()]);
    assert!(kill.status().unwrap().success());
}

/// The report of the world's only run, as it was saved.
fn saved(world: &World) -> Value {
    let listed = world.valetkey(&["runs", "list", "--json"]).passed().json();
    let run = listed[0]["run"].as_str().unwrap();
    let shown = world
        .valetkey(&["runs", "show", run, "--json"])
        .passed()
        .json();
    shown["report"].clone()
}

#[test]
fn an_interrupted_run_keeps_what_was_done_and_tells_how_far_it_came() {
    let world = World::new();
    let mut child = started(&world);
    send("INT", &child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report = saved(&world);
    assert_eq!(outcome(&report, 1), r#""passed""#);
    assert_eq!(outcome(&report, 2), r#"{"failed":{"signal":2}}"#);
    assert_eq!(report["steps"][1]["stdout"]["text"], "started\n");
    assert_eq!(outcome(&report, 3), r#""not-reached""#);
    assert_eq!(report["resume_from"], "second");
    for name in ["first", "second"] {
        assert!(kept(&world, &report, name).is_some(), "{name}");
    }
}

#[test]
fn a_killed_supervisor_leaves_the_report_of_what_was_done_and_the_changes() {
    let world = World::new();
    let mut child = started(&world);
    send("KILL", &child);
    child.wait().unwrap();
    let report = saved(&world);
    assert_eq!(report["state"], "active");
    assert_eq!(outcome(&report, 1), r#""passed""#);
    assert!(outcome(&report, 2).contains("had not ended"), "{report}");
    assert_eq!(outcome(&report, 3), r#""not-reached""#);
    for name in ["first", "second"] {
        assert!(kept(&world, &report, name).is_some(), "{name}");
    }
}
