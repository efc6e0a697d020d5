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
        &each_user("--test-threads=1 limits:: exhaustion::"),
    ) else {
        return;
    };
    for line in ["ROOT PASSED", "USER PASSED"] {
        assert!(printed.lines().any(|found| found == line), "{printed}");
    }
}
