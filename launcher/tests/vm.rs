//! The same tests again on a machine with a stock kernel and control groups of the second version.

use crate::boot::{Files, Root, boot};
use crate::support;

/// What these tests are, on the machine.
fn files() -> Files {
    let files = Files::new();
    files.program(&std::env::current_exe().unwrap(), "tests");
    files.program_of(support::probe(), "probe");
    files.python();
    files
}

/// A script that runs tests as root and as an ordinary user whose group is delegated, as by
/// `systemd-run --user --scope -p Delegate=yes`.
fn each_user(tests: &str) -> String {
    format!(
        "export {probe}=/probe VALETKEY_TEST_GROUPS=1\n\
         echo AS ROOT; /tests {tests} && echo ROOT PASSED\n\
         echo AS USER; delegated /tests {tests} && echo USER PASSED\n",
        probe = support::PROBE,
    )
}

#[test]
fn limits_are_kept_by_control_groups_of_the_second_version() {
    let Some(printed) = boot(
        &files(),
        Root::Disk,
        &each_user("--test-threads=1 --skip escapes:: limits:: exhaustion::"),
    ) else {
        return;
    };
    for line in ["ROOT PASSED", "USER PASSED"] {
        assert!(printed.lines().any(|found| found == line), "{printed}");
    }
}

#[test]
fn the_sandbox_is_the_same_on_an_older_kernel() {
    // Linux 6.1 has neither open_tree_attr nor PIDFD_GET_INFO, and Landlock of version 2.
    let tests = format!("--test-threads=1 {NOT_THERE} basics:: kernel:: processes:: layers::");
    let script = format!(
        "/busybox mount -t securityfs s /sys/kernel/security; cat /sys/kernel/security/lsm; echo\n{}",
        each_user(&tests)
    );
    let Some(printed) = boot(&files(), Root::Disk, &script) else {
        return;
    };
    for line in ["ROOT PASSED", "USER PASSED"] {
        assert!(printed.lines().any(|found| found == line), "{printed}");
    }
    assert!(printed.contains("landlock,"), "{printed}");
}

/// The ways out are tried on the machine that has a compiler. Its Python has no TLS library, and busybox sets a variable more.
const NOT_THERE: &str = "--skip escapes:: --skip python_runs_where_it_is_installed --skip the_environment_is_what_was_given";

#[test]
fn a_sandbox_stands_on_an_initial_memory_disk() {
    let script = each_user(&format!("--test-threads=1 {NOT_THERE} basics::"));
    let Some(printed) = boot(&files(), Root::Memory, &script) else {
        return;
    };
    let (root, user) = printed.split_once("AS USER\n").unwrap();
    assert!(user.lines().any(|line| line == "USER PASSED"), "{printed}");
    // Root's folders there cannot be shown as the sandbox's user's; nothing runs, and that is said.
    assert!(root.contains("(an id-mapped mount)"), "{printed}");
    assert!(!root.contains("... ok\n"), "{printed}");
}
