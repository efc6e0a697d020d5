//! B: processes, and what they tell about the launcher.

use launcher::Layer::{
    CallsOthers, Capabilities, CoreLimit, Environment, Landlock, MountFlags, NoNewPrivileges,
    ProcessNamespace, SupervisorsDeath, Undumpable,
};

use super::{Open, Way, as_both, attempt, is_one_of, sandbox, try_all};

#[test]
fn the_first_process_is_out_of_reach() {
    try_all(
        "escapes::processes::the_first_process_is_out_of_reach",
        &[
            Way {
                row: "B2, 08: ptrace",
                line: "./escape seize 1",
                closed: &["EPERM"],
                layers: &[CallsOthers, Undumpable, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "B2, 08b: being traced",
                line: "./escape traceme",
                closed: &["EPERM"],
                layers: &[CallsOthers],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "B2, 09: its memory",
                line: "./escape peek 1",
                closed: &["EPERM"],
                layers: &[CallsOthers, Undumpable, Landlock],
                open: Open::Answers(&["EFAULT"]),
            },
            Way {
                row: "B2, 10: the launcher's environment",
                line: "tr '\\0' '\\n' < /proc/1/environ | grep SECRET_TOKEN",
                closed: &["/bin/sh: 1: cannot open /proc/1/environ: *"],
                layers: &[Undumpable, Landlock, Environment],
                open: Open::Answers(&["SECRET_TOKEN=test-secret-hunter2"]),
            },
            Way {
                row: "B2: its root",
                line: "./probe open /proc/1/root/etc/passwd r",
                closed: &["ENOENT", "EACCES"],
                layers: &[Undumpable, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "B3, 04: the launcher's program",
                line: "./probe open /proc/1/exe r",
                closed: &["ENOENT", "EACCES"],
                layers: &[Undumpable, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "11: the caller's environment",
                line: "env | grep SECRET_TOKEN",
                closed: &[""],
                layers: &[Environment],
                open: Open::Answers(&["SECRET_TOKEN=test-secret-hunter2"]),
            },
        ],
    );
}

#[test]
fn no_right_is_there_and_none_is_gained() {
    try_all(
        "escapes::processes::no_right_is_there_and_none_is_gained",
        &[
            Way {
                row: "B4, 36: no new privileges",
                line: "grep NoNewPrivs /proc/self/status",
                closed: &["NoNewPrivs:\t1"],
                layers: &[NoNewPrivileges],
                open: Open::Answers(&["NoNewPrivs:\t0"]),
            },
            Way {
                row: "B4, 36: capabilities",
                line: "grep CapEff /proc/self/status",
                closed: &["CapEff:\t0000000000000000"],
                layers: &[Capabilities],
                open: Open::Answers(&["CapEff:\t0000*"]),
            },
            Way {
                row: "B4: set-user-id programs of the host",
                line: "grep -q ' /usr [^ ]* [^ ]*nosuid' /proc/self/mounts && echo without || echo with",
                closed: &["without"],
                layers: &[MountFlags],
                open: Open::Answers(&["with"]),
            },
            Way {
                row: "B4: a set-user-id program of one's own",
                line: "cp probe s && chmod 4755 s && ./s ids | cut -d ' ' -f 1-2; su -c id 2>/dev/null",
                closed: &["1000 1000"],
                layers: &[MountFlags, NoNewPrivileges],
                open: Open::Never("the user namespace has one user, so no file can be another's"),
            },
            Way {
                row: "B6: a core of a crash",
                line: "grep 'core file' /proc/self/limits | tr -s ' '",
                closed: &["Max core file size 1 1 bytes"],
                layers: &[CoreLimit],
                open: Open::Answers(&["Max core file size 0 *", "Max core file size unlimited*"]),
            },
        ],
    );
}

#[test]
fn processes_of_the_host_are_out_of_reach() {
    as_both(
        "escapes::processes::processes_of_the_host_are_out_of_reach",
        || {
            let mut victim = std::process::Command::new("sleep")
                .arg("600")
                .spawn()
                .unwrap();
            let line = format!("./escape signal {}", victim.id());
            let closed = attempt(&line, &[]);
            let half_open = attempt(&line, &[ProcessNamespace]);
            let open = attempt(&line, &[ProcessNamespace, Landlock]);
            let listed = "set -- /proc/[0-9]*; test $# -lt 6 && echo few || echo many";
            let (few, many) = (attempt(listed, &[]), attempt(listed, &[ProcessNamespace]));
            victim.kill().unwrap();
            victim.wait().unwrap();
            assert_eq!(closed, "ESRCH", "B1, 07");
            // Landlock alone keeps a signal in.
            assert_eq!(half_open, "EPERM", "B1, 07");
            // Root's sandboxes are somebody else, and so find it and may not.
            assert!(is_one_of(&open, &["ok", "EPERM"]), "B1, 07: {open}");
            assert_eq!((few.as_str(), many.as_str()), ("few", "many"), "06");
        },
    );
}

#[test]
fn a_daemon_outlives_a_run_only_without_the_process_namespace() {
    as_both(
        "escapes::processes::a_daemon_outlives_a_run_only_without_the_process_namespace",
        || {
            for (off, is_left) in [(&[][..], false), (&[ProcessNamespace][..], true)] {
                let sandbox = sandbox("./escape daemon; echo over", off);
                let program = sandbox.work().join("escape");
                assert_eq!(super::answer(&sandbox.run()), "over");
                let left = processes_of(&program);
                for process in &left {
                    let _ = rustix::process::kill_process(*process, rustix::process::Signal::KILL);
                }
                assert_eq!(!left.is_empty(), is_left, "A6, B5");
            }
        },
    );
}

#[test]
fn a_killed_supervisor_is_outlived_only_without_the_watch() {
    const NAME: &str = "escapes::processes::a_killed_supervisor_is_outlived_only_without_the_watch";
    if let Some(which) = std::env::var_os("SUPERVISOR") {
        let off: &[launcher::Layer] = if which == "weak" {
            &[SupervisorsDeath]
        } else {
            &[]
        };
        let sandbox = sandbox("echo up; exec ./probe pause", off);
        let mut started = sandbox.start();
        started.release().unwrap();
        started.wait(&mut |_, _| {
            use std::io::Write;
            let place = sandbox.work().join("probe");
            let _ = writeln!(std::io::stderr(), "RUNNING {}", place.display());
        });
        return;
    }
    as_both(NAME, || {
        use std::io::{BufRead, BufReader};
        for which in ["strong", "weak"] {
            let mut supervisor = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME, "--nocapture"])
                .env("SUPERVISOR", which)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(supervisor.stderr.take().unwrap()).lines();
            let program = lines
                .map_while(Result::ok)
                .find_map(|line| line.strip_prefix("RUNNING ").map(std::path::PathBuf::from))
                .unwrap();
            // The shell may still be on its way to the program.
            while processes_of(&program).is_empty() {
                std::thread::yield_now();
            }
            let first = parent_of(processes_of(&program)[0]);
            let watched = rustix::process::pidfd_open(first, rustix::process::PidfdFlags::empty());
            supervisor.kill().unwrap();
            supervisor.wait().unwrap();
            if which == "weak" {
                assert!(!processes_of(&program).is_empty(), "B7");
                rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
            }
            // Its end comes once all the others are gone; a first process that is gone already could not be opened.
            if let Ok(watched) = watched {
                let mut waiting = [rustix::event::PollFd::new(
                    &watched,
                    rustix::event::PollFlags::IN,
                )];
                rustix::event::poll(&mut waiting, None).unwrap();
            }
            assert!(processes_of(&program).is_empty(), "B7");
            let folder = program.parent().and_then(std::path::Path::parent).unwrap();
            let _ = std::fs::remove_dir_all(folder);
        }
    });
}

/// The processes of the host that run a program.
fn processes_of(program: &std::path::Path) -> Vec<rustix::process::Pid> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == program))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
        .collect()
}

fn parent_of(process: rustix::process::Pid) -> rustix::process::Pid {
    let path = format!("/proc/{}/stat", process.as_raw_nonzero());
    let line = std::fs::read_to_string(path).unwrap();
    let (_, fields) = line.rsplit_once(") ").unwrap();
    let parent = fields.split(' ').nth(1).unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(parent).unwrap()
}
