//! Does it work on a stock kernel? Debian's, with control groups of the second version, in a virtual machine.

mod boot;

use std::path::Path;

use boot::{Files, Root, Stock, boot};

const VALETKEY: &str = env!("CARGO_BIN_EXE_valetkey");

/// Those of the limits that a control group keeps; emulation makes each of them slow.
const TESTS: &str = "--test-threads=1 limits::the_memory limits::memory limits::the_processor limits::a_fork_bomb \
                     limits::a_program_that_can_start limits::a_workspace";

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
fn on_a_stock_kernel_limits_are_told_and_a_crash_starts_no_helper_of_the_host() {
    let files = files();
    files.program(&std::env::current_exe().unwrap(), "tests");
    files.write("helper", "#!/bin/sh\n: > /helper-was-run\n");
    let limits = format!(
        "mkdir /tools; export VALETKEY_TEST_TOOLS=/tools\n\
         echo AS ROOT; valetkey doctor; /tests {TESTS} && echo ALL PASSED\n\
         echo AS USER; delegated valetkey doctor; shared /tests {TESTS} && echo ALL PASSED\n"
    );
    let Some(printed) = boot(Stock::Debian, &files, Root::Disk, &(limits + CRASH)) else {
        return;
    };
    let (root, rest) = printed.split_once("AS USER\n").unwrap();
    let (user, crash) = rest.split_once("CRASH\n").unwrap();
    for part in [root, user] {
        assert!(part.contains("ALL PASSED"), "{printed}");
        assert!(
            part.contains("limits::a_fork_bomb_is_ended_and_told ... ok"),
            "{printed}"
        );
        for group in ["memory", "cpu"] {
            let line = part
                .lines()
                .find(|line| line.contains(&format!("{group} control group")));
            let line = line.unwrap_or_default();
            assert!(line.contains("the kernel keeps the limit"), "{printed}");
        }
    }
    assert_eq!(
        crash.matches("139\ninside: nothing\n").count(),
        2,
        "{printed}"
    );
    // The trap works: with a core limit of 0 it is started all the same.
    assert!(crash.contains("outside: helper\n"), "{printed}");
}

const CRASH: &str = r#"
echo CRASH; chmod 755 /helper; echo '|/helper' > /proc/sys/kernel/core_pattern
mkdir -m 777 /var/tmp/project; cd /var/tmp/project; crash='kill -SEGV $$'
helper() { sleep 1; if [ -e /helper-was-run ]; then echo "$1: helper"; else echo "$1: nothing"; fi; }
for as in '' delegated; do
    $as valetkey run --quiet -- sh -c "$crash"; echo $?
    helper inside
done
sh -c "ulimit -c 0; $crash"; helper outside
"#;
