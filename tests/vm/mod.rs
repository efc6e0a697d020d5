//! Does it work on a stock kernel? Debian's, with control groups of the second version, in a virtual machine.

mod boot;

use std::path::Path;

use boot::{Files, Root, boot};

const VALETKEY: &str = env!("CARGO_BIN_EXE_valetkey");

/// Those of the limits that a control group keeps; emulation makes each of them slow.
const TESTS: &str = "--test-threads=1 limits::the_memory limits::memory limits::the_processor limits::a_fork_bomb \
                     limits::a_program limits::a_workspace";

/// The program where the tests look for it, and a project with an approved policy.
fn files() -> Files {
    let files = Files::new();
    files.program(Path::new(VALETKEY), VALETKEY.trim_start_matches('/'));
    files.write(
        "usr/bin/valetkey",
        &format!("#!/bin/sh\nexec {VALETKEY} \"$@\"\n"),
    );
    files.python();
    files
}

#[test]
fn limits_are_told_with_control_groups_of_the_second_version() {
    let files = files();
    files.program(&std::env::current_exe().unwrap(), "tests");
    let script = format!(
        "mkdir /tools; export VALETKEY_TEST_TOOLS=/tools\n\
         echo AS ROOT; valetkey doctor; /tests {TESTS} && echo ALL PASSED\n\
         echo AS USER; delegated valetkey doctor; shared /tests {TESTS} && echo ALL PASSED\n"
    );
    let Some(printed) = boot(&files, Root::Disk, &script) else {
        return;
    };
    let (root, user) = printed.split_once("AS USER\n").unwrap();
    for part in [root, user] {
        assert!(part.contains("ALL PASSED"), "{printed}");
        for group in ["memory", "cpu"] {
            let line = part
                .lines()
                .find(|line| line.contains(&format!("{group} control group")));
            let line = line.unwrap_or_default();
            assert!(line.contains("the kernel keeps the limit"), "{printed}");
        }
    }
}

#[test]
fn a_crash_in_a_run_starts_no_helper_of_the_host() {
    let files = files();
    files.write("helper", "#!/bin/sh\n: > /helper-was-run\n");
    let script = "chmod 755 /helper; echo '|/helper' > /proc/sys/kernel/core_pattern\n\
         mkdir -m 777 /var/tmp/project; cd /var/tmp/project; crash='kill -SEGV $$'\n\
         helper() { sleep 1; if [ -e /helper-was-run ]; then echo \"$1: helper\"; else echo \"$1: nothing\"; fi; }\n\
         for as in '' delegated; do\n\
         $as valetkey run --quiet -- sh -c \"$crash\"; echo $?\n\
         helper inside\n\
         done\n\
         sh -c \"ulimit -c 0; $crash\"; helper outside\n";
    let Some(printed) = boot(&files, Root::Disk, script) else {
        return;
    };
    assert_eq!(
        printed.matches("139\ninside: nothing\n").count(),
        2,
        "{printed}"
    );
    // The trap works: with a core limit of 0 it is started all the same.
    assert!(printed.contains("outside: helper\n"), "{printed}");
}
