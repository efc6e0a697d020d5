//! What is said when a sandbox cannot be built.

use std::os::unix::fs::PermissionsExt;

use launcher::{Error, Spec, doctor, prepare};

use crate::support::{Box, as_each_user};

#[test]
fn nothing_to_run_is_refused() {
    assert!(prepare(&Spec::new(Vec::<String>::new(), "/root")).is_err());
}

#[test]
fn a_workspace_that_is_a_system_folder_is_refused() {
    for host in ["/", "/etc", "/usr/share", "/proc", "/home"] {
        let sandbox = Box::shell("true")
            .with(|spec| spec.view.workspace.as_mut().unwrap().host = host.into());
        let error = prepare(&sandbox.spec).unwrap_err();
        assert!(matches!(error, Error::View { .. }), "{host}: {error}");
    }
}

#[test]
fn a_missing_path_is_named() {
    let sandbox = Box::shell("true").with(|spec| spec.view.read = vec!["/no/such/place".into()]);
    let error = prepare(&sandbox.spec).unwrap_err().to_string();
    assert!(error.contains("/no/such/place"), "{error}");
}

#[test]
fn an_overlay_that_the_kernel_refuses_is_named_and_nothing_runs() {
    // A layer on procfs-like ground: the folder of an overlay's own upper layer cannot be inside the workspace.
    let sandbox = Box::shell("true");
    let inside = sandbox.work().join("layers");
    for name in ["upper", "work"] {
        std::fs::create_dir_all(inside.join(name)).unwrap();
        std::fs::set_permissions(inside.join(name), std::fs::Permissions::from_mode(0o755))
            .unwrap();
    }
    let sandbox = sandbox.mode(launcher::WorkspaceMode::Overlay {
        upper: inside.join("upper"),
        work: inside.join("work"),
        below: Vec::new(),
    });
    let error = prepare(&sandbox.spec).unwrap_err().to_string();
    assert!(error.contains("layer"), "{error}");
}

#[test]
fn no_control_group_is_left_behind() {
    assert_eq!(
        Box::shell("true")
            .with(|spec| spec.limits.memory = Some(1 << 28))
            .output(),
        ""
    );
    let own = format!("-{}-", std::process::id());
    let mut left = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().display().to_string();
            assert!(
                !(name.starts_with("valetkey-") && name.contains(&own)),
                "{}",
                entry.path().display()
            );
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
    }
}

#[test]
fn doctor_tries_everything_and_has_advice_for_what_fails() {
    as_each_user(
        "setup::doctor_tries_everything_and_has_advice_for_what_fails",
        || {
            let checks = doctor(std::path::Path::new("/var/tmp"));
            assert!(checks.len() >= 5, "{checks:?}");
            for check in &checks {
                assert_eq!(check.advice.is_empty(), check.ok, "{check:?}");
                // These tests run where sandboxes can be built.
                assert!(check.ok || check.optional, "{check:?}");
            }
        },
    );
}

#[test]
fn without_user_namespaces_nothing_runs_and_the_cause_is_told() {
    const NAME: &str = "setup::without_user_namespaces_nothing_runs_and_the_cause_is_told";
    if std::env::var_os("WITHOUT").is_some() {
        let sandbox = Box::shell("echo ran > ran").with(|spec| spec.limits.wall = None);
        let error = prepare(&sandbox.spec)
            .and_then(|prepared| prepared.start())
            .unwrap_err();
        assert!(!sandbox.upper().join("ran").exists());
        let text = error.to_string();
        assert!(text.contains("making namespaces"), "{text}");
        assert!(text.contains("sysctl user.max_user_namespaces"), "{text}");
        return;
    }
    // A user namespace in which no further one may be made.
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c"])
        .arg(
            "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --exact \"$1\" --nocapture",
        )
        .arg(std::env::current_exe().unwrap())
        .arg(NAME)
        .env("WITHOUT", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn the_root_of_a_user_namespace_can_start_a_sandbox() {
    const NAME: &str = "setup::the_root_of_a_user_namespace_can_start_a_sandbox";
    if std::env::var_os("NESTED").is_some() {
        assert_eq!(
            Box::shell("id -u; cat a; echo x > a")
                .file("a", "seen\n")
                .output(),
            "1000\nseen\n"
        );
        return;
    }
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("NESTED", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
