//! Can a person work in it? A shell, an editor, keys and signals, seen from a terminal of the test's own.

use std::path::Path;
use std::process::Command;

use crate::support::World;
use crate::support::session::Session;

fn run(world: &World, arguments: &[&str]) -> Session {
    Session::start(&world.command(&[&["run"], arguments].concat()))
}

/// `valetkey run -t`, with a shell's line.
fn in_terminal(world: &World, line: &str) -> Session {
    run(world, &["-t", "--", "sh", "-c", line])
}

/// The line that starts it from a shell.
fn line(world: &World, arguments: &str) -> String {
    let command = world.command(&[]);
    format!("{} run {arguments}\r", command.get_program().display())
}

/// A shell outside, from which `valetkey` is one job of several.
fn shell_outside(world: &World) -> Session {
    let command = world.command(&[]);
    let mut shell = Command::new("bash");
    shell
        .args(["--norc", "--noprofile", "-i"])
        .current_dir(command.get_current_dir().unwrap())
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PS1", "outside> ");
    let mut session = Session::start(&shell);
    session.shows("outside> ");
    session
}

#[test]
fn a_shell_inside_has_job_control_and_the_windows_size() {
    let world = World::new();
    let mut session = run(&world, &["-t", "--", "bash", "--norc", "--noprofile", "-i"]);
    session.shows("$ ");
    session.keys("tty; stty size\r");
    session.shows("/dev/pts/0\r\n24 80\r\n");
    session.shows("$ ");
    session.resize(50, 132);
    // It draws its prompt anew when it is told.
    session.shows("$ ");
    session.keys("stty size\r");
    session.shows("50 132\r\n");
    session.shows("$ ");
    // Ctrl-C ends what is in the foreground, and neither the shell nor the run. The job itself says that it is there: before
    // that, the key would be for a shell that is about to start it.
    session.keys("sh -c 'echo begin; exec sleep 600'\r");
    session.shows("begin\r\n");
    session.keys("\x03");
    session.shows("$ ");
    session.keys("echo code $?\r");
    session.shows("code 130\r\n");
    session.shows("$ ");
    // Ctrl-Z stops it.
    session.keys("sh -c 'echo begin; exec sleep 601'\r");
    session.shows("begin\r\n");
    session.keys("\x1a");
    session.shows("Stopped");
    session.shows("$ ");
    session.keys("kill -9 %1; echo so\\on\r");
    session.shows("soon\r\n");
    session.shows("$ ");
    session.keys("(exit 5)\r");
    session.shows("$ ");
    // Ctrl-D ends the shell. At the prompt only: a terminal forgets one that comes while a shell changes its modes.
    session.keys("\x04");
    let (_, code) = session.ends();
    assert_eq!(code, Some(5));
}

#[test]
fn a_new_size_of_the_window_is_told_at_once() {
    let world = World::new();
    let mut session = in_terminal(
        &world,
        "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done",
    );
    session.shows("ready");
    session.resize(31, 101);
    session.shows("31 101");
    assert_eq!(session.ends().1, Some(0));
}

#[test]
fn the_terminal_is_put_back_however_the_command_ends() {
    let world = World::new();
    for (end, code) in [("exit 4", 4), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let mut session = in_terminal(
            &world,
            &format!("stty raw -echo; printf '\\033[?1049h\\033[?25lready'; read x; {end}"),
        );
        session.shows("ready");
        assert!(!session.is_ordinary());
        session.keys("x\n");
        session.shows("\x1b[?1049l\x1b[?25h");
        session.shows("details");
        assert!(session.is_ordinary(), "{end}");
        assert_eq!(session.ends().1, Some(code), "{end}");
    }
}

#[test]
fn the_terminal_is_put_back_when_valetkey_is_told_to_end() {
    let world = World::new();
    let mut session = in_terminal(&world, "echo ready; sleep 600");
    session.shows("ready");
    send("TERM", session.id());
    session.shows("details");
    assert!(session.is_ordinary());
    assert_eq!(session.ends().1, Some(143));
}

#[test]
fn what_a_program_changed_of_the_terminal_is_undone_also_when_nobody_waits_for_it() {
    let world = World::new();
    // Its output has no end and is not read from here on, so that only the third signal ends valetkey, where it stands.
    let flood = "printf '\\033[?1049h\\033[?25lready'; exec yes";
    let mut session = in_terminal(&world, flood);
    session.shows("ready");
    for signal in ["TERM", "INT", "HUP"] {
        send(signal, session.id());
    }
    let (shown, code) = session.ends();
    assert!(matches!(code, Some(129 | 130 | 143)), "{code:?}");
    let (_, after) = shown.split_once("ready").unwrap();
    for undone in ["\x1b[?1049l", "\x1b[?25h"] {
        let end = &after[after.len().saturating_sub(200)..];
        assert!(after.contains(undone), "{end:?}");
    }
}

