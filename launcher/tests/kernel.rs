//! Which parts of the kernel are out of reach.

use sdk::report::{Failure, Outcome};

use crate::support::{Box, as_each_user};

/// Runs several probes in one sandbox; each line of the answer is `label result`.
fn each(probes: &[(&str, &str)]) -> Vec<(String, String)> {
    let script: Vec<String> = probes
        .iter()
        .map(|(label, arguments)| format!("echo {label} $(./probe {arguments})"))
        .collect();
    Box::shell(&script.join("\n"))
        .output()
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(label, answer)| (label.to_owned(), answer.to_owned()))
        .collect()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_namespaces_do_not_divide_is_refused() {
    as_each_user("kernel::what_namespaces_do_not_divide_is_refused", || {
        let probes = [
            ("io_uring_setup", "syscall 425 4"),
            ("add_key", "syscall 248"),
            ("request_key", "syscall 249"),
            ("keyctl", "syscall 250"),
            ("unshare", "syscall 272 0x10000000"),
            ("clone-newuser", "syscall 56 0x10000011"),
            ("setns", "syscall 308 0 0"),
            ("mount", "syscall 165"),
            ("umount2", "syscall 166"),
            ("pivot_root", "syscall 155"),
            ("chroot", "syscall 161"),
            ("open_tree", "syscall 428"),
            ("move_mount", "syscall 429"),
            ("fsopen", "syscall 430"),
            ("mount_setattr", "syscall 442"),
            ("open_tree_attr", "syscall 467"),
            ("bpf", "syscall 321"),
            ("perf_event_open", "syscall 298"),
            ("userfaultfd", "syscall 323 1"),
            ("open_by_handle_at", "syscall 304"),
            ("kexec_load", "syscall 246"),
            ("init_module", "syscall 175"),
            ("reboot", "syscall 169"),
            ("swapon", "syscall 167"),
            ("acct", "syscall 163"),
            ("syslog", "syscall 103"),
            ("clock_settime", "syscall 227"),
            ("personality", "syscall 135 0x40000"),
            ("sethostname", "syscall 170"),
            ("ptrace", "syscall 101"),
        ];
        for (label, answer) in each(&probes) {
            assert_eq!(answer, "EPERM", "{label}");
        }
        let allowed = [
            ("getpid", "syscall 39"),
            ("personality", "syscall 135 0xffffffff"),
        ];
        for (label, answer) in each(&allowed) {
            assert_eq!(answer, "ok", "{label}");
        }
        assert_eq!(each(&[("clone3", "syscall 435")])[0].1, "ENOSYS");
        assert_eq!(each(&[("unknown", "syscall 999")])[0].1, "ENOSYS");
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn other_calling_conventions_end_the_process() {
    let sigsys = Outcome::Failed(Failure::Signal(31));
    assert_eq!(Box::probe(&["int80"]).run().outcome, sigsys);
    assert_eq!(Box::probe(&["syscall", "0x40000027"]).run().outcome, sigsys);
}

#[test]
fn only_sockets_that_stay_inside_are_made() {
    as_each_user("kernel::only_sockets_that_stay_inside_are_made", || {
        let probes = [
            ("vsock", "socket 40 1 0"),
            ("packet", "socket 17 3 768"),
            ("alg", "socket 38 5 0"),
            ("netfilter", "socket 16 3 12"),
            ("audit", "socket 16 3 9"),
            ("rds", "socket 21 5 0"),
            ("tipc", "socket 30 1 0"),
            ("bluetooth", "socket 31 1 0"),
            ("xdp", "socket 44 3 0"),
        ];
        for (label, answer) in each(&probes) {
            assert_eq!(answer, "EAFNOSUPPORT", "{label}");
        }
        assert_eq!(each(&[("raw", "socket 2 3 1")])[0].1, "EPERM");
        let allowed = [
            ("unix", "socket 1 1 0"),
            ("tcp", "socket 2 1 6"),
            ("udp6", "socket 10 2 17"),
            ("route", "socket 16 3 0"),
        ];
        for (label, answer) in each(&allowed) {
            assert_eq!(answer, "ok", "{label}");
        }
    });
}

#[test]
fn settings_of_the_kernel_cannot_be_written() {
    as_each_user("kernel::settings_of_the_kernel_cannot_be_written", || {
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sysrq-trigger",
            "/proc/self/oom_score_adj_no",
            "/sys/kernel/uevent_helper",
            "/sys/fs/cgroup/cgroup.procs",
        ] {
            let answer = Box::probe(&["open", path, "w"]).output();
            let is_refused =
                ["EACCES\n", "ENOENT\n", "EROFS\n", "EPERM\n"].contains(&answer.as_str());
            assert!(is_refused, "{path}: {answer}");
        }
        assert_eq!(
            Box::probe(&["open", "/proc/sys/kernel/ostype", "r"]).output(),
            "ok\n"
        );
    });
}

#[test]
fn what_tells_about_the_machine_cannot_be_read() {
    for path in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/kmsg",
        "/proc/timer_list",
        "/proc/kallsyms",
    ] {
        let answer = Box::probe(&["open", path, "r"]).output();
        assert!(
            answer == "EACCES\n" || answer == "ENOENT\n",
            "{path}: {answer}"
        );
    }
    assert_eq!(Box::probe(&["open", "/proc/meminfo", "r"]).output(), "ok\n");
}

#[test]
fn shared_memory_of_the_host_is_not_there() {
    let output = Box::shell("wc -l < /proc/sysvipc/shm; ls -A /dev/shm").output();
    assert_eq!(output, "1\n");
}
