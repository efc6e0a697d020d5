//! Can a program rely on it? Errors are JSON when it asked for JSON, and a reader that goes away is no error.

use std::process::{Command, Stdio};

use crate::support::World;
use crate::support::process::Finished;

const RULE: &str = "[[allow]]\nhost = \"shop.example\"\n";

/// The error that a command told, after comparing its exit code with the one told to people.
#[track_caller]
fn error(world: &World, arguments: &[&str], code: &str) -> serde_json::Value {
    let for_people = world.valetkey(arguments);
    let at = arguments.iter().position(|word| *word == "--");
    let (ours, theirs) = arguments.split_at(at.unwrap_or(arguments.len()));
    let told = world.valetkey(&[ours, &["--json"], theirs].concat());
    assert_ne!(told.code(), 0);
    assert_eq!(told.code(), for_people.code(), "{arguments:?}");
    assert!(!told.stderr.contains("error:"), "{}", told.stderr);
    let first = told.stdout.lines().next().unwrap_or_default();
    let line: serde_json::Value = serde_json::from_str(first).expect(first);
    let error = line["error"].clone();
    assert_eq!(error["code"], code, "{line}");
    assert_eq!(error["exit"], told.code());
    assert!(!error["message"].as_str().unwrap().is_empty());
    error
}

#[test]
fn a_mistake_in_a_policy_is_told_to_programs_with_its_place() {
    let world = World::new();
    world.file(
        "valetkey.toml",
        "version = 1\n[[allow]]\nhost = \"shop.example\"\nmethod = [\"GET\"]\npath = [\"/\"]\n",
    );
    for arguments in [
        &["check"][..],
        &["policy", "explain"],
        &["policy", "approve"],
        &["run", "--", "true"],
        &["runs", "create"],
    ] {
        let error = error(&world, arguments, "policy-invalid");
        assert_eq!(
            (&error["file"], &error["line"], &error["column"]),
            (&"valetkey.toml".into(), &4.into(), &1.into())
        );
        assert_eq!(error["hint"], "did you mean `methods`?");
        assert_eq!(error["problems"][1]["line"], 5);
    }
}

#[test]
fn every_kind_of_error_is_told_to_programs() {
    let world = World::new();
    error(&world, &["check"], "invalid");
    error(&world, &["frobnicate"], "usage");
    error(&world, &["secret", "add"], "usage");
    error(&world, &["secret", "test", "nothing"], "not-possible");
    error(
        &world,
        &["runs", "show", "run_0000000000000000000"],
        "not-found",
    );
    error(
        &world,
        &["runs", "create", "--policy", "missing.toml"],
        "invalid",
    );
    world.write_policy(RULE);
    error(&world, &["run", "--", "true"], "policy-not-approved");
    error(&world, &["policy", "approve"], "policy-not-approved");
    error(&world, &["runs", "create"], "unavailable");
    error(&world, &["check", "nonsense"], "invalid");
    std::fs::write(world.path("config/config.toml"), "[upstream]\nroot = 1\n").unwrap();
    let error = error(&world, &["check"], "settings-invalid");
    assert_eq!(error["line"], 2);
}

#[test]
fn a_run_that_could_not_begin_ends_its_output_with_the_report() {
    let world = World::new();
    world.write_policy("[sandbox]\nread = [\"/missing\"]\n");
    let digest = world.digest();
    let run = ["run", "--approved", &digest, "--", "true"];
    error(&world, &run, "sandbox-refused");
    let told = world.valetkey(&["run", "--approved", &digest, "--json", "--", "true"]);
    assert!(
        told.json()["outcome"]["failed"]["setup-failed"].is_string(),
        "{}",
        told.stdout
    );
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let mut world = World::new();
    world.secret("openai", "provider = \"openai\"");
    world.write_policy(RULE);
    world.approve();
    world.run(&["true"]).passed();
    for arguments in [
        &["completions", "bash"][..],
        &["--help"],
        &["--version"],
        &["check"],
        &["check", "--json"],
        &["policy", "schema"],
        &["policy", "explain"],
        &["policy", "init"],
        &["providers", "list"],
        &["secret", "list"],
        &["secret", "test", "nothing"],
        &["audit", "show"],
        &["runs", "list"],
        &["run", "--", "echo", "hi"],
        &["run", "--json", "--", "echo", "hi"],
        &["frobnicate"],
    ] {
        let open = world.valetkey(arguments);
        let mut command = world.command(arguments);
        command.env("VALETKEY_LOG", "trace");
        command.stdout(without_reader()).stderr(Stdio::piped());
        let told = ended(&world, command);
        assert_eq!(told.code(), open.code(), "{arguments:?}: {}", told.stderr);
        told.says_nothing_of("panicked");
        let mut command = world.command(arguments);
        command.env("VALETKEY_LOG", "trace");
        command.stdout(without_reader()).stderr(without_reader());
        assert_eq!(ended(&world, command).code(), open.code(), "{arguments:?}");
    }
}

/// The end of a pipe that nobody reads from.
fn without_reader() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn ended(world: &World, mut command: Command) -> Finished {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let finished = Finished::from_output(format!("{command:?}"), output);
    world.keep(&finished);
    finished
}
