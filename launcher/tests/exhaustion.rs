//! Each limit, hit by a program as people write them: how it ends, what is told, and what is left of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use launcher::{Finished, Limits, prepare};
use sdk::report::{Failure, Limit, LimitHit, Outcome};

use crate::support::{Box, as_each_user};

const MIB: u64 = 1 << 20;

/// Runs a Python program that says that it started, and checks that this was kept.
fn python(limits: Limits, program: &str) -> Finished {
    let program = format!("import os, sys, time\nprint('started', flush=True)\n{program}");
    let sandbox = Box::new(["/usr/bin/python3", "-c", &program]).with(|spec| spec.limits = limits);
    let finished = sandbox.run();
    let text = &finished.stdout.text;
    assert!(
        text.contains("started\n") || finished.stdout.truncated,
        "{finished:?}"
    );
    finished
}

fn ending(finished: &Finished) -> &LimitHit {
    match &finished.outcome {
        Outcome::Failed(Failure::Limit(hit)) => hit,
        _ => panic!("{finished:?}"),
    }
}

fn met(finished: &Finished, which: Limit) -> &LimitHit {
    let mut all = finished.limits_hit.iter();
    all.find(|hit| hit.which == which)
        .unwrap_or_else(|| panic!("{which:?} is not in {finished:?}"))
}

/// Whether the machine was made so that control groups can be made.
fn has_groups() -> bool {
    std::env::var_os("VALETKEY_TEST_GROUPS").is_some()
}

#[test]
fn a_program_that_allocates_without_end_is_ended_for_memory() {
    as_each_user(
        "exhaustion::a_program_that_allocates_without_end_is_ended_for_memory",
        || {
            let limits = Limits {
                memory: Some(96 * MIB),
                ..Limits::default()
            };
            let finished = python(
                limits,
                "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
            );
            let hit = ending(&finished);
            assert_eq!((hit.which, hit.value), (Limit::Memory, 96 * MIB));
            let used = hit.used.unwrap();
            // By a group it is never more; by watching it can be, for a moment.
            let most = if has_groups() { 97 * MIB } else { 512 * MIB };
            assert!((90 * MIB..=most).contains(&used), "{finished:?}");
            assert!(finished.memory_peak.unwrap() >= 90 * MIB);
        },
    );
}

#[test]
fn a_fork_bomb_is_bounded_and_ended() {
    as_each_user("exhaustion::a_fork_bomb_is_bounded_and_ended", || {
        let limits = Limits {
            processes: Some(24),
            wall: Some(Duration::from_secs(20)),
            ..Limits::default()
        };
        let bomb = "while True:\n try: os.fork()\n except OSError: pass";
        let finished = python(limits, bomb);
        let hit = met(&finished, Limit::Processes);
        assert_eq!((hit.value, hit.used), (24, Some(24)), "{finished:?}");
        // Without a group nobody counts what was refused, and the clock ends it.
        let ended = ending(&finished).which;
        assert!(
            ended == Limit::Processes || (!has_groups() && ended == Limit::Wall),
            "{finished:?}"
        );
    });
}

#[test]
fn threads_count_and_a_program_that_gives_up_is_told_why() {
    as_each_user(
        "exhaustion::threads_count_and_a_program_that_gives_up_is_told_why",
        || {
            let limits = Limits {
                processes: Some(16),
                ..Limits::default()
            };
            let threads = "import threading\nmade = 1\ntry:\n while made < 100:\n  \
                           threading.Thread(target=time.sleep, args=(600,), daemon=True).start(); made += 1\n\
                           except RuntimeError: pass\ntime.sleep(.3)\nprint(made, flush=True)\nos._exit(3)";
            let finished = python(limits.clone(), threads);
            assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(3)));
            assert_eq!(finished.stdout.text, "started\n16\n");
            assert_eq!(met(&finished, Limit::Processes).value, 16);
            let fewer = threads.replace("100", "8").replace("_exit(3)", "_exit(0)");
            let finished = python(limits, &fewer);
            assert_eq!(finished.outcome, Outcome::Passed);
            assert!(finished.limits_hit.is_empty(), "{finished:?}");
        },
    );
}

