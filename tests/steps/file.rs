//! What can a steps file not do, and what is told where it is wrong?

use super::{run, step};
use crate::support::World;

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
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nretry_wait = \"1s\"\n",
            "4:14",
            "`retry_wait` does nothing without `retries`",
        ),
        (
            "[[step]]\nname = \"a\"\nrun = [\"true\"]\nretries = 1\nretry_wait = \"2m\"\n",
            "5:14",
            "at most `1m`",
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
