//! Does it work on a stock kernel? Debian's, with control groups of the second version, in a virtual machine.

mod boot;

use std::path::Path;

use boot::{DEBIAN, Files, Root, boot};

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
fn on_debians_kernel_limits_are_told_a_crash_starts_no_helper_and_a_refusal_is_explained() {
    let files = files();
    files.program(&std::env::current_exe().unwrap(), "tests");
    files.write("helper", "#!/bin/sh\n: > /helper-was-run\n");
    let limits = format!(
        "mkdir /tools; export VALETKEY_TEST_TOOLS=/tools\n\
         echo AS ROOT; valetkey doctor; /tests {TESTS} && echo ALL PASSED\n\
         echo AS USER; delegated valetkey doctor; shared /tests {TESTS} && echo ALL PASSED\n"
    );
    let Some(printed) = boot(DEBIAN, &files, Root::Disk, &(limits + CRASH)) else {
        return;
    };
    let (root, rest) = printed.split_once("AS USER\n").unwrap();
    let (user, rest) = rest.split_once("CRASH\n").unwrap();
    let (crash, off) = rest.split_once("TURNED OFF\n").unwrap();
    for part in [root, user] {
        assert!(part.contains("ALL PASSED"), "{printed}");
        assert!(
            part.contains("limits::a_fork_bomb_is_ended_and_told ... ok"),
            "{printed}"
        );
        let is_told = part.contains("version 2 of Landlock, and version 6 (Linux 6.12) is needed");
        assert!(is_told || !part.contains("Linux 6.1."), "{printed}");
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
    // Debian's own switch, by what the message says about it.
    assert!(
        off.contains("sudo sysctl kernel.unprivileged_userns_clone=1"),
        "{printed}"
    );
    assert!(off.contains("refused 125\n"), "{printed}");
    assert!(off.contains("it ran\nallowed 0\n"), "{printed}");
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

echo TURNED OFF; /busybox sysctl -w kernel.unprivileged_userns_clone=0
delegated valetkey run --quiet -- true; echo refused $?
/busybox sysctl -w kernel.unprivileged_userns_clone=1
delegated valetkey run --quiet -- echo it ran; echo allowed $?
"#;

/// What a person does on Ubuntu 24.04, whose sysctl file this is: it does not run, and the advice is taken.
#[test]
fn where_apparmor_restricts_user_namespaces_the_advice_that_is_printed_mends_it() {
    let files = files();
    let folder = ubuntu();
    for (from, at) in [
        ("usr/lib/x86_64-linux-gnu", "ubuntu"),
        ("etc/apparmor.d/abi", "etc/apparmor.d/abi"),
        ("etc/apparmor.d/tunables", "etc/apparmor.d/tunables"),
        ("usr/lib/sysctl.d", "usr/lib/sysctl.d"),
    ] {
        if folder.join(from).exists() {
            let to = files.folder().join(at);
            std::fs::create_dir_all(&to).unwrap();
            let mut copy = std::process::Command::new("cp");
            copy.args(["-a", "-T"]).args([folder.join(from), to]);
            assert!(copy.status().unwrap().success(), "{at}");
        }
    }
    files.write("usr/bin/sudo", "#!/bin/sh\nexec \"$@\"\n");
    if let Ok(parser) = std::fs::read(folder.join("sbin/apparmor_parser")) {
        files.program_of(&parser, "ubuntu/apparmor_parser");
        let line = "#!/bin/sh\nexec /ubuntu/ld-linux-x86-64.so.2 --library-path /ubuntu /ubuntu/apparmor_parser \"$@\"\n";
        files.write("usr/bin/apparmor_parser", line);
    }
    let Some(printed) = boot("ubuntu", &files, Root::Disk, RESTRICTED) else {
        return;
    };
    let (refused, mended) = printed.split_once("MENDED\n").unwrap();
    assert!(refused.contains("allowed before 0\n"), "{printed}");
    assert!(refused.contains("refused 125\n"), "{printed}");
    assert!(
        refused
            .matches("AppArmor keeps programs from using user namespaces here")
            .count()
            >= 2,
        "{printed}"
    );
    // Ubuntu's Landlock is older than what is needed without namespaces.
    assert!(refused.contains("version 4 of Landlock"), "{printed}");
    assert!(refused.contains("without namespaces 125\n"), "{printed}");
    assert!(mended.contains("it ran\nallowed 0\n"), "{printed}");
}

/// Where `tests/run` unpacked Ubuntu's packages.
fn ubuntu() -> std::path::PathBuf {
    boot::tools().join("ubuntu")
}

const RESTRICTED: &str = r#"
/busybox mount -t securityfs s /sys/kernel/security
mkdir -m 777 /var/tmp/project; cd /var/tmp/project
delegated valetkey run --quiet -- true; echo allowed before $?
/busybox sysctl -p /usr/lib/sysctl.d/10-apparmor.conf
delegated valetkey run -- echo ran; echo refused $?
delegated valetkey run --isolation landlock -- true; echo without namespaces $?
delegated valetkey doctor --json > /advice
cat > /take.py <<'END'
import json, subprocess
checks = json.load(open("/advice"))["checks"]
advice = next(check["advice"] for check in checks if check["name"] == "user namespace")
print(advice)
profile, command = advice.split("put\n", 1)[1].split("\ninto /etc/apparmor.d/valetkey and run `")
open("/etc/apparmor.d/valetkey", "w").write(profile + "\n")
subprocess.run(command.split("`")[0], shell=True, check=True)
END
python3 /take.py && echo MENDED
delegated valetkey run --quiet -- echo it ran; echo allowed $?
"#;
