//! Ways to use up the machine: each is ended at its limit, and goes on to its end without the limit's layer.

use std::time::Duration;

use launcher::{Finished, Layer, Limits, Weaken, WorkspaceMode};
use sdk::report::{Failure, Limit, Outcome};

use super::as_both;
use crate::support::Box;

const MIB: u64 = 1 << 20;

/// Runs Python with limits and without some layers.
fn python(program: &str, limits: Limits, off: &[Layer]) -> Finished {
    Box::new(["/usr/bin/python3", "-c", program])
        .with(|spec| {
            spec.limits = limits;
            spec.weaken = Weaken::without(off);
        })
        .run()
}

fn ended_by(finished: &Finished) -> Option<Limit> {
    match &finished.outcome {
        Outcome::Failed(Failure::Limit(hit)) => Some(hit.which),
        _ => None,
    }
}

/// Ended at the limit with its layer; without it the same program comes to its end, and says so.
///
/// `stay` is added where the layer is on: the program would go on for good.
fn ends_only_with(layer: Layer, which: Limit, limits: &Limits, program: &str, stay: &str) {
    let closed = python(&format!("{program}{stay}"), limits.clone(), &[]);
    assert_eq!(ended_by(&closed), Some(which), "{closed:?}");
    let open = python(
        &format!("{program}\nprint('done')"),
        limits.clone(),
        &[layer],
    );
    assert_eq!(open.outcome, Outcome::Passed, "{open:?}");
    assert!(open.stdout.text.ends_with("done\n"), "{open:?}");
    assert!(open.limits_hit.is_empty(), "{open:?}");
}

#[test]
fn memory_of_a_program_and_of_a_child_is_bounded_only_with_its_limit() {
    as_both(
        "escapes::limits::memory_of_a_program_and_of_a_child_is_bounded_only_with_its_limit",
        || {
            let limits = Limits {
                memory: Some(64 * MIB),
                ..Limits::default()
            };
            let take = "import time\nkept = b'x' * (200 << 20)";
            let stay = "\ntime.sleep(600)";
            ends_only_with(Layer::LimitMemory, Limit::Memory, &limits, take, stay);
            let child = "import os, time\nif os.fork() == 0:\n kept = b'x' * (200 << 20)\n STAY\n os._exit(0)\nos.wait()";
            let closed = python(
                &child.replace("STAY", "time.sleep(600)"),
                limits.clone(),
                &[],
            );
            assert_eq!(ended_by(&closed), Some(Limit::Memory), "{closed:?}");
            let open = python(
                &child.replace("STAY", "print('done', flush=True)"),
                limits,
                &[Layer::LimitMemory],
            );
            assert_eq!(open.stdout.text, "done\n", "{open:?}");
        },
    );
}

#[test]
fn processor_time_of_children_is_bounded_only_with_its_limit() {
    as_both(
        "escapes::limits::processor_time_of_children_is_bounded_only_with_its_limit",
        || {
            let limits = Limits {
                cpu_time: Some(Duration::from_millis(300)),
                ..Limits::default()
            };
            let spin = "import os, time\nfor n in range(3):\n if os.fork() == 0:\n  while MORE: pass\n  os._exit(0)\n\
                        for n in range(3): os.wait()";
            let closed = python(&spin.replace("MORE", "True"), limits.clone(), &[]);
            assert_eq!(ended_by(&closed), Some(Limit::CpuTime), "{closed:?}");
            let open = python(
                &spin.replace("MORE", "time.process_time() < .3"),
                limits,
                &[Layer::LimitCpuTime],
            );
            assert_eq!(open.outcome, Outcome::Passed, "{open:?}");
        },
    );
}

#[test]
fn the_clock_ends_a_sleeper_only_with_its_limit() {
    as_both(
        "escapes::limits::the_clock_ends_a_sleeper_only_with_its_limit",
        || {
            let limits = Limits {
                wall: Some(Duration::from_millis(300)),
                ..Limits::default()
            };
            let sleep = "import time\ntime.sleep(.6)";
            ends_only_with(
                Layer::LimitWall,
                Limit::Wall,
                &limits,
                sleep,
                "\ntime.sleep(600)",
            );
        },
    );
}

