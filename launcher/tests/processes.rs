//! What reaches other processes: the host's, the supervisor's, the sandbox's own first one.

use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use launcher::{Error, prepare};
use sdk::report::{Failure, Outcome};

use crate::support::{Box, as_each_user};

#[test]
fn typing_into_a_terminal_is_refused() {
    // TIOCSTI, the same with high bits, TIOCLINUX.
    for request in ["0x5412", "0x100005412", "0x541c"] {
        let sandbox = Box::probe(&["tiocsti", request]);
        assert_eq!(sandbox.output(), "pty EPERM\n", "{request}");
    }
    // TIOCOUTQ, an ordinary question with a bad address, reaches the terminal.
    assert_eq!(Box::probe(&["tiocsti", "0x5411"]).output(), "pty EFAULT\n");
}

#[test]
fn only_three_descriptors_are_passed_on() {
    as_each_user("processes::only_three_descriptors_are_passed_on", || {
        let folder = std::fs::File::open("/").unwrap();
        let leaked = rustix::io::dup(&folder).unwrap();
        assert!(leaked.as_raw_fd() > 2);
        let sandbox = Box::probe(&["fds"]).with_network();
        assert_eq!(sandbox.output(), "0 1 2 \n");
    });
}

#[test]
fn what_sandboxes_are_born_of_has_no_variable_of_the_owners() {
    as_each_user(
        "processes::what_sandboxes_are_born_of_has_no_variable_of_the_owners",
        || {
            assert!(std::env::vars_os().next().is_some());
            let started = Box::shell("true").start();
            let children = children();
            let mut seen = Vec::new();
            for child in &children {
                let name = name_of(child);
                // The sandbox's first process can be read by root only.
                if let Ok(environment) = std::fs::read(format!("/proc/{child}/environ")) {
                    assert!(environment.iter().all(|byte| *byte == 0), "{name}");
                    seen.push(name);
                }
            }
            assert!(
                seen.contains(&"zygote".to_owned()),
                "{children:?}: {seen:?}"
            );
            if rustix::process::geteuid().is_root() {
                assert!(seen.contains(&"init".to_owned()), "{children:?}: {seen:?}");
            }
            drop(started);
        },
    );
}

#[test]
fn a_real_time_priority_that_the_caller_may_have_is_not_the_commands() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let to = |value| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    // Where whoever runs the tests may, as root does in the virtual machine: an ordinary user has none to begin with.
    let _ = setrlimit(Resource::Rtprio, to(95));
    let _ = setrlimit(Resource::Nice, to(40));
    let sandbox = Box::shell("grep -E '(realtime|nice) priority' /proc/self/limits");
    for line in sandbox.output().lines() {
        let values: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
        assert_eq!(values, ["0", "0"], "{line}");
    }
    assert_eq!(sandbox.output().lines().count(), 2);
}

#[test]
fn sandboxes_go_on_and_new_ones_start_when_what_they_are_born_of_was_killed() {
    let sandbox = Box::shell("echo ran");
    let mut standing = sandbox.start();
    for child in children() {
        if name_of(&child) == "zygote" {
            let pid = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            // What was asked for in that very moment would be lost, and told.
            while !is_over(&child) {
                std::thread::yield_now();
            }
        }
    }
    let other = Box::shell("echo ran");
    assert_eq!(other.output(), "ran\n");
    standing.release().unwrap();
    let finished = standing.wait(&mut |_, _| {});
    assert_eq!(finished.stdout.text, "ran\n");
}

#[test]
fn a_first_process_that_is_killed_while_it_builds_is_told_and_the_next_sandbox_starts() {
    as_each_user(
        "processes::a_first_process_that_is_killed_while_it_builds_is_told_and_the_next_sandbox_starts",
        || {
            let before = children();
            let sandbox = Box::shell("echo ran");
            let prepared = prepare(&sandbox.spec).unwrap();
            // It is born and builds, or waits for what else there is to build.
            let first = loop {
                let all = children();
                let born = all.iter().find(|child| {
                    !before.contains(child) && name_of(child) == "init" && !is_over(child)
                });
                match born {
                    Some(child) => break child.clone(),
                    None => std::thread::yield_now(),
                }
            };
            let pid = rustix::process::Pid::from_raw(first.parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            let error = prepared.start().unwrap_err();
            assert!(matches!(error, Error::Fault(_)), "{error:?}");
            assert!(is_over(&first));
            assert_eq!(sandbox.output(), "ran\n");
        },
    );
}

/// The processes that this one has made.
fn children() -> Vec<String> {
    // Any thread of these tests may have been the one that made them.
    let all: String = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|thread| {
            std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default()
        })
        .collect();
    all.split_whitespace().map(str::to_owned).collect()
}

