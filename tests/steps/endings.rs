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

pub(super) fn send(signal: &str, child: &Child) {
    let mut kill = Command::new("kill");
    kill.args([&format!("-{signal}"), &child.id().to_string()]);
    assert!(kill.status().unwrap().success());
}

/// The report of the world's only run, as it was saved.
pub(super) fn saved(world: &World) -> Value {
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
    assert_eq!(report["interrupted"], 2);
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

/// Runs steps of which the first does `shell` on SIGINT, sends that when it runs, and gives the exit code and the report.
fn interrupted(world: &World, shell: &str, more: &str, after: &str) -> (Option<i32>, Value) {
    let shell = format!("trap '{shell}' INT; echo started; sleep 600 & wait");
    world.file(
        "steps.toml",
        &[step("first", &shell, more), after.to_owned()].concat(),
    );
    let mut child = world
        .command(&["run", "--steps", "steps.toml"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.ends_with(" | started\n"), "{line}");
    send("INT", &child);
    (child.wait().unwrap().code(), saved(world))
}

#[test]
fn a_run_that_is_interrupted_between_two_steps_has_not_passed() {
    let world = World::new();
    let (code, report) = interrupted(&world, "exit 0", "", &step("second", "true", ""));
    assert_eq!(code, Some(130));
    assert_eq!(report["interrupted"], 2);
    assert_eq!(report["outcome"].to_string(), r#"{"failed":{"signal":2}}"#);
    assert_eq!(outcome(&report, 1), r#""passed""#);
    assert_eq!(outcome(&report, 2), r#""not-reached""#);
    let run = report["run"].as_str().unwrap();
    world
        .valetkey(&["runs", "show", run])
        .passed()
        .says("interrupted by SIGINT; no step failed; 2 was not reached");
    // The twin: nothing was left to do.
    let world = World::new();
    let (code, report) = interrupted(&world, "exit 0", "", "");
    assert_eq!(code, Some(0));
    assert_eq!(report["outcome"], "passed");
    assert_eq!(report["interrupted"], 2);
}

#[test]
fn a_step_that_is_interrupted_is_not_tried_again() {
    let world = World::new();
    let (code, report) = interrupted(&world, "exit 4", "retries = 3", "");
    assert_eq!(code, Some(4));
    assert_eq!(report["interrupted"], 2);
    assert_eq!(report["steps"][0]["attempts"], 1);
    let run = report["run"].as_str().unwrap();
    world
        .valetkey(&["runs", "show", run])
        .passed()
        .says("interrupted by SIGINT; step 1 of 1 (`first`): failed with exit code 4");
}

#[test]
fn a_killed_supervisor_of_a_single_step_leaves_its_report_too() {
    let world = World::new();
    world.file("steps.toml", &step("only", "echo started; sleep 600", ""));
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
    assert_eq!(line, "only | started\n");
    send("KILL", &child);
    child.wait().unwrap();
    let report = saved(&world);
    assert_eq!(report["state"], "active");
    assert!(outcome(&report, 1).contains("had not ended"), "{report}");
    world
        .valetkey(&["report"])
        .passed()
        .says("cut off: it had not ended")
        .says_nothing_of("nothing ran");
}