#[test]
fn a_workspace_that_is_filled_ends_the_program() {
    as_each_user(
        "exhaustion::a_workspace_that_is_filled_ends_the_program",
        || {
            let limits = Limits {
                disk: Some(24 * MIB),
                ..Limits::default()
            };
            let fill = "block = bytes(1 << 20)\nfor n in range(100000):\n with open(f'f{n}', 'wb') as f: f.write(block)";
            let finished = python(limits, fill);
            let hit = ending(&finished);
            assert_eq!((hit.which, hit.value), (Limit::Disk, 24 * MIB));
            let used = hit.used.unwrap();
            assert!((24 * MIB..256 * MIB).contains(&used), "{finished:?}");
        },
    );
}

/// Ways to write where a walk by names finds nothing, each followed by filling files that are open already.
const OUT_OF_SIGHT: [(&str, &str); 3] = [
    (
        "files without a name",
        "kept = [open(f'f{n}', 'wb') for n in range(60)]\nfor n in range(60): os.unlink(f'f{n}')",
    ),
    (
        "a folder without permissions",
        "os.mkdir('d')\nkept = [open(f'd/f{n}', 'wb') for n in range(60)]\nos.chmod('d', 0)",
    ),
    (
        "folders deeper than any path",
        "for n in range(450):\n os.mkdir('a-long-name')\n os.chdir('a-long-name')\n\
         kept = [open(f'f{n}', 'wb') for n in range(60)]",
    ),
];

#[test]
fn what_is_written_out_of_sight_counts() {
    as_each_user("exhaustion::what_is_written_out_of_sight_counts", || {
        for (what, hides) in OUT_OF_SIGHT {
            let limits = Limits {
                disk: Some(24 * MIB),
                wall: Some(Duration::from_secs(60)),
                ..Limits::default()
            };
            let fill = |each: u64| {
                format!(
                    "{hides}\nfor file in kept:\n file.write(bytes({each}))\n file.flush()\n{PAUSE}"
                )
            };
            let finished = python(limits.clone(), &fill(4 * MIB));
            let hit = ending(&finished);
            assert_eq!((hit.which, hit.value), (Limit::Disk, 24 * MIB), "{what}");
            let used = hit.used.unwrap();
            assert!(
                (24 * MIB..256 * MIB).contains(&used),
                "{what}: {finished:?}"
            );
            // Less than the limit is fine there too.
            let finished = python(limits, &fill(MIB / 8).replace(PAUSE, "time.sleep(.2)"));
            assert_eq!(finished.outcome, Outcome::Passed, "{what}: {finished:?}");
        }
    });
}

const PAUSE: &str = "time.sleep(600)";

#[test]
fn a_limit_that_was_not_met_cannot_be_claimed() {
    as_each_user(
        "exhaustion::a_limit_that_was_not_met_cannot_be_claimed",
        || {
            for (line, outcome) in [
                ("kill -XFSZ $$", Failure::Signal(25)),
                ("truncate -s 1M f; exit 1", Failure::Exit(1)),
                ("truncate -s 1M f; kill -XFSZ $$", Failure::Signal(25)),
            ] {
                let limits = Limits {
                    file_size: Some(MIB),
                    disk: Some(24 * MIB),
                    ..Limits::default()
                };
                let finished = Box::shell(line).with(|spec| spec.limits = limits).run();
                assert_eq!(finished.outcome, Outcome::Failed(outcome), "{line}");
                assert!(finished.limits_hit.is_empty(), "{line}: {finished:?}");
            }
        },
    );
}

#[test]
fn one_file_cannot_take_more_than_all_the_room() {
    as_each_user(
        "exhaustion::one_file_cannot_take_more_than_all_the_room",
        || {
            let sandbox = Box::shell("./probe fill big 4000; ./probe pause").with(|spec| {
                spec.limits.disk = Some(8 * MIB);
            });
            let finished = sandbox.run();
            assert_eq!(ending(&finished).which, Limit::Disk);
            // However late anybody looks.
            let size = std::fs::metadata(sandbox.upper().join("big"))
                .unwrap()
                .len();
            assert!(size <= 9 * MIB, "{size}");
        },
    );
}

