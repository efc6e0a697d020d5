//! Which step failed, why, and what is left? Steps run one after another or side by side, each in a sandbox of its own.

mod endings;
mod file;
mod reports;
mod resumes;
mod waits;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::origin::{Answer, answer};
use crate::support::process::Finished;
use crate::support::world::greeting;
use crate::support::{World, root};

/// Runs these steps and gives the report.
fn report(world: &World, steps: &str) -> Value {
    run(world, steps, &["--json"]).json()
}

fn run(world: &World, steps: &str, options: &[&str]) -> Finished {
    world.file("steps.toml", steps);
    world.valetkey(&[&["run", "--steps", "steps.toml"], options].concat())
}

/// A step in shell.
fn step(name: &str, shell: &str, more: &str) -> String {
    format!("[[step]]\nname = {name:?}\nshell = {shell:?}\n{more}\n")
}

/// The outcome of the step with this number, from 1.
fn outcome(report: &Value, number: usize) -> String {
    report["steps"][number - 1]["outcome"].to_string()
}

/// What the run of a report left in its layers under this name, the newest.
fn kept(world: &World, report: &Value, name: &str) -> Option<String> {
    let run = world
        .path("state/runs")
        .join(report["run"].as_str().unwrap());
    let record: Value =
        serde_json::from_str(&fs::read_to_string(run.join("workspace.json")).unwrap()).unwrap();
    let layers = record["layers"].as_array().unwrap().iter().rev();
    layers
        .map(|layer| {
            run.join("layers")
                .join(layer.as_str().unwrap())
                .join("upper")
                .join(name)
        })
        .find_map(|file| fs::read_to_string(file).ok())
}

/// A world whose project is the example with nine steps.
fn example() -> World {
    let world = World::new();
    for name in [
        "steps.toml",
        "check.sh",
        "orders/monday.csv",
        "orders/tuesday.csv",
    ] {
        let text = fs::read_to_string(root().join("examples/steps").join(name)).unwrap();
        world.file(name, &text);
    }
    world
}

#[test]
fn the_nine_steps_of_the_example_pass_and_their_changes_are_kept() {
    let world = example();
    let report = world
        .valetkey(&["run", "--json", "--steps", "steps.toml"])
        .passed()
        .json();
    assert_eq!(report["outcome"], "passed");
    assert_eq!(report["resume_from"], Value::Null);
    // The folder build with seven files, and public with two.
    assert_eq!(report["changes"]["added"], 11, "{report}");
    assert_eq!(report["changes"]["deleted"], 0);
    let totals = kept(&world, &report, "build/totals.csv").unwrap();
    assert_eq!(totals, "acme,150\nglobex,75\ninitech,12\n");
    assert!(kept(&world, &report, "public/report.tar.sha256").is_some());
    assert!(
        !world.path("project/build").exists(),
        "the owner's files are as they were"
    );
}

