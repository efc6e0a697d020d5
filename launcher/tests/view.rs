//! What the command sees of the workspace and of the owner's home.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use launcher::{CaBundle, MadeUp, WorkspaceMode, prepare};
use sdk::report::Outcome;

use crate::support::{Box, as_each_user};

#[test]
fn an_overlay_takes_changes_and_leaves_the_workspace_alone() {
    as_each_user(
        "view::an_overlay_takes_changes_and_leaves_the_workspace_alone",
        || {
            let sandbox = Box::shell(
            "echo changed > kept; rm gone; rm -r folder; mkdir folder; echo new > folder/new; ls folder; cat kept",
        )
        .file("kept", "before")
        .file("gone", "before")
        .file("folder/old", "before");
            fs::set_permissions(
                sandbox.work().join("kept"),
                fs::Permissions::from_mode(0o600),
            )
            .unwrap();
            assert_eq!(sandbox.output(), "new\nchanged\n");
            assert_eq!(
                fs::read_to_string(sandbox.work().join("kept")).unwrap(),
                "before"
            );
            assert!(sandbox.work().join("gone").exists());
            assert!(sandbox.work().join("folder/old").exists());
            assert_eq!(
                fs::read_to_string(sandbox.upper().join("kept")).unwrap(),
                "changed\n"
            );
            assert!(sandbox.upper().join("folder/new").exists());
        },
    );
}

#[test]
fn a_second_step_sees_what_the_first_wrote() {
    let sandbox = Box::shell("echo one > step");
    assert_eq!(sandbox.output(), "");
    let sandbox = sandbox.with(|spec| spec.argv = ["cat", "step"].map(Into::into).to_vec());
    assert_eq!(sandbox.output(), "one\n");
}

#[test]
fn a_read_only_workspace_cannot_be_written() {
    as_each_user("view::a_read_only_workspace_cannot_be_written", || {
        let sandbox = Box::shell("cat a; echo x > a || echo refused").file("a", "text\n");
        let output = sandbox.mode(WorkspaceMode::ReadOnly).output();
        assert_eq!(output, "text\nrefused\n");
    });
}

#[test]
fn a_writable_workspace_is_the_folder_itself() {
    as_each_user("view::a_writable_workspace_is_the_folder_itself", || {
        let sandbox = Box::shell("echo new > made").mode(WorkspaceMode::ReadWrite);
        assert_eq!(sandbox.output(), "");
        let made = fs::metadata(sandbox.work().join("made")).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(made.uid(), rustix::process::geteuid().as_raw());
    });
}

#[test]
fn no_set_user_id_file_is_left_in_a_writable_workspace() {
    as_each_user(
        "view::no_set_user_id_file_is_left_in_a_writable_workspace",
        || {
            let sandbox = Box::shell(
                "cp /bin/true a; chmod u+s a 2>/dev/null || echo refused; chmod g+s a 2>/dev/null || echo refused; \
                 cp a b; chmod 700 b && echo changed",
            );
            let sandbox = sandbox.mode(WorkspaceMode::ReadWrite);
            assert_eq!(sandbox.output(), "refused\nrefused\nchanged\n");
            let made = fs::metadata(sandbox.work().join("a")).unwrap();
            assert_eq!(made.permissions().mode() & 0o6000, 0);
        },
    );
}

#[test]
fn no_workspace_means_none() {
    let sandbox = Box::shell("pwd").with(|spec| spec.view.workspace = None);
    let home = sandbox.folder.path().join("home").display().to_string();
    assert_eq!(sandbox.output(), format!("{home}\n"));
}

#[test]
fn the_home_is_an_empty_one_of_its_own() {
    let sandbox = Box::shell("ls -A ~; echo x > ~/made && ls ~");
    fs::write(
        sandbox.folder.path().join("home/.netrc"),
        "test-secret-netrc",
    )
    .unwrap();
    assert_eq!(sandbox.output(), "made\n");
    assert!(!sandbox.folder.path().join("home/made").exists());
}

#[test]
fn a_folder_above_something_hidden_cannot_be_moved_for_the_next_sandbox() {
    as_each_user(
        "view::a_folder_above_something_hidden_cannot_be_moved_for_the_next_sandbox",
        || {
            let moving = "mv .git g; mv .docker d; mv conf/keys conf/k; mv conf c; mv a/b a/c && echo moved; \
                          echo new > conf/new";
            let sandbox = Box::shell(moving)
                .mode(WorkspaceMode::ReadWrite)
                .file(".git/config", "url = https://user:test-secret-1@host/x")
                .file(".git/HEAD", "")
                .file(".docker/config.json", "test-secret-2")
                .file("conf/keys/openai", "test-secret-3")
                .file("a/b/c", "text");
            let key = sandbox.work().join("conf/keys/openai");
            let sandbox = sandbox.with(|spec| spec.view.mask.push(key));
            // What has nothing hidden below it can be moved, and files be written beside what is hidden.
            assert_eq!(sandbox.output(), "moved\n");
            assert!(sandbox.work().join("conf/new").exists());
            let sandbox = sandbox.with(|spec| spec.argv[2] = "grep -r test-secret . ; true".into());
            assert_eq!(sandbox.output(), "");
        },
    );
}

