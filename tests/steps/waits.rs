//! Does a step wait before it is tried again, and can its changes be dropped by its own word?

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::endings::{saved, send};
use super::{kept, outcome, report, run, step};
use crate::support::World;

#[test]
fn the_wait_before_an_attempt_is_told_and_takes_nothing_of_the_limit() {
    let world = World::new();
    // Both waits together are longer than what an attempt may take.
    let more = "retries = 2\nretry_wait = \"700ms\"\nwall = \"1500ms\"";
    let told = report(&world, &step("flaky", "exit 5", more));
    let retried = &told["steps"][0]["retried"];
    assert_eq!(retried[0]["wait_ms"], 700, "{told}");
    assert_eq!(retried[1]["wait_ms"], 1400, "{told}");
    assert_eq!(outcome(&told, 1), r#"{"failed":{"exit":5}}"#);
    run(
        &world,
        &step("flaky", "exit 5", "retries = 1\nretry_wait = \"1ms\""),
        &[],
    )
    .exited(5)
    .says("attempt 1 failed with exit code 5; waited 0.0 s");
}

#[test]
fn a_step_that_waits_is_not_tried_again_when_its_run_is_ended_and_keeps_its_changes() {
    let world = World::new();
    let waits = step(
        "waits",
        "echo 1 > left; exit 5",
        "retries = 3\nretry_wait = \"1m\"",
    );
    world.file("steps.toml", &waits);
    let mut child = world
        .command(&["run", "--steps", "steps.toml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_waiting = |line: String| line.contains("the next attempt begins in 60 s");
    assert!(output.any(|line| is_waiting(line.unwrap())));
    send("INT", &child);
    // Its reader stays until its end.
    output.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let report = saved(&world);
    assert_eq!(report["interrupted"], 2, "{report}");
    assert_eq!(report["steps"][0]["attempts"], 1);
    assert_eq!(kept(&world, &report, "left").unwrap(), "1\n");
}

#[test]
fn a_step_can_ask_that_its_own_changes_are_dropped_if_it_fails() {
    let world = World::new();
    let steps = [
        step(
            "one",
            "echo 1 > one; exit 1",
            "rollback_failed = true\ncontinue_on_failure = true",
        ),
        step(
            "two",
            "test ! -e one; echo 2 > two; exit 1",
            "continue_on_failure = true",
        ),
        step("three", "cat two", "rollback_failed = true"),
    ];
    let told = report(&world, &steps.concat());
    assert_eq!(told["steps"][0]["rolled_back"], true, "{told}");
    assert_eq!(outcome(&told, 3), r#""passed""#);
    assert_eq!(kept(&world, &told, "two").unwrap(), "2\n");
    world.policy("[sandbox]\nworkspace = { path = \".\", mode = \"read-write\" }");
    run(&world, &steps.concat(), &[])
        .exited(78)
        .says("rollback_failed");
}
