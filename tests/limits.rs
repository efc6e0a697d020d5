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
fn the_processor_time_limit_is_152_and_is_told() {
    let spin = "import os\nfor n in range(3):\n if os.fork() == 0:\n  while True: pass\nos.wait()";
    limited("cpu_time = \"500ms\"", &["python3", "-c", spin])
        .exited(152)
        .says("stopped: it reached its cpu_time limit of 0.5 s (used: ")
        .says("raise `limits.cpu_time`");
}

#[test]
fn a_workspace_that_is_filled_is_153_and_is_told() {
    let fill = "for n in range(99999): open(f'f{n}', 'wb').write(bytes(1 << 20))";
    limited("disk = \"16MiB\"", &["python3", "-c", fill])
        .exited(153)
        .says("stopped: it reached its disk limit of 16.0 MiB (used: ");
}

#[test]
fn a_file_that_grows_too_large_is_153_and_is_told() {
    limited(
        "file_size = \"1MiB\"",
        &["sh", "-c", "exec cat /dev/zero > big"],
    )
    .exited(153)
    .says("stopped: it reached its file_size limit of 1.0 MiB");
}

#[test]
fn a_program_that_survives_its_own_error_keeps_its_code_and_the_limit_is_told() {
    // Python takes no notice of SIGXFSZ.
    let fill = "open('big', 'wb', buffering=0).write(bytes(1 << 20))\nopen('big', 'ab', buffering=0).write(b'x')";
    limited("file_size = \"1MiB\"", &["python3", "-c", fill])
        .exited(1)
        .says(
            "it reached its file_size limit of 1.0 MiB (used: 1.0 MiB), which may be why it failed",
        );
    let fill = "open('/tmp/big', 'wb', buffering=0).write(bytes(9 << 20))\nopen('/tmp/more', 'wb', buffering=0).write(b'x')";
    limited("disk = \"8MiB\"", &["python3", "-c", fill])
        .exited(1)
        .says("No space left")
        .says("it reached its disk limit of 8.0 MiB (used: 8.0 MiB), which may be why it failed");
}

#[test]
fn a_program_that_can_start_no_process_is_told_why() {
    let forks = "import os, time\nmade = 0\ntry:\n while True:\n  if os.fork() == 0: time.sleep(600)\n  made += 1\n\
                 except OSError:\n time.sleep(.3)\n print('made', made)\n raise SystemExit(9)";
    limited("processes = 8", &["python3", "-c", forks])
        .exited(9)
        .says("made 7")
        .says("it reached its processes limit of 8 (used: 8), which may be why it failed")
        .says("raise `limits.processes`");
}

#[test]
fn a_fork_bomb_is_ended_and_told() {
    let bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass";
    let world = World::new();
    world.policy("[limits]\nprocesses = 16\nwall = \"5s\"\n");
    let report = world
        .valetkey(&["run", "--json", "--", "python3", "-c", bomb])
        .json();
    let hits = report["steps"][0]["limits_hit"].to_string();
    assert!(
        hits.contains(r#"{"used":16,"value":16,"which":"processes"}"#)
            || hits.contains(r#"{"which":"processes","value":16,"used":16}"#),
        "{report}"
    );
    // Where no control group can be made, nobody counts what was refused, and the clock ends it.
    let which = &report["outcome"]["failed"]["limit"]["which"];
    assert!(which == "processes" || which == "wall", "{report}");
}

#[test]
fn an_output_flood_is_155_and_is_told() {
    let finished = limited("output = \"64KiB\"", &["yes"]);
    finished
        .exited(155)
        .says("stopped: it reached its output limit of 64.0 KiB");
}

#[test]
fn what_was_written_before_a_limit_is_kept() {
    let report = report(
        "wall = \"2s\"",
        &["sh", "-c", "echo half; echo draft > result.txt; sleep 600"],
    );
    assert_eq!(report["steps"][0]["stdout"]["text"], "half\n", "{report}");
    assert_eq!(report["outcome"]["failed"]["limit"]["which"], "wall");
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