#[test]
fn files_that_hold_credentials_are_hidden_in_every_mode() {
    as_each_user(
        "view::files_that_hold_credentials_are_hidden_in_every_mode",
        || {
            for mode in 0..3 {
                let sandbox = Box::shell(
                "cat .env api/.env.local deploy/id_rsa certs/server.key .ssh/config secrets/a src/main.rs certs/ca.pem 2>/dev/null; \
                 chmod 644 .env 2>/dev/null; cat .env 2>/dev/null; mv .env b 2>/dev/null; cat b 2>/dev/null; true",
            )
            .file(".env", "A=test-secret-1")
            .file("api/.env.local", "A=test-secret-2")
            .file("deploy/id_rsa", "test-secret-3")
            .file("certs/server.key", "-----BEGIN PRIVATE KEY-----\ntest-secret-4")
            .file("certs/ca.pem", "certificate\n")
            .file(".ssh/config", "test-secret-5")
            .file("secrets/a", "test-secret-6")
            .file("src/main.rs", "source\n")
            .with(|spec| spec.view.workspace.as_mut().unwrap().hide = vec!["secrets/**".into()]);
                let sandbox = match mode {
                    0 => sandbox,
                    1 => sandbox.mode(WorkspaceMode::ReadOnly),
                    _ => sandbox.mode(WorkspaceMode::ReadWrite),
                };
                let finished = sandbox.run();
                assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
                assert_eq!(finished.stdout.text, "source\ncertificate\n");
                let mut hidden = prepare(&sandbox.spec).unwrap().hidden().to_vec();
                hidden.sort();
                assert_eq!(
                    hidden,
                    [
                        ".env",
                        ".ssh",
                        "api/.env.local",
                        "certs/server.key",
                        "deploy/id_rsa",
                        "secrets"
                    ]
                    .map(PathBuf::from)
                );
            }
        },
    );
}

#[test]
fn a_hidden_file_behind_a_link_is_hidden_too() {
    let sandbox = Box::shell("cat .env config/real 2>/dev/null; true")
        .file("config/real", "test-secret-link");
    std::os::unix::fs::symlink("config/real", sandbox.work().join(".env")).unwrap();
    assert_eq!(sandbox.output(), "");
}

#[test]
fn the_git_configuration_is_a_copy_without_credentials() {
    let config = "[core]\n\tbare = false\n\thooksPath = /tmp/h\n[remote \"o\"]\n\turl = https://u:test-secret@h.example/r\n";
    let sandbox = Box::shell("cat .git/config; echo x >> .git/config || echo refused")
        .file(".git/config", config);
    assert_eq!(
        sandbox.output(),
        "[core]\n\tbare = false\n[remote \"o\"]\n\turl = https://h.example/r\nrefused\n"
    );
}

#[test]
fn the_policy_file_is_read_only_inside() {
    let sandbox = Box::shell("echo x >> valetkey.toml || echo refused; rm -f valetkey.toml 2>/dev/null || echo refused; cat valetkey.toml")
        .file("valetkey.toml", "version = 1\n")
        .with(|spec| spec.view.workspace.as_mut().unwrap().protect = vec!["valetkey.toml".into()]);
    assert_eq!(sandbox.output(), "refused\nrefused\nversion = 1\n");
}

#[test]
fn the_owners_settings_are_masked_in_the_workspace_and_refused_elsewhere() {
    let sandbox = Box::shell("cat state/key owner.toml 2>/dev/null; cat a")
        .file("state/key", "test-secret-key")
        .file("owner.toml", "test-secret-owner")
        .file("a", "seen\n");
    let (state, owner) = (
        sandbox.work().join("state"),
        sandbox.work().join("owner.toml"),
    );
    let sandbox = sandbox.with(|spec| spec.view.mask = vec![state.clone(), owner]);
    assert_eq!(sandbox.output(), "seen\n");
    let sandbox = sandbox.with(|spec| {
        spec.view.workspace = None;
        spec.view.read = vec![state];
    });
    let error = prepare(&sandbox.spec).unwrap_err();
    assert!(error.to_string().contains("no sandbox may see"), "{error}");
}