#[test]
fn the_room_is_that_of_workspace_and_tmp_together() {
    as_each_user(
        "exhaustion::the_room_is_that_of_workspace_and_tmp_together",
        || {
            let line = "./probe fill /tmp/a 6 && ./probe fill b 6 && ./probe pause";
            let sandbox = Box::shell(line).with(|spec| spec.limits.disk = Some(8 * MIB));
            assert_eq!(ending(&sandbox.run()).which, Limit::Disk);
            let line = "./probe fill /tmp/a 3 && ./probe fill b 3";
            let sandbox = Box::shell(line).with(|spec| spec.limits.disk = Some(8 * MIB));
            assert_eq!(sandbox.run().outcome, Outcome::Passed);
        },
    );
}

#[test]
fn a_full_tmp_is_told_beside_the_programs_own_error() {
    as_each_user(
        "exhaustion::a_full_tmp_is_told_beside_the_programs_own_error",
        || {
            let limits = Limits {
                disk: Some(8 * MIB),
                ..Limits::default()
            };
            let fill = "with open('/tmp/f', 'wb', buffering=0) as f:\n while True: f.write(bytes(1 << 20))";
            let finished = python(limits, fill);
            assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(1)));
            assert!(
                finished.stderr.text.contains("No space left"),
                "{finished:?}"
            );
            let hit = met(&finished, Limit::Disk);
            assert_eq!((hit.value, hit.used), (8 * MIB, Some(8 * MIB)));
        },
    );
}

#[test]
fn a_spinner_and_spinning_children_are_ended_for_processor_time() {
    as_each_user(
        "exhaustion::a_spinner_and_spinning_children_are_ended_for_processor_time",
        || {
            for program in [
                "while True: pass",
                "for n in range(3):\n if os.fork() == 0:\n  while True: pass\ntime.sleep(600)",
            ] {
                let limits = Limits {
                    cpu_time: Some(Duration::from_secs(2)),
                    ..Limits::default()
                };
                let finished = python(limits, program);
                let hit = ending(&finished);
                assert_eq!((hit.which, hit.value), (Limit::CpuTime, 2000));
                assert!(hit.used.unwrap() >= 2000, "{finished:?}");
                assert!(finished.cpu.unwrap() >= Duration::from_millis(1990));
            }
        },
    );
}

#[test]
fn an_output_flood_is_cut_and_ended() {
    as_each_user("exhaustion::an_output_flood_is_cut_and_ended", || {
        let limits = Limits {
            output: Some(MIB),
            ..Limits::default()
        };
        let finished = python(limits, "while True: print('x' * 999)");
        assert_eq!(ending(&finished).which, Limit::Output);
        assert_eq!(finished.stdout.bytes, MIB);
        assert!(finished.stdout.text.ends_with('x') || finished.stdout.text.ends_with('\n'));
    });
}

#[test]
fn a_sleeper_is_ended_by_the_clock() {
    as_each_user("exhaustion::a_sleeper_is_ended_by_the_clock", || {
        let limits = Limits {
            wall: Some(Duration::from_secs(3)),
            ..Limits::default()
        };
        let finished = python(limits, "time.sleep(600)");
        let hit = ending(&finished);
        assert_eq!((hit.which, hit.value), (Limit::Wall, 3000));
        assert!(hit.used.unwrap() >= 3000);
    });
}

