//! Does what is hidden stay hidden, whatever its name, its permissions and the way to it?

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use launcher::{Stdin, WorkspaceMode, prepare};
use sdk::report::{Failure, Outcome};

use crate::support::{Box, as_each_user};

#[test]
fn a_folder_that_cannot_be_searched_is_hidden_and_one_that_can_is_shown() {
    as_each_user(
        "hiding::a_folder_that_cannot_be_searched_is_hidden_and_one_that_can_is_shown",
        || {
            let sandbox = Box::shell(
                "chmod 755 closed closed/deep 2>/dev/null; cat closed/.env closed/deep/.env 2>/dev/null; cat open/a",
            )
            .file("closed/.env", "test-secret-1\n")
            .file("closed/deep/.env", "test-secret-2\n")
            .file("open/a", "seen\n");
            for mode in [0o000, 0o300, 0o400] {
                let closed = sandbox.work().join("closed");
                fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
                let output = sandbox.output();
                fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
                assert_eq!(output, "seen\n", "{mode:o}");
            }
        },
    );
}

#[test]
fn nothing_starts_where_too_few_files_may_be_open_to_search_the_workspace() {
    const NAME: &str =
        "hiding::nothing_starts_where_too_few_files_may_be_open_to_search_the_workspace";
    if std::env::var_os("FEW_FILES").is_none() {
        let output = Command::new("/bin/sh")
            .args(["-c", "ulimit -n 60; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env("FEW_FILES", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let deep = "d/".repeat(100);
    let sandbox = Box::shell("true").file(&format!("{deep}.env"), "test-secret");
    let error = prepare(&sandbox.spec).unwrap_err();
    assert!(
        error.to_string().contains("looking for credentials"),
        "{error}"
    );
    let sandbox = Box::shell("true").file("d/.env", "test-secret");
    assert_eq!(prepare(&sandbox.spec).unwrap().hidden().len(), 1);
}

#[test]
fn the_case_of_a_name_and_a_link_to_a_key_do_not_matter() {
    let sandbox = Box::shell("cat .ENV Id_RSA prod.env server.pem 2>/dev/null; cat debug.env")
        .file(".ENV", "test-secret-1\n")
        .file("Id_RSA", "test-secret-2\n")
        .file("prod.env", "API_TOKEN=test-secret-3\n")
        .file("material", "-----BEGIN PRIVATE KEY-----\ntest-secret-4\n")
        .file("debug.env", "LEVEL=debug\n");
    symlink("material", sandbox.work().join("server.pem")).unwrap();
    assert_eq!(sandbox.output(), "LEVEL=debug\n");
}

#[test]
fn what_is_hidden_in_a_folder_is_hidden_when_the_folder_itself_is_shown() {
    let sandbox = Box::shell(
        "cat $D/.docker/config.json 2>/dev/null; cat $D/.docker/a; cat $D/x/.git/config",
    );
    let data = sandbox.folder.path().join("data");
    fs::create_dir_all(data.join(".docker")).unwrap();
    fs::create_dir_all(data.join("x/.git")).unwrap();
    fs::write(data.join(".docker/config.json"), "test-secret-1").unwrap();
    fs::write(data.join(".docker/a"), "shown\n").unwrap();
    let config = "[core]\n\tbare = false\n[credential]\n\thelper = test-secret-2\n";
    fs::write(data.join("x/.git/config"), config).unwrap();
    let sandbox = sandbox.with(|spec| {
        spec.env.insert("D".into(), data.clone().into());
        spec.view.read = vec![data.join(".docker"), data.join("x/.git")];
    });
    assert_eq!(sandbox.output(), "shown\n[core]\n\tbare = false\n");
}

#[test]
fn the_configuration_of_a_bare_repository_is_a_copy_without_credentials() {
    let config =
        "[core]\n\tbare = true\n[remote \"o\"]\n\turl = https://u:test-secret@h.example/r\n";
    let sandbox = Box::shell("cat store/config; cat other/config")
        .file("store/config", config)
        .file("store/HEAD", "ref: refs/heads/main\n")
        .file("store/objects/pack/none", "")
        .file("store/refs/heads/none", "")
        .file("other/config", "[mine]\n");
    assert_eq!(
        sandbox.output(),
        "[core]\n\tbare = true\n[remote \"o\"]\n\turl = https://h.example/r\n[mine]\n"
    );
}

#[test]
fn folders_that_lead_to_the_hosts_processes_and_devices_cannot_be_read() {
    for place in [
        "/", "/etc", "/run", "/var", "/proc", "/proc/1", "/sys", "/dev", "/dev/shm",
    ] {
        let sandbox = Box::shell("true").with(|spec| spec.view.read = vec![place.into()]);
        let error = prepare(&sandbox.spec).unwrap_err().to_string();
        assert!(
            error.contains(place) && error.contains("sandbox"),
            "{place}: {error}"
        );
    }
}

#[test]
fn sockets_of_the_host_in_tool_chains_and_system_folders_are_out_of_reach() {
    as_each_user(
        "hiding::sockets_of_the_host_in_tool_chains_and_system_folders_are_out_of_reach",
        || {
            let sandbox = Box::shell("");
            let bin = sandbox.folder.path().join("home/.cargo/bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("file"), "a tool").unwrap();
            let mut sockets = vec![(bin.join("agent"), bin.join("file"))];
            let opt = rustix::process::geteuid()
                .is_root()
                .then(|| tempfile::tempdir_in("/opt").unwrap());
            if let Some(opt) = &opt {
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                fs::set_permissions(opt.path(), open).unwrap();
                fs::write(opt.path().join("file"), "a tool").unwrap();
                fs::write(opt.path().join(".env"), "A=test-secret-opt").unwrap();
                sockets.push((opt.path().join("agent"), opt.path().join("file")));
            }
            for (socket, beside) in sockets {
                let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
                // Root's sandbox has another user.
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                fs::set_permissions(&socket, open).unwrap();
                let program = format!(
                    "import socket, os
print(open({beside:?}).read())
try: print(open(os.path.join(os.path.dirname({beside:?}), '.env')).read())
except OSError: pass
try: socket.socket(socket.AF_UNIX).connect({socket:?})
except OSError: print('out of reach')
else: print('connected')"
                );
                let with = |is_hidden: bool| {
                    let sandbox = Box::new(["python3", "-c", &program]).with(|spec| {
                        spec.view.home = sandbox.folder.path().join("home");
                        spec.view.path =
                            std::env::join_paths([bin.as_path(), "/usr/bin".as_ref()]).unwrap();
                        if !is_hidden {
                            spec.weaken = launcher::Weaken::without(&[launcher::Layer::Hide]);
                        }
                    });
                    sandbox.output()
                };
                assert_eq!(with(true), "a tool\nout of reach\n");
                assert!(with(false).ends_with("connected\n"), "{socket:?}");
            }
        },
    );
}

#[test]
fn a_command_is_ended_when_something_hidden_from_it_is_saved_anew_outside() {
    as_each_user(
        "hiding::a_command_is_ended_when_something_hidden_from_it_is_saved_anew_outside",
        || {
            let line = "echo ready; read go; cat \"$AT/.env\" 2>/dev/null; echo over";
            let attempt = |mode: Option<WorkspaceMode>, saved: &str, goes_on: bool| {
                let sandbox = Box::shell(line)
                    .file(".env", "A=test-secret-old")
                    .file("seen", "old");
                let place = sandbox.work();
                let sandbox = sandbox.with(|spec| {
                    spec.env.insert("AT".into(), place.clone().into());
                    spec.stdin = Stdin::Piped;
                    match mode {
                        Some(mode) => spec.view.workspace.as_mut().unwrap().mode = mode,
                        None => {
                            spec.view.workspace = None;
                            spec.view.read = vec![place.clone()];
                        }
                    }
                });
                let mut started = sandbox.start();
                let mut input = fs::File::from(started.input.take().unwrap());
                started.release().unwrap();
                let mut text = String::new();
                let finished = started.wait(&mut |_, bytes| {
                    text.push_str(&String::from_utf8_lossy(bytes));
                    if text == "ready\n" {
                        fs::write(place.join("new"), "A=test-secret-new").unwrap();
                        fs::rename(place.join("new"), place.join(saved)).unwrap();
                        // Where it is to be ended, it waits for this in vain.
                        if goes_on {
                            input.write_all(b"go\n").unwrap();
                        }
                    }
                });
                assert!(!text.contains("test-secret"), "{text}");
                finished.outcome
            };
            let modes = || {
                [
                    Some(WorkspaceMode::ReadOnly),
                    Some(WorkspaceMode::ReadWrite),
                    None,
                ]
            };
            for mode in modes() {
                let outcome = attempt(mode, ".env", false);
                let Outcome::Failed(Failure::SetupFailed(why)) = outcome else {
                    panic!("{outcome:?}");
                };
                assert!(why.contains(".env`, which the sandbox hides"), "{why}");
            }
            // The twin: what is not hidden may be saved.
            for mode in modes() {
                assert_eq!(attempt(mode, "seen", true), Outcome::Passed);
            }
            // And an overlay goes on hiding what is hidden.
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let layer = |name: &str| {
                let layer = folder.path().join(name);
                fs::create_dir(&layer).unwrap();
                layer
            };
            let overlay = WorkspaceMode::Overlay {
                upper: layer("upper"),
                work: layer("work"),
                below: Vec::new(),
            };
            assert_eq!(attempt(Some(overlay), ".env", true), Outcome::Passed);
        },
    );
}
