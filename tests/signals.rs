//! Can it be told to end? A signal ends the sandbox and the run, and the exit code says which one it was.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::World;

/// Starts `valetkey run` with a command that reads its input to the end, and waits until it runs.
fn started(mut command: Command) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "started\n");
    child
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

const RUN: &[&str] = &["run", "--quiet", "--", "sh", "-c", "echo started; cat"];

#[test]
fn a_signal_ends_the_run_and_gives_128_and_its_number() {
    let world = World::new();
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let mut child = started(world.command(RUN));
        // Kept open, so that the command does not end by itself.
        let _input = child.stdin.take();
        send(signal, &child);
        // Not 137: no limit was reached.
        assert_eq!(child.wait().unwrap().code(), Some(128 + number), "{signal}");
    }
    world
        .valetkey(&["runs", "list"])
        .passed()
        .says_nothing_of("active");
}

#[test]
fn a_signal_that_the_caller_ignores_stays_ignored() {
    let world = World::new();
    let run = world.command(RUN);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(run.get_current_dir().unwrap())
        .env_clear()
        .envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let mut child = started(command);
    send("HUP", &child);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_person_is_told_that_the_run_was_interrupted_and_by_what() {
    let world = World::new();
    let mut command = world.command(&["run", "--", "sh", "-c", "echo started; sleep 600"]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    send("TERM", &child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143));
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(
        told.contains("valetkey: interrupted by SIGTERM ("),
        "{told}"
    );
    // The twin: a signal that the command sent itself.
    world
        .run(&["sh", "-c", "kill -TERM $$"])
        .exited(143)
        .says("ended by signal 15")
        .says_nothing_of("interrupted");
}
