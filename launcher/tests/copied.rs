//! Where no overlay can be laid over the workspace: is a copy worked on, and is the rest as ever?

use std::fs;
use std::process::Command;

use launcher::changes::{Kept, Record};
use launcher::{Layer, Weaken, WorkspaceMode, prepare};

use crate::changes::{Run, after_a_tick, snapshot};
use crate::support::{Box, as_each_user};

/// A run over the sandbox's workspace, as on a machine without overlays.
fn without_overlay(sandbox: Box) -> Run {
    Run::over(sandbox.with(|spec| spec.weaken = Weaken::without(&[Layer::Overlay])))
}

#[test]
fn changes_in_a_copy_are_told_and_taken_over_in_the_same_way() {
    as_each_user(
        "copied::changes_in_a_copy_are_told_and_taken_over_in_the_same_way",
        || {
            let sandbox = Box::shell("")
                .file("a", "1")
                .file("gone/x", "2")
                .file("kept", "3")
                .file(".env", "A=test-secret-env");
            let mut run = without_overlay(sandbox);
            let before = snapshot(&run.work(), true);
            let output = run.step(
                "echo run > a; rm -r gone; mkdir new; echo n > new/file; ln -s a link; cat .env 2>/dev/null; ls -A",
            );
            assert!(!output.contains("test-secret"), "{output}");
            assert_eq!(snapshot(&run.work(), true), before);
            let expected = [
                "changed a",
                "deleted gone",
                "deleted gone/x",
                "added link",
                "added new",
                "added new/file",
            ];
            assert_eq!(run.told(), expected);
            let layer = Record::load(&run.folder())
                .unwrap()
                .layer_folders()
                .remove(0);
            assert!(!layer.join("copy").exists());
            run.apply(&[]).unwrap();
            assert_eq!(fs::read_to_string(run.work().join("a")).unwrap(), "run\n");
            assert!(!run.work().join("gone").exists());
            assert!(run.work().join("new/file").exists());
            assert_eq!(
                fs::read_to_string(run.work().join(".env")).unwrap(),
                "A=test-secret-env"
            );
        },
    );
}

#[test]
fn changes_in_a_copy_can_be_thrown_away_and_a_later_change_of_the_owners_is_a_conflict() {
    let mut run = without_overlay(Box::shell("").file("a", "1"));
    run.step("echo run > a");
    after_a_tick();
    fs::write(run.work().join("a"), "owner").unwrap();
    assert!(run.apply(&[]).is_err());
    Kept::discard(&run.folder()).unwrap();
    assert_eq!(fs::read_to_string(run.work().join("a")).unwrap(), "owner");
    assert!(!run.folder().join("layers").exists());
}

#[test]
fn the_copy_is_told_and_is_no_larger_than_the_disk_limit() {
    let sandbox = Box::shell("true").file("large", &"x".repeat(3 << 20));
    let sandbox = sandbox.with(|spec| spec.weaken = Weaken::without(&[Layer::Overlay]));
    let prepared = prepare(&sandbox.spec).unwrap();
    let is_told = |note: &String| note.contains("works on a copy of");
    assert!(
        prepared.notes().iter().any(is_told),
        "{:?}",
        prepared.notes()
    );
    let copy = sandbox.folder.path().join("layers/copy");
    assert!(copy.join("large").exists());
    drop(prepared);
    assert!(!copy.exists());
    let sandbox = sandbox.with(|spec| spec.limits.disk = Some(1 << 20));
    let error = prepare(&sandbox.spec).unwrap_err();
    assert!(error.to_string().contains("limits.disk"), "{error}");
    assert!(!sandbox.folder.path().join("layers/copy").exists());
}

#[test]
fn a_second_step_over_a_copy_is_refused() {
    let sandbox = Box::shell("true").with(|spec| {
        spec.weaken = Weaken::without(&[Layer::Overlay]);
        let workspace = spec.view.workspace.as_mut().unwrap();
        if let WorkspaceMode::Overlay { upper, work, below } = &mut workspace.mode {
            let layers = upper.parent().unwrap().to_owned();
            *upper = layers.join("002/upper");
            *work = layers.join("002/work");
            below.push(layers.join("upper"));
        }
    });
    let error = prepare(&sandbox.spec).unwrap_err();
    assert!(error.to_string().contains("several steps"), "{error}");
}

#[test]
fn what_is_mounted_in_the_workspace_is_worked_on_in_a_copy() {
    const NAME: &str = "copied::what_is_mounted_in_the_workspace_is_worked_on_in_a_copy";
    // Only root may mount, and does so in a mount namespace of the test's own.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if std::env::var_os("OWN_MOUNTS").is_none() {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env("OWN_MOUNTS", "1")
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
    let sandbox = Box::shell("").file("a", "1");
    let mounted = sandbox.work().join("mounted");
    fs::create_dir(&mounted).unwrap();
    let done = Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(&mounted)
        .status()
        .unwrap();
    assert!(done.success());
    fs::write(mounted.join("file"), "before").unwrap();
    let mut run = Run::over(sandbox);
    let output = run.step("cat mounted/file; echo run > mounted/file; echo run > a");
    assert_eq!(output, "before");
    assert_eq!(fs::read_to_string(mounted.join("file")).unwrap(), "before");
    assert_eq!(run.told(), ["changed a", "changed mounted/file"]);
    run.apply(&[]).unwrap();
    assert_eq!(fs::read_to_string(mounted.join("file")).unwrap(), "run\n");
}