#[test]
fn processes_are_bounded_only_with_their_limit() {
    as_both(
        "escapes::limits::processes_are_bounded_only_with_their_limit",
        || {
            let limits = Limits {
                processes: Some(16),
                ..Limits::default()
            };
            let bomb = "import os, signal\nmade = []\ntry:\n for n in range(100):\n  child = os.fork()\n  \
                        if child == 0: signal.pause()\n  made.append(child)\nexcept OSError: pass\n\
                        print(len(made) == 100, flush=True)\nfor child in made: os.kill(child, 9)";
            let closed = python(bomb, limits.clone(), &[]);
            assert!(!closed.stdout.text.contains("True"), "{closed:?}");
            let open = python(bomb, limits, &[Layer::LimitProcesses]);
            assert_eq!(open.stdout.text, "True\n", "{open:?}");
        },
    );
}

#[test]
fn output_is_cut_only_with_its_limit() {
    as_both("escapes::limits::output_is_cut_only_with_its_limit", || {
        let limits = Limits {
            output: Some(4096),
            ..Limits::default()
        };
        let flood = "for n in range(1000): print('x' * 99)";
        let closed = python(
            &format!("{flood}\nwhile True: print('x')"),
            limits.clone(),
            &[],
        );
        assert_eq!(ended_by(&closed), Some(Limit::Output), "{closed:?}");
        assert_eq!(closed.stdout.bytes, 4096);
        let open = python(flood, limits, &[Layer::LimitOutput]);
        assert_eq!(open.outcome, Outcome::Passed);
        assert_eq!(open.stdout.bytes, 100_000);
    });
}

#[test]
fn a_disk_is_filled_only_without_its_limit() {
    as_both(
        "escapes::limits::a_disk_is_filled_only_without_its_limit",
        || {
            let limits = Limits {
                disk: Some(8 * MIB),
                ..Limits::default()
            };
            // By many files: one alone would meet the largest file that there is room for.
            let fill = "import time\nfor n in range(20):\n with open(f'PLACE{n}', 'wb') as f: f.write(bytes(1 << 20))";
            ends_only_with(
                Layer::LimitDisk,
                Limit::Disk,
                &limits,
                &fill.replace("PLACE", ""),
                "\ntime.sleep(600)",
            );
            let fill = fill.replace("PLACE", "/tmp/");
            let closed = python(&fill, limits.clone(), &[]);
            assert!(closed.stderr.text.contains("No space left"), "{closed:?}");
            let open = python(&fill, limits, &[Layer::LimitDisk]);
            assert_eq!(open.outcome, Outcome::Passed, "{open:?}");
        },
    );
}

#[test]
fn a_large_file_and_many_open_files_are_refused_only_with_their_limits() {
    as_both(
        "escapes::limits::a_large_file_and_many_open_files_are_refused_only_with_their_limits",
        || {
            let limits = Limits {
                file_size: Some(2 * MIB),
                open_files: Some(32),
                ..Limits::default()
            };
            let large = "with open('big', 'wb') as f: f.write(bytes(4 << 20))";
            let closed = python(large, limits.clone(), &[]);
            assert!(closed.stderr.text.contains("File too large"), "{closed:?}");
            let open = python(large, limits.clone(), &[Layer::LimitFileSize]);
            assert_eq!(open.outcome, Outcome::Passed, "{open:?}");
            let many = "kept = [open('/dev/null') for n in range(100)]";
            let closed = python(many, limits.clone(), &[]);
            assert!(
                closed.stderr.text.contains("Too many open files"),
                "{closed:?}"
            );
            let open = python(many, limits, &[Layer::LimitOpenFiles]);
            assert_eq!(open.outcome, Outcome::Passed, "{open:?}");
        },
    );
}

#[test]
fn a_hook_is_written_to_the_project_itself_only_without_the_layer_of_changes() {
    as_both(
        "escapes::limits::a_hook_is_written_to_the_project_itself_only_without_the_layer_of_changes",
        || {
            let write = "mkdir -p .git/hooks && echo x > .git/hooks/post-commit";
            let hook = ".git/hooks/post-commit";
            let sandbox = Box::shell(write);
            sandbox.output();
            assert!(sandbox.upper().join(hook).exists());
            assert!(!sandbox.work().join(hook).exists());
            // No switch: the mode of the workspace is what says that there is no such layer.
            let sandbox = Box::shell(write).mode(WorkspaceMode::ReadWrite);
            sandbox.run();
            assert!(sandbox.work().join(hook).exists());
        },
    );
}
