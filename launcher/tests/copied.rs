//! Where no overlay can be laid over the workspace: is a copy worked on, and is the rest as ever?

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use launcher::changes::{Kept, Record, Refused};
use launcher::{Error, Layer, Weaken, WorkspaceMode, prepare};
use rustix::mount::MountFlags;

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
fn a_later_step_over_a_copy_sees_what_the_earlier_ones_left_and_tells_only_its_own() {
    as_each_user(
        "copied::a_later_step_over_a_copy_sees_what_the_earlier_ones_left_and_tells_only_its_own",
        || {
            let sandbox = Box::shell("")
                .file("a", "1")
                .file("gone/x", "2")
                .file("kept", "3");
            let mut run = without_overlay(sandbox);
            run.step("echo one > a; rm -r gone; mkdir -m 700 new; echo n > new/file; ln -s a link; chmod 600 kept");
            let output = run.step(
                "cat a new/file; readlink link; ls gone 2>/dev/null; stat -c %a new kept; echo two >> a; rm new/file",
            );
            assert_eq!(output, "one\nn\na\n700\n600\n");
            let second = Record::load(&run.folder())
                .unwrap()
                .layer_folders()
                .remove(1);
            let mut names: Vec<_> = fs::read_dir(second.join("upper"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            assert_eq!(names, ["a", "new"]);
            run.apply(&[]).unwrap();
            assert_eq!(
                fs::read_to_string(run.work().join("a")).unwrap(),
                "one\ntwo\n"
            );
            assert!(run.work().join("new").exists() && !run.work().join("new/file").exists());
            assert!(!run.work().join("gone").exists());
        },
    );
}

#[test]
fn a_copy_with_what_earlier_steps_left_is_no_larger_than_the_disk_limit() {
    let mut run = without_overlay(Box::shell("").file("a", "1"));
    run.step("head -c 3000000 /dev/zero > large");
    let layers = Record::load(&run.folder()).unwrap().layers_folder();
    let mut spec = run.spec().clone();
    spec.limits.disk = Some(1 << 20);
    let [upper, work] = ["upper", "work"].map(|name| layers.join("002").join(name));
    fs::create_dir_all(&upper).unwrap();
    let below = vec![layers.join("001/upper")];
    spec.view.workspace.as_mut().unwrap().mode = WorkspaceMode::Overlay { upper, work, below };
    let error = prepare(&spec).unwrap_err();
    assert!(error.to_string().contains("limits.disk"), "{error}");
}

#[test]
fn folders_that_a_step_closed_or_nested_too_deep_keep_nothing_else_from_being_told() {
    as_each_user(
        "copied::folders_that_a_step_closed_or_nested_too_deep_keep_nothing_else_from_being_told",
        || {
            let mut run = without_overlay(Box::shell("").file("e/g", "1").file("f/gone", "2"));
            run.step(
                "mkdir d; echo n > d/new; echo run > e/g; rm f/gone; chmod 000 d; chmod 111 e; chmod 400 f; chmod 0 .",
            );
            let expected = [
                "added d",
                "added d/new",
                "changed e",
                "changed e/g",
                "changed f",
                "deleted f/gone",
            ];
            assert_eq!(run.told(), expected);
            let added = &run.changes()[0];
            assert_eq!(added.now.as_ref().unwrap().mode, 0, "{added:?}");
            let output = run.step("chmod 700 d e; cat d/new e/g; ls -R f");
            assert!(output.starts_with("n\nrun\n"), "{output}");
            run.apply(&[]).unwrap();
            assert_eq!(fs::read_to_string(run.work().join("d/new")).unwrap(), "n\n");

            let mut run = without_overlay(Box::shell("").file("a", "1"));
            run.step(
                "echo run > a; n=0; while [ $n -lt 300 ]; do mkdir a-folder-with-a-long-name; cd -P a-folder-with-a-long-name; \
                 n=$((n + 1)); done; echo deep > file",
            );
            let changes = run.changes();
            assert!(run.told().contains(&"changed a".to_owned()));
            let deepest = changes
                .iter()
                .max_by_key(|change| change.path.components().count());
            assert_eq!(
                deepest.unwrap().refused,
                Some(Refused::TooDeep),
                "{deepest:?}"
            );
        },
    );
}

#[test]
fn what_is_mounted_in_the_workspace_is_worked_on_in_a_copy() {
    const NAME: &str = "copied::what_is_mounted_in_the_workspace_is_worked_on_in_a_copy";
    // Only root may mount.
    if !rustix::process::geteuid().is_root() || !in_own_mounts(NAME, None) {
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

/// Whether this is the test in a mount namespace of its own; otherwise it is run there.
fn in_own_mounts(test: &str, user: Option<u32>) -> bool {
    if std::env::var_os("OWN_MOUNTS").is_some() {
        return true;
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new("/usr/bin/unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() || user.is_some() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    if let Some(user) = user.filter(|_| rustix::process::geteuid().is_root()) {
        command.uid(user).gid(user);
    }
    let output = command
        .arg(&copy)
        .args(["--exact", test, "--nocapture"])
        .env("OWN_MOUNTS", "1")
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

/// Mounts an overlay at `folder` that shows what is there.
fn cover(folder: &Path) {
    let empty = folder.with_file_name("empty");
    let _ = fs::create_dir(&empty);
    let lower = format!(
        "userxattr,lowerdir={}:{}",
        folder.display(),
        empty.display()
    );
    let data = CString::new(lower).unwrap();
    rustix::mount::mount(
        "none",
        folder,
        "overlay",
        MountFlags::empty(),
        data.as_c_str(),
    )
    .unwrap();
}

#[test]
fn an_overlay_that_the_kernel_refuses_is_told_and_a_copy_takes_its_place() {
    const NAME: &str =
        "copied::an_overlay_that_the_kernel_refuses_is_told_and_a_copy_takes_its_place";
    if !in_own_mounts(NAME, Some(1001)) {
        return;
    }
    // An overlay over an overlay is as many as the kernel takes.
    let sandbox = Box::shell("").file("a", "1");
    cover(&sandbox.work());
    cover(&sandbox.work());
    let mut run = Run::over(sandbox);
    let layer = run.folder().join("layers/001");
    let [upper, work] = ["upper", "work"].map(|name| layer.join(name));
    for folder in [&upper, &work] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut spec = run.spec().clone();
    let below = Vec::new();
    spec.view.workspace.as_mut().unwrap().mode = WorkspaceMode::Overlay { upper, work, below };
    let Err(Error::NoOverlay { why }) = prepare(&spec).unwrap().start() else {
        panic!("it was not refused");
    };
    assert!(why.contains("the kernel refuses it"), "{why}");
    run.spec().no_overlay = Some(why);
    run.step("cat a; echo run > a");
    assert_eq!(run.told(), ["changed a"]);
}

#[test]
fn roots_workspace_on_an_overlay_is_worked_on_in_a_copy() {
    const NAME: &str = "copied::roots_workspace_on_an_overlay_is_worked_on_in_a_copy";
    // An ordinary user's needs none.
    if !rustix::process::geteuid().is_root() || !in_own_mounts(NAME, None) {
        return;
    }
    let sandbox = Box::shell("").file("a", "1");
    cover(&sandbox.work());
    let mut run = Run::over(sandbox);
    let output = run.step("cat a; echo run > a");
    assert_eq!(output, "1");
    assert_eq!(run.told(), ["changed a"]);
}