/// Whether a process has ended, waited for or not.
fn is_over(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn name_of(pid: &str) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

#[test]
fn a_background_child_does_not_hold_the_run_open() {
    let sandbox = Box::shell("(./probe pause &) ; exit 0");
    assert_eq!(sandbox.run().outcome, Outcome::Passed);
}

#[test]
fn a_daemon_ends_with_the_command() {
    let sandbox = Box::shell("./probe daemon; echo gone");
    let mark = sandbox.work().join("probe").display().to_string();
    assert_eq!(sandbox.output(), "gone\n");
    assert!(!running(&mark), "something of the sandbox is left");
}

#[test]
fn a_dropped_sandbox_is_gone() {
    let sandbox = Box::probe(&["pause"]);
    let mut started = sandbox.start();
    started.release().unwrap();
    drop(started);
    assert!(!running(
        &sandbox.work().join("probe").display().to_string()
    ));
}

#[test]
fn the_first_process_sleeps_while_the_command_runs() {
    let sandbox = Box::probe(&["pause"]);
    let program = sandbox.work().join("probe");
    let mut started = sandbox.start();
    started.release().unwrap();
    // One that looked for signals at a closed descriptor never slept. How long it takes to get there does not matter.
    let sleeps = || {
        let parent = field_of(&command(&program)?, 1)?;
        let state = field_of(std::path::Path::new(&format!("/proc/{parent}")), 0)?;
        (state == "S").then_some(())
    };
    while sleeps().is_none() {
        std::thread::yield_now();
    }
    drop(started);
}

/// The folder in `/proc` of the process that runs a program.
fn command(program: &std::path::Path) -> Option<std::path::PathBuf> {
    let mut all = std::fs::read_dir("/proc").ok()?.flatten();
    all.find_map(|entry| {
        let is_it = std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program);
        is_it.then(|| entry.path())
    })
}

/// A field of `stat` after the command's name (proc(5)): 0 is the state, 1 the parent.
fn field_of(process: &std::path::Path, place: usize) -> Option<String> {
    let line = std::fs::read_to_string(process.join("stat")).ok()?;
    let (_, fields) = line.rsplit_once(") ")?;
    fields.split(' ').nth(place).map(str::to_owned)
}

#[test]
fn processes_of_the_host_cannot_be_seen_or_signalled() {
    as_each_user(
        "processes::processes_of_the_host_cannot_be_seen_or_signalled",
        || {
            let mut victim = Command::new("sleep")
                .arg("600")
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            let pid = victim.id().to_string();
            assert_eq!(Box::probe(&["kill", &pid, "0"]).output(), "ESRCH\n");
            // Everybody it can reach is itself.
            let finished = Box::shell("kill -9 -1; echo alone").run();
            assert_eq!(finished.outcome, Outcome::Passed);
            let listed = Box::shell("cd /proc; echo [0-9]*").output();
            assert!(listed.split_whitespace().count() < 4, "{listed}");
            assert!(victim.try_wait().unwrap().is_none());
            victim.kill().unwrap();
            victim.wait().unwrap();
        },
    );
}

#[test]
fn the_first_process_cannot_be_read_traced_or_ended() {
    as_each_user(
        "processes::the_first_process_cannot_be_read_traced_or_ended",
        || {
            for name in [
                "environ",
                "mem",
                "exe",
                "maps",
                "root/etc/passwd",
                "cwd",
                "fd",
            ] {
                let path = format!("/proc/1/{name}");
                let output = Box::probe(&["open", &path, "r"]).output();
                assert!(
                    output == "ENOENT\n" || output == "EACCES\n",
                    "{path}: {output}"
                );
            }
            let sandbox = Box::probe(&["open", "/proc/self/environ", "r"]);
            assert_eq!(sandbox.output(), "ok\n");
            // PTRACE_SEIZE, process_vm_readv
            assert_eq!(
                Box::probe(&["syscall", "101", "0x4206", "1"]).output(),
                "EPERM\n"
            );
            assert_eq!(Box::probe(&["syscall", "310", "1"]).output(), "EPERM\n");
            // pidfd_getfd
            assert_eq!(
                Box::probe(&["syscall", "438", "0", "0"]).output(),
                "EPERM\n"
            );
            // A signal is ignored by the first process of a namespace.
            assert_eq!(
                Box::shell("kill -9 1; kill -STOP 1; echo there").output(),
                "there\n"
            );
        },
    );
}