#[test]
fn a_path_to_read_is_shown_read_only_without_credentials() {
    as_each_user(
        "view::a_path_to_read_is_shown_read_only_without_credentials",
        || {
            let sandbox = Box::shell("cat $D/a $D/.env 2>/dev/null; echo x > $D/a || echo refused");
            let data = sandbox.folder.path().join("data");
            fs::create_dir(&data).unwrap();
            fs::write(data.join("a"), "shown\n").unwrap();
            fs::write(data.join(".env"), "test-secret").unwrap();
            let sandbox = sandbox.with(|spec| {
                spec.env.insert("D".into(), data.clone().into());
                spec.view.read = vec![data];
            });
            assert_eq!(sandbox.output(), "shown\nrefused\n");
        },
    );
}

#[test]
fn a_tool_chain_in_a_private_home_works_without_the_rest_of_it() {
    as_each_user(
        "view::a_tool_chain_in_a_private_home_works_without_the_rest_of_it",
        || {
            let sandbox = Box::shell(
                "tool; ls -A ~/.cargo; cat ~/.cargo/credentials.toml ~/.secret 2>/dev/null; true",
            );
            let home = sandbox.folder.path().join("home");
            fs::create_dir_all(home.join(".cargo/bin")).unwrap();
            fs::write(home.join(".cargo/bin/tool"), "#!/bin/sh\necho tool ran\n").unwrap();
            fs::set_permissions(
                home.join(".cargo/bin/tool"),
                fs::Permissions::from_mode(0o700),
            )
            .unwrap();
            fs::write(home.join(".cargo/credentials.toml"), "test-secret-cargo").unwrap();
            fs::write(home.join(".secret"), "test-secret-home").unwrap();
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
            let sandbox = sandbox.with(|spec| {
                spec.view.path = std::env::join_paths([
                    home.join(".cargo/bin"),
                    home.join("private/bin"),
                    "/usr/bin".into(),
                ])
                .unwrap();
            });
            assert_eq!(sandbox.output(), "tool ran\nbin\n");
            let notes = prepare(&sandbox.spec).unwrap().notes().join("\n");
            assert!(notes.contains("private/bin"), "{notes}");
        },
    );
}

#[test]
fn the_certificate_bundle_covers_the_systems() {
    let system = PathBuf::from("/etc/ssl/certs/ca-certificates.crt");
    let sandbox = Box::shell("cat /etc/valetkey/ca.pem; cat /etc/ssl/certs/ca-certificates.crt 2>/dev/null || cat /etc/valetkey/ca.pem").with(|spec| {
        spec.view.ca = Some(CaBundle {
            system: None,
            pem: b"our bundle\n".to_vec(),
            at: "/etc/valetkey/ca.pem".into(),
            over: vec![system],
        });
    });
    assert_eq!(sandbox.output(), "our bundle\nour bundle\n");
    // The system's own authorities come first.
    let first = sandbox.folder.path().join("bundle.pem");
    std::fs::write(&first, "theirs\n").unwrap();
    let sandbox = sandbox.with(|spec| spec.view.ca.as_mut().unwrap().system = Some(first));
    assert_eq!(sandbox.output(), "theirs\nour bundle\ntheirs\nour bundle\n");
}

#[test]
fn made_up_files_stand_in_the_view() {
    let sandbox = Box::shell("cat /etc/pip.conf a; echo x > a || echo refused").file("a", "real\n");
    let a = sandbox.work().join("a");
    let sandbox = sandbox.with(|spec| {
        spec.view.files = vec![
            MadeUp {
                path: "/etc/pip.conf".into(),
                bytes: b"[global]\n".to_vec(),
            },
            MadeUp {
                path: a,
                bytes: b"made up\n".to_vec(),
            },
        ];
    });
    assert_eq!(sandbox.output(), "[global]\nmade up\nrefused\n");
}

#[test]
fn the_callers_own_tool_chains_are_found_through_path() {
    let (Some(home), Some(path)) = (std::env::var_os("HOME"), std::env::var_os("PATH")) else {
        panic!("these tests are run with a home and a PATH");
    };
    let sandbox = Box::new(["cargo", "--version"]).with(|spec| {
        spec.view.home = home.into();
        spec.view.path = path;
    });
    assert!(sandbox.output().starts_with("cargo "));
}

#[test]
fn a_workspace_in_the_home_keeps_its_path() {
    let sandbox = Box::shell("pwd; ls -A ~; cat a").file("a", "seen\n");
    let (home, work) = (sandbox.folder.path().to_owned(), sandbox.work());
    let sandbox = sandbox.with(|spec| spec.view.home = home);
    assert_eq!(
        sandbox.output(),
        format!("{}\nwork\nseen\n", work.display())
    );
}
