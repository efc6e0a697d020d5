//! Which step failed, why, and what is left? Steps run one after another or side by side, each in a sandbox of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::origin::{Answer, answer};
use crate::support::process::Finished;
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
        .says("step 6 of 9 (`check`): failed with exit code 1; 7 to 9 were not reached")
        .says("check: order 5 is wrong: acme,washers,many");
    assert!(
        told.stderr.contains(" 7  package    not reached"),
        "{}",
        told.stderr
    );
    let listed = world.valetkey(&["runs", "list", "--json"]).passed().json();
    let run = listed[0]["run"].as_str().unwrap();
    // The same later, from the saved report.
    let shown = world
        .valetkey(&["runs", "show", run])
        .passed()
        .says("step 6 of 9 (`check`)")
        .says("acme,washers,many");
    assert!(shown.stdout.contains("from `check`"), "{}", shown.stdout);
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
fn a_step_cannot_have_more_than_the_policys_limits() {
    let world = World::new();
    world.policy("[limits]\nwall = \"5m\"\nmemory = \"256MiB\"\n");
    for (more, told) in [
        (
            "wall = \"10m\"",
            "`wall` is \"10m\", which is more than the policy's limit of \"5m\"",
        ),
        (
            "memory = \"1GiB\"",
            "more than the policy's limit of \"256MiB\"",
        ),
    ] {
        run(&world, &step("one", "true", more), &[])
            .exited(78)
            .says(told)
            .says("steps.toml:4:");
    }
    run(&world, &step("one", "true", "wall = \"5m\""), &[]).passed();
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

#[test]
fn a_steps_file_with_a_mistake_runs_nothing_and_the_place_is_told() {
    let world = World::new();
    let ok = step("ok", "touch ran", "");
    for (text, place, told) in [
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nretrys = 1\n",
            "4:1",
            "did you mean `retries`?",
        ),
        (
            "[[step]]\nname = \"a\"\nname = \"b\"\nrun = [\"true\"]\n",
            "3:1",
            "duplicate",
        ),
        ("[[step]]\nrun = [\"true\"]\n", "1:1", "`name` is missing"),
        (
            "[[step]]\nname = \"../a\"\nrun = [\"true\"]\n",
            "2:8",
            "is not the name of a step",
        ),
        ("[[step]]\nname = \"a\"\n", "1:1", "there is nothing to run"),
        (
            "[[step]]\nname = \"a\"\nrun = []\n",
            "3:7",
            "names no program",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nshell = \"true\"\n",
            "4:9",
            "either",
        ),
        (
            "[[step]]\nname = \"a\"\nshell = \"a\\u0000b\"\n",
            "3:9",
            "no line of shell",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = \"true\"\n",
            "3:7",
            "array of strings",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nneeds = [\"b\"]\n",
            "4:10",
            "no step of this name",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nneeds = [\"a\"]\n",
            "4:10",
            "a needs a",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nretries = 99\n",
            "4:11",
            "from 0 to 20",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nretry_on = [\"exit\"]\n",
            "4:12",
            "without `retries`",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nretries = 1\nretry_on = [\"exits\"]\n",
            "5:13",
            "did you mean `exit`?",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nwall = 5\n",
            "4:8",
            "a string with a unit",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nenv = { \"A=B\" = \"c\" }\n",
            "4:17",
            "name of a variable",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nnetwork = \"proxy\"\n",
            "4:1",
            "unknown key `network`",
        ),
        ("secrets = [\"openai\"]\n", "1:1", "unknown key `secrets`"),
        ("", "1:1", "there are no steps"),
        ("[[step]\n", "1:", "error"),
    ] {
        // What comes before a mistake does not run either.
        let text = if text.contains("[[step]]") {
            format!("{text}{ok}")
        } else {
            text.to_owned()
        };
        let finished = run(&world, &text, &[]).exited(78).says(told);
        assert!(
            finished.stderr.contains(&format!("steps.toml:{place}")),
            "{}",
            finished.stderr
        );
    }
    assert_eq!(
        world.valetkey(&["runs", "list", "--json"]).json(),
        serde_json::json!([])
    );
    run(&world, &ok, &[]).passed();
}

#[test]
fn a_circle_and_a_name_given_twice_are_told_with_their_names() {
    let world = World::new();
    let circle = [
        step("a", "true", "needs = [\"c\"]"),
        step("b", "true", ""),
        step("c", "true", ""),
    ];
    run(&world, &circle.concat(), &[])
        .exited(78)
        .says("in a circle: a needs c needs b needs a");
    let twice = [step("a", "true", ""), step("a", "true", "")];
    run(&world, &twice.concat(), &[])
        .exited(78)
        .says("another step is called `a`, in line 1")
        .says("steps.toml:6:8");
}

#[test]
fn a_steps_file_that_is_not_one_is_refused() {
    let world = World::new();
    let refused = |name: &str, told: &str| {
        world
            .valetkey(&["run", "--steps", name])
            .exited(78)
            .says(told);
    };
    refused("missing.toml", "cannot read the steps file");
    refused(".", "not a regular file");
    world.file("big.toml", &"#".repeat((1 << 20) + 1));
    refused("big.toml", "larger than 1 MiB");
    let many: String = (0..65)
        .map(|number| step(&format!("s{number}"), "true", ""))
        .collect();
    world.file("many.toml", &many);
    refused("many.toml", "more than 64 steps");
    world
        .valetkey(&["run", "--steps", "many.toml", "--", "true"])
        .exited(2);
    world.valetkey(&["run"]).exited(2);
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