#[test]
fn a_program_that_is_out_of_time_may_save_its_work_and_no_more() {
    as_each_user(
        "exhaustion::a_program_that_is_out_of_time_may_save_its_work_and_no_more",
        || {
            let limits = Limits {
                wall: Some(Duration::from_secs(3)),
                disk: Some(16 * MIB),
                ..Limits::default()
            };
            let saves = "import signal\ndef save(*_):\n print('saved', flush=True); os._exit(0)\n\
                         signal.signal(signal.SIGTERM, save)\ntime.sleep(600)";
            let finished = python(limits.clone(), saves);
            // It ended by itself, with 0, and still it was the clock.
            assert_eq!(ending(&finished).which, Limit::Wall);
            assert_eq!(finished.stdout.text, "started\nsaved\n");
            let fills = "import signal\ndef fill(*_):\n n = 0\n while True:\n  n += 1\n  \
                         with open(f'f{n}', 'wb') as f: f.write(bytes(1 << 20))\n\
                         signal.signal(signal.SIGTERM, fill)\ntime.sleep(600)";
            let finished = python(limits, fills);
            assert_eq!(ending(&finished).which, Limit::Wall);
            let used = met(&finished, Limit::Disk).used.unwrap();
            assert!((16 * MIB..256 * MIB).contains(&used), "{finished:?}");
        },
    );
}

#[test]
fn more_open_files_than_allowed_are_refused() {
    as_each_user(
        "exhaustion::more_open_files_than_allowed_are_refused",
        || {
            let limits = Limits {
                open_files: Some(32),
                ..Limits::default()
            };
            let finished = python(
                limits,
                "kept = []\ntry:\n while True: kept.append(open('/dev/null'))\n\
             except OSError as error: print(kept[-1].fileno(), error.strerror)",
            );
            assert_eq!(finished.outcome, Outcome::Passed);
            assert_eq!(finished.stdout.text, "started\n31 Too many open files\n");
        },
    );
}

#[test]
fn a_file_that_grows_too_large_is_told_even_where_the_program_takes_the_signal_for_nothing() {
    as_each_user(
        "exhaustion::a_file_that_grows_too_large_is_told_even_where_the_program_takes_the_signal_for_nothing",
        || {
            for place in ["big", "/tmp/big"] {
                let limits = Limits {
                    file_size: Some(2 * MIB),
                    ..Limits::default()
                };
                // Python ignores SIGXFSZ, and so do its children.
                let write = format!(
                    "with open('{place}', 'wb', buffering=0) as f:\n for n in range(9): f.write(bytes(1 << 20))"
                );
                let finished = python(limits, &write);
                assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(1)));
                assert!(finished.stderr.text.contains("File too large"));
                let hit = met(&finished, Limit::FileSize);
                assert_eq!((hit.value, hit.used), (2 * MIB, Some(2 * MIB)));
            }
        },
    );
}

/// The control groups of sandboxes that this process made.
fn groups() -> Vec<PathBuf> {
    let mark = format!("-{}-", std::process::id());
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(group) = left.pop() {
        for entry in std::fs::read_dir(&group).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("valetkey-") && name.contains(&mark) {
                found.push(entry.path());
            }
            left.push(entry.path());
        }
    }
    found
}

/// Whether groups go: at once, or with the sandboxes of other tests where those are in this process.
fn are_removed(groups: Vec<PathBuf>) -> bool {
    (0..12_000).any(|turn| {
        if turn > 0 {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        groups.iter().all(|group| !group.exists())
    })
}

#[test]
fn a_sandbox_is_born_in_its_group_where_there_is_one_hierarchy() {
    as_each_user(
        "exhaustion::a_sandbox_is_born_in_its_group_where_there_is_one_hierarchy",
        || {
            let sandbox = Box::shell("true").with(|spec| spec.limits.memory = Some(64 * MIB));
            // It is not started, so nobody moved it.
            let prepared = prepare(&sandbox.spec).unwrap();
            let made: Vec<_> = groups().into_iter().filter(|it| !is_ours(it)).collect();
            if has_groups() {
                let lives = |group: &PathBuf| !members(group).trim().is_empty();
                let is_born = (0..12_000).any(|_| {
                    std::thread::park_timeout(Duration::from_millis(5));
                    made.iter().any(lives)
                });
                assert!(is_born, "{made:?}");
            }
            drop(prepared);
            assert!(are_removed(made));
        },
    );
}

fn members(group: &Path) -> String {
    std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default()
}

/// Whether this process is in it itself.
fn is_ours(group: &Path) -> bool {
    let own = std::process::id().to_string();
    members(group).lines().any(|member| member == own)
}

/// The mounts and processes on this machine that have to do with a folder.
fn traces(folder: &Path) -> (usize, usize) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mine = mounts
        .lines()
        .filter(|line| line.contains(&folder.display().to_string()))
        .count();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter(|entry| {
        let place = |name: &str| std::fs::read_link(entry.path().join(name)).unwrap_or_default();
        place("exe").starts_with(folder) || place("cwd").starts_with(folder)
    });
    (mine, processes.count())
}

