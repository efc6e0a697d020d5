//! How much can it use, and what am I told? Each limit ends the step with its own exit code and reason.

use serde_json::Value;

use crate::support::World;
use crate::support::process::Finished;

fn limited(limits: &str, command: &[&str]) -> Finished {
    let world = World::new();
    world.policy(&format!("[limits]\n{limits}\n"));
    world.run(command)
}

fn report(limits: &str, command: &[&str]) -> Value {
    let world = World::new();
    world.policy(&format!("[limits]\n{limits}\n"));
    world
        .valetkey(&[&["run", "--json", "--"], command].concat())
        .json()
}

#[test]
fn a_step_that_passes_gives_zero() {
    limited("wall = \"1m\"", &["true"]).exited(0);
}

#[test]
fn a_steps_own_exit_code_is_kept() {
    limited("wall = \"1m\"", &["sh", "-c", "exit 7"]).exited(7);
}

#[test]
fn a_signal_is_128_more() {
    limited("wall = \"1m\"", &["sh", "-c", "kill -TERM $$"]).exited(128 + 15);
}

#[test]
fn the_wall_clock_limit_is_124_and_is_told() {
    limited("wall = \"1s\"", &["sleep", "600"])
        .exited(124)
        .says("wall");
}

#[test]
fn a_run_whose_time_is_over_is_124_and_the_ttl_is_told() {
    let world = World::new();
    world.policy("[budget]\nttl = \"3s\"\n");
    world
        .run(&["sleep", "600"])
        .exited(124)
        .says("stopped: the run's time was over after 3 s (its ttl)")
        .says("raise `budget.ttl`")
        .says_nothing_of("limits.wall");
    let report = world
        .valetkey(&["run", "--json", "--", "sleep", "600"])
        .exited(124)
        .says("`budget.ttl`")
        .json();
    assert_eq!(report["outcome"]["failed"]["limit"]["value"], 3000);
    world.run(&["true"]).passed().says_nothing_of("ttl");
}

#[test]
fn the_memory_limit_is_137_and_is_told() {
    let program = "x = bytearray(512 * 1024 * 1024); print(len(x))";
    limited("memory = \"64MiB\"", &["python3", "-c", program])
        .exited(137)
        .says("memory");
}

#[test]
fn memory_below_the_limit_is_given() {
    let program = "x = bytearray(64 * 1024 * 1024); print(len(x))";
    limited("memory = \"512MiB\"", &["python3", "-c", program])
        .exited(0)
        .says("67108864");
}

#[test]
fn nothing_of_a_step_outlives_it() {
    // The grandchild holds standard output open; if it lived on, this would wait for it.
    limited(
        "wall = \"1m\"",
        &["sh", "-c", "sleep 600 & sh -c 'sleep 601 &' ; echo done"],
    )
    .exited(0)
    .says("done");
}

#[test]
fn a_command_that_is_not_there_is_127() {
    limited("wall = \"1m\"", &["no-such-command"]).exited(127);
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let world = World::new();
    world.file("plain.txt", "no program\n");
    world.policy("");
    world.run(&["./plain.txt"]).exited(126);
}

#[test]
fn the_report_names_the_limit_and_its_value() {
    let report = report("wall = \"1s\"", &["sleep", "600"]);
    let limit = &report["outcome"]["failed"]["limit"];
    assert_eq!(limit["which"], "wall", "{report}");
    assert_eq!(limit["value"], 1000, "{report}");
}

#[test]
fn the_report_keeps_the_end_of_the_output() {
    let report = report(
        "wall = \"1m\"",
        &["sh", "-c", "echo some words; echo others >&2; exit 3"],
    );
    let step = &report["steps"][0];
    assert_eq!(step["stdout"]["text"], "some words\n", "{report}");
    assert_eq!(step["stderr"]["text"], "others\n", "{report}");
    assert_eq!(step["outcome"]["failed"]["exit"], 3, "{report}");
}

#[test]
fn standard_input_reaches_the_step() {
    let world = World::new();
    world.policy("");
    let command = world.command(&["run", "--", "cat"]);
    world
        .finish(command, "from outside\n")
        .passed()
        .says("from outside");
}
