//! The same tests again on a machine with a stock kernel and control groups of the second version.

use crate::boot::{DEBIAN, Files, Root, boot};
use crate::support;

/// What these tests are, on the machine.
fn files() -> Files {
    let files = Files::new();
    files.program(&std::env::current_exe().unwrap(), "tests");
    files.program_of(support::probe(), "probes/probe");
    files.program_of(support::escape(), "probes/escape");
    files.python();
    files
}

/// A script that runs tests as root and as an ordinary user whose group is delegated, as by
/// `systemd-run --user --scope -p Delegate=yes`.
fn each_user(tests: &str) -> String {
    format!(
        "export {probes}=/probes {alone}=1 VALETKEY_TEST_GROUPS=1\n\
         echo AS ROOT; /tests --test-threads=1 {tests} && echo ROOT PASSED\n\
         echo AS USER; delegated /tests --test-threads=1 {tests} && echo USER PASSED\n",
        probes = support::PROBES,
        alone = support::ALONE,
    )
}

/// Linux 6.1 has neither `open_tree_attr` nor `PIDFD_GET_INFO`, and Landlock of version 2; its control groups are of the
/// second version.
#[test]
fn the_sandbox_and_its_limits_are_the_same_on_an_older_kernel() {
    let script = format!(
        "/busybox mount -t securityfs s /sys/kernel/security; cat /sys/kernel/security/lsm; echo\n{}",
        each_user(&format!("{NOT_THERE} {SANDBOX} {BY_GROUPS}"))
    );
    let Some(printed) = boot(DEBIAN, &files(), Root::Disk, &script) else {
        return;
    };
    for line in ["ROOT PASSED", "USER PASSED"] {
        assert!(printed.lines().any(|found| found == line), "{printed}");
    }
    assert!(printed.contains("landlock,"), "{printed}");
    // A filter that fits nothing would pass as well.
    for test in [
        LANDLOCK,
        "exhaustion::a_fork_bomb",
        "exhaustion::a_sandbox_is_born",
    ] {
        let passed = printed
            .lines()
            .filter(|line| line.contains(test) && line.ends_with("... ok"));
        assert_eq!(passed.count(), 2, "{test}: {printed}");
    }
}

const SANDBOX: &str = "basics:: kernel:: processes:: layers:: \
                       escapes::files::the_root_is_kept_by_mounts_and_by_landlock_each_alone";
const LANDLOCK: &str = "escapes::files::the_root_is_kept_by_mounts_and_by_landlock_each_alone";
/// Of the limits those that a control group keeps.
const BY_GROUPS: &str = "limits::memory_of limits::memory_that_is_too limits::files_in_memory limits::less_memory limits::processor_time \
                         limits::processes_are limits::a_whole_number limits::every_limit exhaustion::a_program_that_allocates \
                         exhaustion::a_fork_bomb exhaustion::threads_count exhaustion::a_spinner exhaustion::nothing_is_left \
                         exhaustion::a_sandbox_is_born";
/// Its Python has no TLS library, busybox sets a variable more, and the other ways out need a compiler.
const NOT_THERE: &str = "--skip python_runs_where_it_is_installed --skip the_environment_is_what_was_given \
                         --skip escapes::kernel:: --skip escapes::processes::";

#[test]
fn a_sandbox_stands_on_an_initial_memory_disk() {
    // Root's are shown to read as they are, where everybody may; that is another question.
    let script = each_user(&format!("{NOT_THERE} --skip a_project_may_lie basics::"));
    let Some(printed) = boot(DEBIAN, &files(), Root::Memory, &script) else {
        return;
    };
    let (root, user) = printed.split_once("AS USER\n").unwrap();
    assert!(user.lines().any(|line| line == "USER PASSED"), "{printed}");
    // Root's folders there cannot be shown as the sandbox's user's; nothing runs, and that is said.
    assert!(root.contains("(an id-mapped mount)"), "{printed}");
    assert!(!root.contains("... ok\n"), "{printed}");
}
