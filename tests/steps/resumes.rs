//! Does a run go on from the step that failed, over what the others left, and only where that is right?

use serde_json::Value;

use super::{kept, outcome, report, run, step};
use crate::support::World;

const ONE: &str = "echo once >> count";
const THREE: &str = "echo junk > junk; test -e fixed";

fn steps(one: &str, three: &str) -> String {
    [
        step("one", one, ""),
        step("two", "true", ""),
        step("three", three, ""),
        step("four", "cat count; ls", ""),
    ]
    .concat()
}

/// A world with a run whose third step failed, and its report.
fn failed() -> (World, Value) {
    let world = World::new();
    world.file("mine", "before\n");
    let told = report(&world, &steps(ONE, THREE));
    assert_eq!(outcome(&told, 3), r#"{"failed":{"exit":1}}"#);
    (world, told)
}

#[test]
fn a_run_goes_on_from_the_step_that_failed_over_what_the_others_left() {
    let (world, before) = failed();
    let earlier = before["run"].as_str().unwrap();
    world.file("fixed", "");
    let told = run(
        &world,
        &steps(ONE, "test ! -e junk && test -e fixed"),
        &["--json", "--resume", "last"],
    )
    .passed()
    .json();
    assert_eq!(told["resumed"], earlier);
    assert_eq!(told["steps"][0], before["steps"][0], "it is told as it was");
    assert_eq!(outcome(&told, 4), r#""passed""#);
    let seen = told["steps"][3]["stdout"]["text"].as_str().unwrap();
    assert!(
        seen.starts_with("once\n") && !seen.contains("junk"),
        "{seen}"
    );
    assert_eq!(kept(&world, &told, "count").unwrap(), "once\n");
    // What was the earlier run's is this one's, once.
    let shown = world
        .valetkey(&["changes", "show", earlier, "--json"])
        .passed()
        .json();
    assert_eq!(
        shown["changes"].as_array().map(Vec::len),
        Some(0),
        "{shown}"
    );
    world.valetkey(&["changes", "discard", earlier]);
    let now = told["run"].as_str().unwrap();
    world.valetkey(&["changes", "apply", now]).passed();
    let count = std::fs::read_to_string(world.path("project/count")).unwrap();
    assert_eq!(count, "once\n");
}

#[test]
fn a_run_can_be_gone_on_with_again_and_again() {
    let (world, before) = failed();
    let first = before["run"].as_str().unwrap();
    let second = run(&world, &steps(ONE, "false"), &["--json", "--resume", first])
        .exited(1)
        .json();
    let third = second["run"].as_str().unwrap();
    let told = run(
        &world,
        &steps(ONE, "echo 3 > three"),
        &["--json", "--resume", third],
    )
    .passed()
    .json();
    assert_eq!(told["resumed"], third);
    let seen = told["steps"][3]["stdout"]["text"].as_str().unwrap();
    assert!(
        seen.starts_with("once\n") && seen.contains("three"),
        "{seen}"
    );
}

#[test]
fn a_run_is_not_gone_on_with_where_something_changed_that_makes_it_wrong() {
    let (world, before) = failed();
    let earlier = before["run"].as_str().unwrap();
    let refused = |steps: &str, why: &str| {
        run(&world, steps, &["--resume", earlier])
            .exited(78)
            .says(why);
    };
    refused(
        &steps("echo twice >> count", THREE),
        "the steps file changed: step 1 (`one`)",
    );
    refused(
        &step("one", ONE, ""),
        "the steps file changed: step 2 (`two`)",
    );
    world.file("count", "mine\n");
    refused(&steps(ONE, THREE), "`count` changed in the workspace since");
    std::fs::remove_file(world.path("project/count")).unwrap();
    world.policy("[sandbox]\nworkspace = { path = \".\", mode = \"read-only\" }");
    refused(&steps(ONE, THREE), "the policy changed");
    world.policy("");
    world.file("fixed", "");
    run(&world, &steps(ONE, THREE), &["--resume", earlier])
        .passed()
        // There is nothing left to go on with.
        .says_nothing_of("--resume");
    refused(&steps(ONE, THREE), "another run went on with it already");
}
