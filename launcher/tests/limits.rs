//! What bounds a command, and whether the reason is told.

use std::time::Duration;

use launcher::{Finished, Limits, Prepared, prepare};
use sdk::report::{Failure, Limit, LimitHit, Outcome};

use crate::support::{Box, as_each_user};

/// The limit that ended it.
fn ended_by(finished: &Finished) -> &LimitHit {
    match &finished.outcome {
        Outcome::Failed(Failure::Limit(hit)) => hit,
        _ => panic!("{finished:?}"),
    }
}

fn with(limits: Limits, sandbox: Box) -> Finished {
    sandbox.with(|spec| spec.limits = limits).run()
}

#[test]
fn memory_of_the_command_and_of_its_children_is_bounded() {
    as_each_user(
        "limits::memory_of_the_command_and_of_its_children_is_bounded",
        || {
            for probe in [&["mem", "4000"][..], &["memchild"]] {
                let limits = Limits {
                    memory: Some(64 << 20),
                    ..Limits::default()
                };
                let finished = with(limits, Box::probe(probe));
                let hit = ended_by(&finished);
                assert_eq!((hit.which, hit.value), (Limit::Memory, 64 << 20));
                assert!(finished.limits_hit.contains(hit), "{finished:?}");
            }
        },
    );
}

#[test]
fn files_in_memory_count_as_memory() {
    as_each_user("limits::files_in_memory_count_as_memory", || {
        for place in ["/tmp/big", "/dev/shm/big"] {
            let limits = Limits {
                memory: Some(64 << 20),
                ..Limits::default()
            };
            // It stays a while, so that watching sees it.
            let fill = |size: u32| {
                Box::shell(&format!(
                    "./probe fill {place} {size}; [ {size} -lt 100 ] || ./probe pause"
                ))
            };
            let finished = with(limits.clone(), fill(200));
            assert_eq!(ended_by(&finished).which, Limit::Memory, "{place}");
            let finished = with(limits, fill(8));
            assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
        }
    });
}

#[test]
fn memory_that_cannot_be_seen_is_bounded_or_not_given() {
    as_each_user(
        "limits::memory_that_cannot_be_seen_is_bounded_or_not_given",
        || {
            let limits = Limits {
                memory: Some(64 << 20),
                ..Limits::default()
            };
            let finished = with(limits, Box::probe(&["memfd", "200"]));
            let is_refused = finished.stdout.text == "ENOSYS\n";
            assert!(
                is_refused || ended_by(&finished).which == Limit::Memory,
                "{finished:?}"
            );
            // Without a limit there is nothing to get around.
            let finished = with(Limits::default(), Box::probe(&["memfd", "2"]));
            assert_eq!(finished.stdout.text, "written\n");
        },
    );
}

#[test]
fn memory_of_a_process_whose_first_thread_has_ended_counts() {
    as_each_user(
        "limits::memory_of_a_process_whose_first_thread_has_ended_counts",
        || {
            let limits = Limits {
                memory: Some(64 << 20),
                wall: Some(Duration::from_secs(60)),
                ..Limits::default()
            };
            let finished = with(limits.clone(), Box::probe(&["memthread", "400"]));
            assert_eq!(ended_by(&finished).which, Limit::Memory, "{finished:?}");
            let finished = with(limits, Box::probe(&["memthread", "8"]));
            assert_eq!(finished.stdout.text, "used it all\n", "{finished:?}");
        },
    );
}

#[test]
fn memory_that_is_too_little_for_the_sandbox_itself_is_told_at_once() {
    as_each_user(
        "limits::memory_that_is_too_little_for_the_sandbox_itself_is_told_at_once",
        || {
            let sandbox = Box::shell("echo ran; while :; do :; done")
                .with(|spec| spec.limits.memory = Some(64 << 10));
            // By a group it may be over before the sandbox stands; nothing waits for what will not come.
            match prepare(&sandbox.spec).and_then(Prepared::start) {
                Err(error) => assert_eq!(
                    error.to_string(),
                    "limits.memory is too small for the sandbox itself"
                ),
                Ok(mut started) => {
                    started.release().unwrap();
                    let finished = started.wait(&mut |_, _| {});
                    assert_eq!(ended_by(&finished).which, Limit::Memory, "{finished:?}");
                }
            }
        },
    );
}

#[test]
fn less_memory_than_the_limit_is_fine() {
    as_each_user("limits::less_memory_than_the_limit_is_fine", || {
        let limits = Limits {
            memory: Some(256 << 20),
            ..Limits::default()
        };
        let finished = with(limits, Box::probe(&["mem", "32"]));
        assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
        assert!(finished.limits_hit.is_empty());
    });
}

#[test]
fn processor_time_of_all_children_counts() {
    as_each_user("limits::processor_time_of_all_children_counts", || {
        let limits = Limits {
            cpu_time: Some(Duration::from_millis(300)),
            ..Limits::default()
        };
        let finished = with(limits, Box::probe(&["spinkids"]));
        let hit = ended_by(&finished);
        assert_eq!((hit.which, hit.value), (Limit::CpuTime, 300));
        assert!(
            finished.cpu.unwrap() >= Duration::from_millis(290),
            "{finished:?}"
        );
    });
}

