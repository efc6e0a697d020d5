//! The sandbox's own terminal, and signals passed to its command.

use std::io;
use std::time::Duration;

use launcher::{Finished, Signal, Started, WindowSize};
use sdk::report::{Failure, Outcome};

use crate::support::{Box, as_each_user};

/// A sandbox with a terminal.
fn with_terminal(line: &str) -> Box {
    Box::shell(line).with(|spec| {
        spec.terminal = Some(WindowSize {
            rows: 24,
            columns: 80,
        });
    })
}

/// Runs to the end; `act` is told each time something was printed, with all that was printed so far.
fn watched(mut started: Started, act: &mut dyn FnMut(&str)) -> Finished {
    started.release().unwrap();
    let mut all = String::new();
    started.wait(&mut |_, bytes| {
        all.push_str(&String::from_utf8_lossy(bytes));
        act(&all);
    })
}

/// Does something the first time that a text was printed.
fn once<'a>(text: &'a str, mut act: impl FnMut() + 'a) -> impl FnMut(&str) + 'a {
    let mut done = false;
    move |all| {
        if !done && all.contains(text) {
            done = true;
            act();
        }
    }
}

#[test]
fn a_command_with_a_terminal_has_one_of_the_sandboxes_own() {
    as_each_user(
        "terminal::a_command_with_a_terminal_has_one_of_the_sandboxes_own",
        || {
            let sandbox = with_terminal(
                "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo three; ls /dev/pts",
            );
            assert_eq!(
                sandbox.output(),
                "/dev/pts/0\r\n24 80\r\nthree\r\n0  ptmx\r\n"
            );
            // Without asking there is none.
            let plain = Box::shell("tty; test -t 1 || echo none");
            assert!(plain.run().stdout.text.ends_with("none\n"));
        },
    );
}

#[test]
fn the_terminal_is_the_commands_own_and_takes_no_typed_input_from_inside() {
    as_each_user(
        "terminal::the_terminal_is_the_commands_own_and_takes_no_typed_input_from_inside",
        || {
            // It leads the session whose terminal it is.
            let line = "test \"$(ps -o sid= -p $$ | tr -d ' ')\" = $$ && echo leads; : </dev/tty && echo has";
            assert_eq!(with_terminal(line).output(), "leads\r\nhas\r\n");
            let sandbox = with_terminal("./probe tiocsti 0x5412");
            assert_eq!(sandbox.output(), "pty EPERM\r\n");
        },
    );
}

#[test]
fn what_is_typed_arrives_and_a_new_size_is_told() {
    let sandbox = with_terminal(
        "trap 'stty size; exit 7' WINCH; read line; echo got $line; while :; do read x; done",
    );
    let started = sandbox.start();
    let terminal = started.terminal.clone().unwrap();
    assert_eq!(terminal.type_in(b"hello\n").unwrap(), 6);
    let finished = watched(
        started,
        &mut once("got hello", || {
            let size = WindowSize {
                rows: 50,
                columns: 132,
            };
            terminal.resize(size).unwrap();
        }),
    );
    assert!(finished.stdout.text.contains("50 132"), "{finished:?}");
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(7)));
}

#[test]
fn a_full_terminal_says_so_and_does_not_block() {
    let sandbox = with_terminal("sleep 600");
    let started = sandbox.start();
    let terminal = started.terminal.clone().unwrap();
    // Nobody reads: after some kilobytes no more is taken.
    let error = loop {
        if let Err(error) = terminal.type_in(&[b'x'; 512]) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn what_a_terminal_shows_is_counted_and_kept_to_the_limit() {
    let sandbox = with_terminal("yes").with(|spec| spec.limits.output = Some(10_000));
    let finished = sandbox.run();
    let Outcome::Failed(Failure::Limit(hit)) = &finished.outcome else {
        panic!("{finished:?}");
    };
    assert_eq!(hit.which, sdk::report::Limit::Output);
    assert_eq!(finished.stdout.bytes, 10_000);
}

#[test]
fn the_last_words_on_a_terminal_are_not_lost() {
    let sandbox = with_terminal("seq 1 2000; printf last");
    let text = sandbox.output();
    assert!(text.ends_with("2000\r\nlast"), "{}", text.len());
    assert_eq!(text.lines().count(), 2001);
}

#[test]
fn a_signal_is_passed_to_the_command() {
    as_each_user("terminal::a_signal_is_passed_to_the_command", || {
        for (signal, name) in [
            (Signal::Terminate, "TERM"),
            (Signal::Interrupt, "INT"),
            (Signal::HangUp, "HUP"),
            (Signal::Quit, "QUIT"),
            (Signal::User1, "USR1"),
            (Signal::User2, "USR2"),
        ] {
            let line = format!(
                "trap 'echo caught; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
            );
            for sandbox in [Box::shell(&line), with_terminal(&line)] {
                let started = sandbox.start();
                let killer = started.killer();
                let finished = watched(started, &mut once("ready", || killer.ask(signal)));
                assert_eq!(
                    finished.outcome,
                    Outcome::Failed(Failure::Exit(9)),
                    "{name}"
                );
                assert!(finished.stdout.text.contains("caught"), "{name}");
            }
        }
    });
}

#[test]
fn a_signal_in_a_terminal_reaches_what_is_in_the_foreground_and_not_its_shell() {
    let line = "set -m; trap 'echo shell too' INT; sh -c 'trap \"echo child; exit 3\" INT; echo ready; while :; do sleep 0.05; done'; echo shell goes on";
    let sandbox = with_terminal(line);
    let started = sandbox.start();
    let killer = started.killer();
    let finished = watched(
        started,
        &mut once("ready", || killer.ask(Signal::Interrupt)),
    );
    assert!(
        finished.stdout.text.ends_with("child\r\nshell goes on\r\n"),
        "{finished:?}"
    );
    assert_eq!(finished.outcome, Outcome::Passed);
}

#[test]
fn a_command_that_ignores_being_asked_is_ended() {
    let sandbox = Box::shell("trap '' TERM INT HUP; echo ready; while :; do sleep 0.05; done");
    let started = sandbox.start();
    let killer = started.killer();
    let finished = watched(
        started,
        &mut once("ready", || {
            killer.end(Signal::Terminate, Duration::from_millis(100));
        }),
    );
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Signal(9)));
}

#[test]
fn a_stopped_command_can_be_continued_and_asked_to_end() {
    let line = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let sandbox = Box::shell(line);
    let started = sandbox.start();
    let killer = started.killer();
    let finished = watched(
        started,
        &mut once("ready", || {
            killer.ask(Signal::Stop);
            killer.ask(Signal::Terminate);
        }),
    );
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(5)));
}

#[test]
fn a_signal_before_the_command_was_let_go_means_that_it_never_starts() {
    let sandbox = Box::shell("echo started");
    let mut started = sandbox.start();
    started.killer().ask(Signal::Terminate);
    let _ = started.release();
    let finished = started.wait(&mut |_, _| {});
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Signal(9)));
    assert_eq!(finished.stdout.text, "");
}

#[test]
fn what_is_written_to_a_piped_input_arrives_and_ends() {
    let sandbox = Box::shell("cat; echo end").with(|spec| spec.stdin = launcher::Stdin::Piped);
    let mut started = sandbox.start();
    let input = started.input.take().unwrap();
    rustix::io::write(&input, b"line\n").unwrap();
    drop(input);
    started.release().unwrap();
    let finished = started.wait(&mut |_, _| {});
    assert_eq!(finished.stdout.text, "line\nend\n");
}
