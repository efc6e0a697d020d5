//! Does a command run, and does it end as it says it did?

use std::path::Path;

use launcher::{Stream, WorkspaceMode};
use sdk::report::{Failure, Outcome};

use crate::support::{Box, as_each_user};

#[test]
fn a_command_runs_and_its_output_comes_back() {
    as_each_user("basics::a_command_runs_and_its_output_comes_back", || {
        let sandbox = Box::shell("echo out; echo err >&2");
        let mut started = sandbox.start();
        started.release().unwrap();
        let mut seen = (Vec::new(), Vec::new());
        let finished = started.wait(&mut |stream, bytes| match stream {
            Stream::Stdout => seen.0.extend_from_slice(bytes),
            Stream::Stderr => seen.1.extend_from_slice(bytes),
        });
        assert_eq!(finished.outcome, Outcome::Passed);
        assert_eq!(seen, (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(finished.stdout.text, "out\n");
        assert_eq!(finished.stderr.text, "err\n");
    });
}

#[test]
fn a_project_may_lie_where_the_host_keeps_temporary_files() {
    as_each_user(
        "basics::a_project_may_lie_where_the_host_keeps_temporary_files",
        || {
            for above in ["/tmp", "/var/tmp"] {
                let folder = tempfile::tempdir_in(above).unwrap();
                std::fs::write(folder.path().join("file"), "there").unwrap();
                let sandbox = Box::shell("cat file").with(|spec| {
                    let workspace = spec.view.workspace.as_mut().unwrap();
                    workspace.host = folder.path().to_owned();
                    workspace.mode = WorkspaceMode::ReadOnly;
                });
                assert_eq!(sandbox.output(), "there", "{above}");
            }
        },
    );
}

#[test]
fn an_exit_code_is_kept() {
    let finished = Box::shell("exit 7").run();
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(7)));
}

#[test]
fn a_signal_is_told_from_an_exit_code() {
    let finished = Box::probe(&["segv"]).run();
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Signal(11)));
    let finished = Box::shell("exit 139").run();
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Exit(139)));
}

#[test]
fn a_missing_command_is_not_found() {
    for command in [
        "no-such-command",
        "./no-such-command",
        "/usr/bin/no-such-command",
    ] {
        let finished = Box::new([command]).run();
        assert_eq!(
            finished.outcome,
            Outcome::Failed(Failure::NotFound),
            "{command}"
        );
    }
}

#[test]
fn a_file_that_is_no_program_is_not_executable() {
    let finished = Box::new(["./text"]).file("text", "hello").run();
    assert_eq!(finished.outcome, Outcome::Failed(Failure::NotExecutable));
}

#[test]
fn nothing_runs_before_release() {
    let sandbox = Box::shell("echo ran > mark");
    drop(sandbox.start());
    assert!(!sandbox.upper().join("mark").exists());
}

#[test]
fn the_environment_is_what_was_given_and_little_else() {
    let sandbox = Box::shell("env").with(|spec| {
        spec.env.insert("LANG".into(), "C.UTF-8".into());
    });
    let output = sandbox.output();
    let mut names: Vec<&str> = output
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"
        ]
    );
}

#[test]
fn the_command_starts_in_the_workspace_and_stays_within_the_root() {
    let sandbox = Box::shell("pwd; readlink /proc/self/cwd; cd ../../../../../../..; pwd");
    let work = sandbox.work().display().to_string();
    assert_eq!(sandbox.output(), format!("{work}\n{work}\n/\n"));
}

#[test]
fn a_working_directory_outside_of_the_view_is_refused() {
    let sandbox = Box::shell("true").with(|spec| spec.workdir = Some("/root/elsewhere".into()));
    let outcome = sandbox.run().outcome;
    let Outcome::Failed(Failure::SetupFailed(text)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(text.contains("working directory"), "{text}");
}

#[test]
fn standard_input_is_empty_unless_asked_for() {
    assert_eq!(Box::shell("cat; echo end").output(), "end\n");
}

#[test]
fn another_thread_can_end_it() {
    let sandbox = Box::probe(&["pause"]);
    let mut started = sandbox.start();
    let killer = started.killer();
    started.release().unwrap();
    let thread = std::thread::spawn(move || killer.kill());
    let finished = started.wait(&mut |_, _| {});
    thread.join().unwrap();
    assert_eq!(finished.outcome, Outcome::Failed(Failure::Signal(9)));
}

#[test]
fn many_sandboxes_at_once_do_not_hold_each_other_up() {
    let threads: Vec<_> = (0..16)
        .map(|_| std::thread::spawn(|| Box::shell("echo $$; exit 3").with_network().run().outcome))
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), Outcome::Failed(Failure::Exit(3)));
    }
}

#[test]
fn python_runs_where_it_is_installed() {
    if Path::new("/usr/bin/python3").exists() {
        as_each_user("basics::python_runs_where_it_is_installed", || {
            let code = "import ssl, json, os, tempfile, subprocess, multiprocessing, sqlite3; \
                        print(len(tempfile.mkdtemp()) > 0, os.cpu_count() > 0, multiprocessing.Queue() is not None, \
                        subprocess.check_output(['echo', 'hi']))";
            let sandbox = Box::new(["/usr/bin/python3", "-c", code]);
            assert_eq!(sandbox.output(), "True True True b'hi\\n'\n");
        });
    } else {
        // Nothing to show on this machine; the shell tests cover starting.
        assert_eq!(Box::shell("echo").output(), "\n");
    }
}