#[test]
fn nothing_inside_types_into_the_owners_terminal_or_commands_it() {
    let world = World::new();
    let program = "import fcntl, os\n\
        for fd in (0, 1, 2, os.open('/dev/tty', os.O_RDWR)):\n\
        \x20   try: fcntl.ioctl(fd, 0x5412, b'x'); print('typed')\n\
        \x20   except OSError as error: print('refused', error.errno)\n\
        print(os.listdir('/dev/pts'))";
    let mut session = run(&world, &["-t", "--", "/usr/bin/python3", "-c", program]);
    session.shows("refused 1\r\nrefused 1\r\nrefused 1\r\nrefused 1\r\n");
    // Its own terminal is the only one that it finds.
    session.shows("'0'");
    assert!(!session.ends().0.contains("typed"));
    let line = "printf 'a\\033]52;c;aGk=\\007b\\033[21tc\\033[2Jd\\n'";
    let (shown, _) = in_terminal(&world, line).ends();
    assert!(shown.contains("abc\x1b[2Jd\r\n"), "{shown:?}");
}

#[test]
fn what_commands_a_terminal_gets_into_a_file_as_it_is_and_not_to_a_terminal() {
    let world = World::new();
    let print = "printf 'a\\033]52;c;aGk=\\007b\\033[21tc\\n'";
    let (shown, _) = run(&world, &["--", "sh", "-c", print]).ends();
    for command in ["\x1b]", "\x1b[21t", "\x07"] {
        assert!(!shown.contains(command), "{shown:?}");
    }
    let arguments = ["run", "--", "sh", "-c", print];
    let piped = world.finish(world.command(&arguments), "").passed();
    assert_eq!(piped.stdout, "a\x1b]52;c;aGk=\x07b\x1b[21tc\n");
}

#[test]
fn a_command_that_takes_every_key_can_be_left() {
    let world = World::new();
    let deaf = "trap '' INT TERM HUP QUIT; stty raw -echo; echo ready; while :; do sleep 0.1; done";
    let mut session = in_terminal(&world, deaf);
    session.shows("ready");
    session.keys("\x03\x1c\x1d\x1d\x1d");
    session.shows("details");
    assert!(session.is_ordinary());
    assert_eq!(session.ends().1, Some(130));
}

#[test]
fn a_terminal_is_given_only_when_asked_for_and_where_there_is_one() {
    let world = World::new();
    let asked = world.finish(world.command(&["run", "-t", "--", "true"]), "");
    asked.exited(125).says("`-t` needs a terminal");
    let mut session = run(&world, &["--", "sh", "-c", "test -t 1 || echo none"]);
    session.shows("none");
    assert_eq!(session.ends().1, Some(0));
}

#[test]
fn lines_that_are_typed_reach_a_command_without_a_terminal() {
    let world = World::new();
    let mut session = run(
        &world,
        &["--", "sh", "-c", "echo ready; read x; echo got:$x; cat"],
    );
    session.shows("ready");
    session.keys("hello\r");
    session.shows("line by line");
    session.shows("got:hello");
    // Ctrl-D.
    session.keys("\x04");
    assert_eq!(session.ends().1, Some(0));
}

#[test]
fn a_run_in_the_background_goes_on_and_reads_when_it_is_in_front() {
    let world = World::new();
    let mut session = shell_outside(&world);
    let command = "-- sh -c 'echo up; read x; echo got:$x' &";
    session.keys(&line(&world, command));
    session.shows("up");
    session.keys("jobs; echo lo\\oked\r");
    session.shows("Running");
    session.shows("looked");
    session.keys("fg\r");
    session.shows("run -- sh");
    session.keys("hello\r");
    session.shows("got:hello");
    session.shows("outside> ");
    session.keys("exit\r");
    session.ends();
}