#[test]
fn time_on_the_clock_is_bounded() {
    as_each_user("limits::time_on_the_clock_is_bounded", || {
        let limits = Limits {
            wall: Some(Duration::from_secs(2)),
            ..Limits::default()
        };
        let finished = with(limits, Box::shell("echo before; ./probe pause"));
        assert_eq!(ended_by(&finished).which, Limit::Wall);
        assert_eq!(finished.stdout.text, "before\n");
    });
}

#[test]
fn output_is_cut_at_its_limit() {
    as_each_user("limits::output_is_cut_at_its_limit", || {
        let limits = Limits {
            output: Some(100_000),
            ..Limits::default()
        };
        let finished = with(limits, Box::shell("yes"));
        assert_eq!(ended_by(&finished).which, Limit::Output);
        assert_eq!(finished.stdout.bytes, 100_000);
    });
}

#[test]
fn output_below_its_limit_passes() {
    let limits = Limits {
        output: Some(3),
        ..Limits::default()
    };
    assert_eq!(with(limits, Box::shell("echo ab")).outcome, Outcome::Passed);
}

#[test]
fn one_file_is_bounded() {
    as_each_user("limits::one_file_is_bounded", || {
        let limits = Limits {
            file_size: Some(1 << 20),
            ..Limits::default()
        };
        let finished = with(limits.clone(), Box::probe(&["fill", "big", "4"]));
        assert_eq!(ended_by(&finished).which, Limit::FileSize);
        let finished = with(limits, Box::probe(&["fill", "small", "1"]));
        assert_eq!(finished.outcome, Outcome::Passed);
    });
}

#[test]
fn open_files_are_bounded() {
    let limits = Limits {
        open_files: Some(20),
        ..Limits::default()
    };
    assert_eq!(
        with(limits, Box::probe(&["openmany"])).stdout.text,
        "17 EMFILE\n"
    );
}

#[test]
fn processes_are_bounded_and_that_is_told() {
    as_each_user("limits::processes_are_bounded_and_that_is_told", || {
        let limits = Limits {
            processes: Some(8),
            ..Limits::default()
        };
        // It stays a while at the limit, as a fork bomb does.
        let finished = with(
            limits.clone(),
            Box::shell("./probe forks 100; code=$?; ./probe spin 2>/dev/null; exit $code"),
        );
        assert_eq!(
            finished.outcome,
            Outcome::Failed(Failure::Exit(43)),
            "{finished:?}"
        );
        assert!(finished.stdout.text.ends_with("EAGAIN\n"), "{finished:?}");
        let finished = with(limits, Box::probe(&["forks", "4"]));
        assert_eq!(finished.outcome, Outcome::Passed);
    });
}

#[test]
fn a_full_tmp_is_told_beside_the_exit_code() {
    as_each_user("limits::a_full_tmp_is_told_beside_the_exit_code", || {
        let limits = Limits {
            disk: Some(4 << 20),
            ..Limits::default()
        };
        let finished = with(limits, Box::probe(&["fill", "/tmp/big", "100"]));
        assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(44)));
        assert_eq!(finished.limits_hit[0].which, Limit::Disk);
        assert_eq!(finished.stdout.text, "ENOSPC\n");
    });
}

#[test]
fn the_workspaces_layer_is_bounded() {
    as_each_user("limits::the_workspaces_layer_is_bounded", || {
        let limits = Limits {
            disk: Some(4 << 20),
            ..Limits::default()
        };
        let finished = with(limits, Box::shell("./probe fill big 64; ./probe pause"));
        assert_eq!(ended_by(&finished).which, Limit::Disk);
    });
}

#[test]
fn a_whole_number_of_processors_is_kept() {
    as_each_user("limits::a_whole_number_of_processors_is_kept", || {
        let limits = Limits {
            cpus: Some(1.0),
            ..Limits::default()
        };
        assert_eq!(with(limits, Box::shell("true")).outcome, Outcome::Passed);
    });
}

#[test]
fn every_limit_at_once_lets_a_modest_command_pass() {
    as_each_user(
        "limits::every_limit_at_once_lets_a_modest_command_pass",
        || {
            let limits = Limits {
                memory: Some(512 << 20),
                cpus: Some(1.5),
                cpu_time: Some(Duration::from_secs(60)),
                wall: Some(Duration::from_secs(300)),
                processes: Some(128),
                disk: Some(1 << 30),
                output: Some(16 << 20),
                file_size: Some(256 << 20),
                open_files: Some(1024),
            };
            let finished = with(
                limits,
                Box::shell("echo hi; ls / > /tmp/list; wc -l < /tmp/list").with_network(),
            );
            assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
            assert!(finished.limits_hit.is_empty());
        },
    );
}

#[test]
fn a_reader_that_takes_no_output_does_not_extend_the_time() {
    let sandbox =
        Box::shell("yes").with(|spec| spec.limits.wall = Some(Duration::from_millis(200)));
    let mut started = sandbox.start();
    let killer = started.killer();
    started.release().unwrap();
    let path = sandbox.work();
    // It takes nothing until the command is gone; without the limit it would wait for ever.
    let finished = started.wait(&mut |_, _| {
        while crate::processes::running(&path.join("probe").display().to_string()) {
            std::thread::yield_now();
        }
    });
    drop(killer);
    assert_eq!(ended_by(&finished).which, Limit::Wall);
}