#[test]
fn step_six_of_nine_fails_and_everything_about_it_is_told() {
    let world = example();
    world.file("orders/wednesday.csv", "acme,washers,many\n");
    let told = world
        .valetkey(&["run", "--steps", "steps.toml"])
        .exited(1)
        .says("step 6 of 9 (`check`): failed with exit code 1")
        .says("| check: order 5 is wrong: acme,washers,many")
        .says("not reached  7 package, 8 digest, 9 publish");
    assert!(
        told.stderr.contains(" 7  package    not reached"),
        "{}",
        told.stderr
    );
    let listed = world.valetkey(&["runs", "list", "--json"]).passed().json();
    let run = listed[0]["run"].as_str().unwrap();
    // The same later, from the saved report.
    for asked in [&["runs", "show", run][..], &["report", run]] {
        world
            .valetkey(asked)
            .passed()
            .says("step 6 of 9 (`check`)")
            .says("acme,washers,many");
    }
    let report = &world
        .valetkey(&["runs", "show", run, "--json"])
        .passed()
        .json()["report"];
    assert_eq!(report["resume_from"], "check");
    assert_eq!(report["steps"].as_array().unwrap().len(), 9);
    assert_eq!(outcome(report, 5), r#""passed""#);
    assert_eq!(outcome(report, 6), r#"{"failed":{"exit":1}}"#);
    assert_eq!(outcome(report, 7), r#""not-reached""#);
    assert_eq!(report["steps"][4]["files_changed"], 1);
    assert!(kept(&world, report, "build/report.txt").is_some());
}

#[test]
fn an_attempt_begins_without_what_the_failed_one_before_it_left() {
    let mut world = World::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let _origin = world.origin(
        "api.example.test",
        Arc::new(move |_| -> Answer {
            match count.fetch_add(1, Ordering::SeqCst) {
                0 => answer(503, "text/plain", "not now\n"),
                _ => answer(200, "text/plain", "hello\n"),
            }
        }),
    );
    world.policy("[[allow]]\nhost = \"api.example.test\"\n");
    let shell = "test -e left && exit 9; mkdir left && chmod 000 left; \
                 curl -fsS https://api.example.test/ > answer";
    let report = report(
        &world,
        &step("ask", shell, "retries = 2\nretry_on = [\"exit\"]"),
    );
    assert_eq!(report["outcome"], "passed", "{report}");
    assert_eq!(report["steps"][0]["attempts"], 2);
    assert_eq!(
        report["steps"][0]["retried"][0]["outcome"]["failed"]["exit"],
        22
    );
    assert_eq!(report["steps"][0]["retried"][0]["because"], "exit");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert_eq!(kept(&world, &report, "answer").unwrap(), "hello\n");
}

#[test]
fn a_step_that_nested_folders_without_end_is_tried_again() {
    let world = World::new();
    let nest = "import os\nfor n in range(3000):\n os.mkdir(\"d\")\n os.chdir(\"d\")";
    let shell = format!("test -e d && exit 9; python3 -c '{nest}'; exit 3");
    let again = "retries = 1\nretry_on = [\"exit\"]";
    let report = report(&world, &step("one", &shell, again));
    assert_eq!(report["steps"][0]["attempts"], 2, "{report}");
    assert_eq!(outcome(&report, 1), r#"{"failed":{"exit":3}}"#);
}

#[test]
fn a_step_is_tried_again_for_a_host_that_could_not_be_reached() {
    let mut world = World::new();
    // Nobody listens on port 1.
    world.dial("down.example.test:443", "127.0.0.1:1");
    world.policy("[[allow]]\nhost = \"down.example.test\"\n");
    let again = "retries = 1\nretry_on = [\"upstream-unreachable\"]";
    let steps = [
        step("ask", "curl -fsS https://down.example.test/", again),
        // It fails, too, but not for that.
        step("other", "exit 3", &format!("needs = []\n{again}")),
    ];
    let report = report(&world, &steps.concat());
    assert_eq!(report["steps"][0]["attempts"], 2, "{report}");
    assert_eq!(
        report["steps"][0]["retried"][0]["because"],
        "upstream-unreachable"
    );
    assert_eq!(report["steps"][1]["attempts"], 1);
}

#[test]
fn each_step_is_told_with_what_it_reached_and_has_its_own_rights() {
    let mut world = World::new();
    let _fetched = world.origin("data.example.test", greeting());
    let _published = world.origin("shop.example.test", greeting());
    world.policy(
        "[[allow]]\nhost = \"data.example.test\"\n[[allow]]\nhost = \"shop.example.test\"\n\
         [steps.publish]\nallow = [\"shop.example.test\"]\n[steps.pack]\nnetwork = \"none\"\n",
    );
    let ask = |host: &str| format!("curl -sS -o /dev/null -w '%{{http_code}}' https://{host}/");
    let steps = [
        step("fetch", &ask("data.example.test"), ""),
        step("pack", &format!("! {}", ask("data.example.test")), ""),
        step(
            "publish",
            &[ask("shop.example.test"), ask("data.example.test")].join("; "),
            "",
        ),
    ];
    let report = report(&world, &steps.concat());
    assert_eq!(report["outcome"], "passed", "{report}");
    let hosts = |number: usize| -> Vec<String> {
        let reached = report["steps"][number]["reached"].as_array().unwrap();
        reached
            .iter()
            .map(|one| one["host"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(hosts(0), ["data.example.test"]);
    assert!(hosts(1).is_empty());
    assert_eq!(hosts(2), ["shop.example.test"]);
    assert_eq!(report["steps"][2]["stdout"]["text"], "200403");
    assert_eq!(report["reached"].as_array().unwrap().len(), 2);
}

#[test]
fn a_failure_that_was_not_asked_to_be_tried_again_is_final() {
    let world = World::new();
    let steps = step("one", "exit 5", "retries = 3\nretry_on = [\"wall\"]");
    let report = report(&world, &steps);
    assert_eq!(report["steps"][0]["attempts"], 1);
    assert_eq!(outcome(&report, 1), r#"{"failed":{"exit":5}}"#);
}

#[test]
fn a_step_sees_what_the_steps_it_needs_left_and_nothing_else() {
    let world = World::new();
    let steps = [
        step("one", "echo 1 > one", ""),
        step("two", "echo 2 > two; test ! -e one", "needs = []"),
        step("both", "cat one two", "needs = [\"one\", \"two\"]"),
    ];
    let report = report(&world, &steps.concat());
    assert_eq!(report["outcome"], "passed", "{report}");
    assert_eq!(report["steps"][2]["stdout"]["text"], "1\n2\n");
}

#[test]
fn two_steps_side_by_side_that_write_one_file_are_a_conflict_and_the_path_is_told() {
    let world = World::new();
    let steps = [
        step("one", "echo 1 > same; echo 1 > one", "needs = []"),
        step("two", "echo 2 > same; echo 2 > two", "needs = []"),
        step("after", "true", "needs = [\"one\", \"two\"]"),
    ];
    let finished = run(&world, &steps.concat(), &["--json"]).exited(1);
    let report = finished.json();
    let failed = [1, 2]
        .into_iter()
        .filter(|number| outcome(&report, *number) != r#""passed""#);
    let failed: Vec<usize> = failed.collect();
    let [failed] = failed.as_slice() else {
        panic!("one of both fails: {report}");
    };
    let conflict = &report["steps"][failed - 1]["outcome"]["failed"]["conflict"];
    assert_eq!(conflict["paths"], serde_json::json!(["same"]));
    assert_eq!(conflict["with"], report["steps"][2 - failed]["name"]);
    assert_eq!(outcome(&report, 3), r#""not-reached""#);
    // What the other wrote is kept, and nothing is half merged.
    let other = (3 - failed).to_string() + "\n";
    assert_eq!(kept(&world, &report, "same").unwrap(), other);
    let name = report["steps"][failed - 1]["name"].as_str().unwrap();
    assert_eq!(kept(&world, &report, name), None);
}

#[test]
fn two_steps_side_by_side_may_write_to_one_new_folder() {
    let world = World::new();
    let steps = [
        step(
            "one",
            "mkdir -p out/deep; echo 1 > out/deep/one",
            "needs = []",
        ),
        step(
            "two",
            "mkdir -p out/deep; echo 2 > out/deep/two",
            "needs = []",
        ),
        step(
            "after",
            "cat out/deep/one out/deep/two",
            "needs = [\"one\", \"two\"]",
        ),
    ];
    let report = report(&world, &steps.concat());
    assert_eq!(report["outcome"], "passed", "{report}");
    assert_eq!(report["steps"][2]["stdout"]["text"], "1\n2\n");
}

#[test]
fn what_both_of_two_steps_side_by_side_wrote_is_told_and_taken_over() {
    let world = World::new();
    // A folder that was moved to its place is marked as one that shows nothing below it. The first to begin is the last to
    // end, most likely.
    let write = |name: &str, then: &str| format!("mkdir t; echo > t/{name}; mv t out; {then}");
    let steps = [
        step("one", &write("one", "sleep 1"), "needs = []"),
        step("two", &write("two", "true"), "needs = []"),
    ];
    let report = report(&world, &steps.concat());
    assert_eq!(report["outcome"], "passed", "{report}");
    let shown = world.valetkey(&["changes", "show", "last"]).passed();
    shown.says("out/one").says("out/two");
    world.valetkey(&["changes", "apply", "last"]).passed();
    for name in ["one", "two"] {
        assert!(world.path("project/out").join(name).exists(), "{name}");
    }
}

#[test]
fn a_failed_steps_changes_are_dropped_alone_when_that_is_asked_for() {
    let world = World::new();
    let steps = [
        step("good", "echo good > good", ""),
        step(
            "bad",
            "echo bad > bad; rm good; exit 1",
            "continue_on_failure = true",
        ),
        step("after", "ls", ""),
    ];
    let report = run(&world, &steps.concat(), &["--json", "--rollback-failed"])
        .exited(1)
        .json();
    assert_eq!(report["steps"][1]["rolled_back"], true);
    assert_eq!(report["steps"][2]["stdout"]["text"], "good\nsteps.toml\n");
    assert_eq!(kept(&world, &report, "bad"), None);
    let report = run(&world, &steps.concat(), &["--json"]).exited(1).json();
    assert_eq!(report["steps"][1]["rolled_back"], Value::Null);
    assert_eq!(report["steps"][2]["stdout"]["text"], "bad\nsteps.toml\n");
    assert_eq!(kept(&world, &report, "bad").unwrap(), "bad\n");
}

#[test]
fn a_step_that_failed_and_is_passed_over_still_gives_the_runs_exit_code() {
    let world = World::new();
    let steps = [
        step("lint", "exit 4", "continue_on_failure = true"),
        step("build", "exit 5", ""),
    ];
    let report = run(&world, &steps.concat(), &["--json"]).exited(4).json();
    assert_eq!(outcome(&report, 2), r#"{"failed":{"exit":5}}"#);
    assert_eq!(report["resume_from"], "lint");
}

#[test]
fn a_step_can_have_less_than_the_policys_limits_and_is_told_by_its_own() {
    let world = World::new();
    let steps = [
        step("quick", "true", ""),
        step("slow", "echo begun; sleep 600", "wall = \"1s\""),
    ];
    run(&world, &steps.concat(), &[])
        .exited(124)
        .says("step 2 of 2 (`slow`): stopped: it reached its wall limit of 1.0 s")
        .says("| begun");
    let flood = step("flood", "head -c 100000 /dev/zero", "output = \"4KiB\"");
    let report = run(&world, &flood, &["--json"]).exited(155).json();
    assert_eq!(
        report["steps"][0]["outcome"]["failed"]["limit"]["value"],
        4096
    );
}

#[test]
fn the_workspace_may_be_shown_in_any_mode() {
    let world = World::new();
    let steps = [
        step("one", "echo 1 > /tmp/one; ls", ""),
        step("two", "test ! -e /tmp/one", ""),
    ];
    for mode in ["read-only", "read-write", "none"] {
        world.policy(&format!(
            "[sandbox]\nworkspace = {{ path = \".\", mode = {mode:?} }}"
        ));
        run(&world, &steps.concat(), &[]).passed();
    }
    world.policy("[sandbox]\nworkspace = { path = \".\", mode = \"read-write\" }");
    let steps = [step("one", "echo 1 > one", ""), step("two", "cat one", "")];
    run(&world, &steps.concat(), &[]).passed().says("two | 1");
    run(&world, &steps.concat(), &["--rollback-failed"])
        .exited(78)
        .says("read-write");
}

#[test]
fn a_step_leaves_no_process_to_the_next() {
    let world = World::new();
    let steps = [
        step("one", "(sleep 600 & echo $! > pid); true", ""),
        step(
            "two",
            "ls /proc | grep -c '^[0-9]'; ps ax 2>/dev/null | grep -c '[s]leep 600'; true",
            "",
        ),
    ];
    let report = report(&world, &steps.concat());
    assert_eq!(report["outcome"], "passed");
    let counted = report["steps"][1]["stdout"]["text"].as_str().unwrap();
    assert!(counted.ends_with("0\n"), "{counted}");
}

#[test]
fn as_many_steps_as_a_file_may_have_run_over_each_others_changes() {
    let world = World::new();
    let many: String = (0..64)
        .map(|number| step(&format!("s{number}"), "echo x >> all; wc -l < all", ""))
        .collect();
    let report = report(&world, &many);
    assert_eq!(report["outcome"], "passed", "{report}");
    assert_eq!(report["steps"][63]["stdout"]["text"], "64\n");
}

#[test]
fn what_steps_print_is_labelled_and_cannot_command_the_terminal_or_another_label() {
    let world = World::new();
    let shell = "printf 'one\\rtwo\\nthree'; printf 'err\\n' >&2";
    let finished = run(&world, &step("say", shell, ""), &[]).passed();
    assert_eq!(finished.stdout, "say | one\nsay | two\nsay | three\n");
    assert!(
        finished.stderr.contains("say | err\n"),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_step_whose_program_is_missing_is_127_and_what_was_before_it_is_kept() {
    let world = World::new();
    let missing = "[[step]]\nname = \"missing\"\nrun = [\"no-such-program\"]\nretries = 3\n";
    let steps = [step("first", "echo 1 > first", ""), missing.to_owned()];
    let report = run(&world, &steps.concat(), &["--json"]).exited(127).json();
    assert_eq!(report["steps"][1]["attempts"], 1);
    assert_eq!(kept(&world, &report, "first").unwrap(), "1\n");
}

/// The folder of the example is complete: what its steps name is in it.
#[test]
fn the_example_is_what_the_documentation_shows() {
    let folder: PathBuf = root().join("examples/steps");
    for name in [
        "steps.toml",
        "check.sh",
        "orders/monday.csv",
        "orders/tuesday.csv",
    ] {
        assert!(folder.join(name).is_file(), "{name}");
    }
}