#[test]
fn ctrl_c_reaches_the_command_and_a_second_one_ends_it() {
    let world = World::new();
    // It may tidy up, and its own code counts.
    let tidy = "trap 'echo tidied; exit 7' INT; echo ready; while :; do sleep 0.1; done";
    let mut session = run(&world, &["--", "sh", "-c", tidy]);
    session.shows("ready");
    session.keys("\x03");
    session.shows("tidied");
    assert_eq!(session.ends().1, Some(7));
    let deaf = "trap 'echo deaf' INT; echo ready; while :; do sleep 0.1; done";
    let mut session = run(&world, &["--", "sh", "-c", deaf]);
    session.shows("ready");
    session.keys("\x03");
    session.shows("deaf");
    session.keys("\x03");
    assert_eq!(session.ends().1, Some(130));
}

#[test]
fn a_closed_window_ends_the_run() {
    let world = World::new();
    for arguments in [&["--"][..], &["-t", "--"]] {
        let line = ["sh", "-c", "echo ready; sleep 600"];
        let mut session = run(&world, &[arguments, &line].concat());
        session.shows("ready");
        assert_eq!(session.hang_up(), Some(129), "{arguments:?}");
    }
    world
        .valetkey(&["runs", "list"])
        .passed()
        .says_nothing_of("active");
}

#[test]
fn an_editor_a_pager_and_a_prompt_work() {
    let world = World::new();
    world.file("text", "first line\n");
    if Path::new("/usr/bin/vim").exists() {
        let mut session = run(&world, &["-t", "--", "vim", "-u", "NONE", "-N", "text"]);
        session.shows("first line");
        session.keys("oadded\x1b:wq\r");
        let (shown, code) = session.ends();
        assert_eq!(code, Some(0), "{shown}");
        // Written to the copy: the file itself is as it was.
        assert_eq!(
            std::fs::read_to_string(world.path("project/text")).unwrap(),
            "first line\n"
        );
    }
    if Path::new("/usr/bin/less").exists() {
        let mut session = run(&world, &["-t", "--", "less", "text"]);
        session.shows("first line");
        session.keys("q");
        assert_eq!(session.ends().1, Some(0));
    }
    let mut session = run(&world, &["-t", "--", "/usr/bin/python3", "-q"]);
    session.shows(">>> ");
    session.keys("6*7\r");
    session.shows("42");
    session.shows(">>> ");
    session.keys("\x04");
    assert_eq!(session.ends().1, Some(0));
}

fn send(signal: &str, process: u32) {
    let sent = Command::new("kill")
        .args([&format!("-{signal}"), &process.to_string()])
        .status();
    assert!(sent.unwrap().success());
}
#[test]
fn ctrl_z_stops_the_run_with_its_command_and_fg_goes_on() {
    let world = World::new();
    let mut session = shell_outside(&world);
    let command =
        "-- sh -c 'echo up; while ! test -e /tmp/on; do read x; touch /tmp/on; done; echo on'";
    session.keys(&line(&world, command));
    session.shows("up\r\n");
    session.keys("\x1a");
    session.shows("Stopped");
    session.keys("fg\r");
    session.shows("fg\r\n");
    // By now the shell has set the terminal for it.
    session.shows("run -- sh");
    session.keys("x\r");
    session.shows("on\r\n");
    session.shows("outside> ");
    session.keys("exit\r");
    session.ends();
}

#[test]
fn labels_have_colours_on_a_terminal_and_nowhere_else() {
    let world = World::new();
    world.file(
        "steps.toml",
        "[[step]]\nname = \"one\"\nshell = \"printf '\\\\033[31mred\\\\n'; echo plain\"\n",
    );
    let steps = ["--steps", "steps.toml", "--quiet"];
    let (shown, code) = run(&world, &steps).ends();
    assert_eq!(code, Some(0));
    // The label's colour ends before the step's words, and theirs before the next label.
    let label = "\x1b[32mone\x1b[m | ";
    let red = format!("{label}\x1b[31mred\x1b[0m\r\n");
    assert!(shown.contains(&red), "{shown:?}");
    assert!(shown.contains(&format!("{label}plain\r\n")), "{shown:?}");
    // The owner wants none: the step's own are the step's.
    let mut command = world.command(&[&["run"], &steps[..]].concat());
    command.env("NO_COLOR", "1");
    let (shown, _) = Session::start(&command).ends();
    assert!(shown.contains("one | plain\r\n"), "{shown:?}");
    assert!(!shown.contains("\x1b[32m"), "{shown:?}");
    // Into a pipe.
    let piped = world.valetkey(&[&["run"], &steps[..]].concat()).passed();
    assert_eq!(piped.stdout, "one | \x1b[31mred\none | plain\n");
}