#[test]
fn the_supervisors_environment_is_nowhere() {
    let output =
        Box::shell("cat /proc/*/environ /proc/self/task/*/environ 2>/dev/null | tr '\\0' '\\n'")
            .output();
    // The test's own environment always holds this one.
    assert!(!output.contains("CARGO"), "{output}");
}

#[test]
fn no_privilege_is_left_and_none_can_be_gained() {
    as_each_user(
        "processes::no_privilege_is_left_and_none_can_be_gained",
        || {
            let status = Box::shell("cat /proc/self/status").output();
            for line in [
                "CapInh:\t0000000000000000",
                "CapPrm:\t0000000000000000",
                "CapEff:\t0000000000000000",
                "CapAmb:\t0000000000000000",
                "NoNewPrivs:\t1",
                "Seccomp:\t2",
            ] {
                assert!(status.contains(line), "{line} is not in\n{status}");
            }
            assert_eq!(Box::probe(&["ids"]).output(), "1000 1000 1000 2 1\n");
            let finished =
                Box::shell("cp probe s && chmod 4755 s && ./s ids; sudo -n id; true").run();
            assert!(
                finished.stdout.text.starts_with("1000 1000 1000 "),
                "{finished:?}"
            );
            assert_eq!(finished.stdout.text.lines().count(), 1, "{finished:?}");
        },
    );
}

#[test]
fn a_crash_leaves_no_core() {
    let sandbox = Box::shell("ulimit -c; ./probe abort; ls");
    let output = sandbox.run().stdout.text;
    assert!(!output.contains("core"), "{output}");
    // 1 block of 512 bytes rounds down to 0; what matters is that it is not unlimited.
    assert!(
        output.starts_with("0\n") || output.starts_with("1\n"),
        "{output}"
    );
    assert_eq!(
        Box::probe(&["abort"]).run().outcome,
        Outcome::Failed(Failure::Signal(6))
    );
}

#[test]
fn the_sandbox_ends_when_the_supervisor_is_killed() {
    const NAME: &str = "processes::the_sandbox_ends_when_the_supervisor_is_killed";
    if std::env::var_os("SUPERVISOR").is_some() {
        let sandbox = Box::shell("echo up; exec ./probe pause");
        let mut started = sandbox.start();
        started.release().unwrap();
        started.wait(&mut |_, bytes| {
            use std::io::Write;
            let path = sandbox.work().join("probe");
            let _ = writeln!(std::io::stderr(), "RUNNING {}", path.display());
            let _ = bytes;
        });
        return;
    }
    use std::io::{BufRead, BufReader};
    let mut supervisor = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("SUPERVISOR", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(supervisor.stderr.take().unwrap()).lines();
    let mark = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("RUNNING ").map(str::to_owned))
        .unwrap();
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    // The kernel tells the first process; it is a matter of a moment, and of nothing else.
    for _ in 0..1000 {
        if !running(&mark) {
            let folder = std::path::Path::new(&mark)
                .parent()
                .unwrap()
                .parent()
                .unwrap();
            std::fs::remove_dir_all(folder).unwrap_or_default();
            return;
        }
        std::thread::yield_now();
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
    panic!("the sandbox outlived its supervisor");
}

#[test]
fn the_sandboxs_user_is_never_the_hosts_root() {
    as_each_user(
        "processes::the_sandboxs_user_is_never_the_hosts_root",
        || {
            let map = Box::shell("cat /proc/self/uid_map").output();
            let numbers: Vec<u32> = map
                .split_whitespace()
                .map(|number| number.parse().unwrap())
                .collect();
            let own = rustix::process::geteuid().as_raw();
            assert_eq!((numbers[0], numbers[2]), (1000, 1));
            assert!(numbers[1] != 0 && (own == 0 || numbers[1] == own), "{map}");
        },
    );
}

#[test]
fn a_sandbox_that_was_not_released_is_ended() {
    let sandbox = Box::shell("echo ran");
    let finished = sandbox.start().wait(&mut |_, _| {});
    assert_eq!(finished.stdout.bytes, 0);
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Signal(9)));
}

/// Whether a process of the host was started from this path, or works below its folder.
pub(crate) fn running(path: &str) -> bool {
    let folder = std::path::Path::new(path).parent().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let entry = entry.path();
        let place = |name: &str| std::fs::read_link(entry.join(name)).unwrap_or_default();
        place("exe") == std::path::Path::new(path) || place("cwd") == folder
    })
}