#[test]
fn nothing_is_left_of_a_program_that_a_limit_ended() {
    as_each_user(
        "exhaustion::nothing_is_left_of_a_program_that_a_limit_ended",
        || {
            let all = Limits {
                memory: Some(64 * MIB),
                cpus: Some(1.0),
                cpu_time: Some(Duration::from_secs(20)),
                wall: Some(Duration::from_secs(20)),
                processes: Some(16),
                disk: Some(16 * MIB),
                output: Some(MIB),
                file_size: Some(64 * MIB),
                open_files: Some(64),
            };
            let fill = "./probe fill a 30; ./probe pause";
            let bomb = "trap '' TERM; exec python3 -c \"import os\nwhile True:\n try: os.fork()\n except OSError: pass\"";
            // It does not hear that it is to end, and neither does the daemon, in a session of its own, whose parent is gone.
            let deaf = "trap '' TERM HUP INT; ./probe daemon; ./probe pause";
            for (line, limits, which) in [
                ("./probe memchild", all.clone(), Limit::Memory),
                (fill, all.clone(), Limit::Disk),
                ("yes & yes & ./probe pause", all.clone(), Limit::Output),
                (
                    "./probe spinkids",
                    Limits {
                        cpu_time: Some(Duration::from_millis(300)),
                        ..all.clone()
                    },
                    Limit::CpuTime,
                ),
                (
                    "./probe daemon; ./probe pause",
                    Limits {
                        wall: Some(Duration::from_millis(300)),
                        ..all.clone()
                    },
                    Limit::Wall,
                ),
                (
                    deaf,
                    Limits {
                        wall: Some(Duration::from_millis(300)),
                        ..all.clone()
                    },
                    Limit::Wall,
                ),
                (
                    "trap '' TERM; ./probe daemon; ./probe spinkids",
                    Limits {
                        cpu_time: Some(Duration::from_millis(300)),
                        ..all.clone()
                    },
                    Limit::CpuTime,
                ),
                (
                    "./probe daemon; exec yes > grown",
                    Limits {
                        file_size: Some(MIB),
                        ..all.clone()
                    },
                    Limit::FileSize,
                ),
                (
                    bomb,
                    Limits {
                        wall: Some(Duration::from_secs(5)),
                        ..all
                    },
                    Limit::Processes,
                ),
            ] {
                let sandbox = Box::shell(line).with(|spec| spec.limits = limits);
                let started = sandbox.start();
                let folder = sandbox.folder.path().to_owned();
                drop(started);
                let finished = sandbox.run();
                let ended = ending(&finished).which;
                // Without a group nobody counts what was refused, and the clock ends a bomb.
                let by_clock = which == Limit::Processes && !has_groups() && ended == Limit::Wall;
                assert!(ended == which || by_clock, "{line}: {finished:?}");
                assert_eq!(traces(&folder), (0, 0), "{line}");
                assert!(are_removed(groups()), "{line}");
                // The layer is kept, and nothing but it.
                let work = std::fs::read_dir(folder.join("layers/work")).unwrap();
                assert_eq!(work.count(), 0, "{line}");
            }
        },
    );
}

#[test]
fn while_a_program_runs_its_traces_are_found() {
    let sandbox = Box::shell("./probe pause").with(|spec| {
        spec.limits.memory = Some(64 * MIB);
    });
    let mut started = sandbox.start();
    started.release().unwrap();
    let folder = sandbox.folder.path();
    while traces(folder).1 == 0 {
        std::thread::yield_now();
    }
    assert!(!has_groups() || !groups().is_empty());
    drop(started);
    assert_eq!(traces(folder), (0, 0));
    assert!(are_removed(groups()));
}
