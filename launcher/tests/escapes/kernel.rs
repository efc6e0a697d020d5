//! C: parts of the kernel that namespaces do not divide.

use launcher::Layer::{
    Calls, CallsHandles, CallsIoUring, CallsKernel, CallsKeys, CallsMachine, CallsMounts,
    CallsNamespaces, CallsOtherAbis, CallsPersonality, CallsSockets, CallsUnknown, Capabilities,
    HostName, IpcNamespace, Landlock, NestedUsers,
};

use super::{Open, Way, as_both, attempt, is_one_of, sandbox, try_all};

#[test]
#[cfg(target_arch = "x86_64")]
fn no_way_leads_around_the_filter() {
    try_all(
        "escapes::kernel::no_way_leads_around_the_filter",
        &[
            Way {
                row: "C1, 20: io_uring",
                line: "./escape ring",
                closed: &["EPERM"],
                layers: &[CallsIoUring],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C2, 37: int 0x80",
                line: "exec ./probe int80",
                closed: &["signal 31"],
                layers: &[CallsOtherAbis],
                // A process id; a kernel without the 32-bit convention ends it otherwise.
                open: Open::Answers(&["2", "signal 11"]),
            },
            Way {
                row: "C2, 38: x32",
                line: "exec ./probe syscall 0x40000027",
                closed: &["signal 31"],
                layers: &[CallsOtherAbis],
                open: Open::Answers(&["ok", "ENOSYS"]),
            },
            Way {
                row: "C9: a filter on every thread",
                line: "./escape filters",
                closed: &["2 2"],
                layers: &[Calls],
                open: Open::Answers(&["0 0"]),
            },
            Way {
                row: "C: calls that nobody has reviewed",
                // uselib, long dead: the kernel's own answer differs where it still knows it.
                line: "./probe syscall 134",
                closed: &["ENOSYS"],
                layers: &[CallsUnknown],
                open: Open::Answers(&["EFAULT", "ENOSYS"]),
            },
            Way {
                row: "C: calls that nobody has reviewed",
                // sysfs(3): how many file systems the kernel knows.
                line: "./probe syscall 139 3",
                closed: &["ENOSYS"],
                layers: &[CallsUnknown],
                open: Open::Answers(&["ok", "ENOSYS"]),
            },
        ],
    );
}

#[test]
fn no_namespace_is_made_or_entered() {
    try_all(
        "escapes::kernel::no_namespace_is_made_or_entered",
        &[
            Way {
                row: "C4, 22: unshare(NEWUSER)",
                line: "./escape unshare 0x10000000",
                closed: &["EPERM"],
                layers: &[CallsNamespaces, NestedUsers],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C3, 23: clone3(NEWUSER)",
                line: "./escape clone3 0x10000000",
                closed: &["ENOSYS"],
                layers: &[CallsNamespaces, NestedUsers],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C4: the kernel's own limit",
                line: "cat /proc/sys/user/max_user_namespaces",
                closed: &["0"],
                layers: &[NestedUsers],
                open: Open::Answers(&["1*", "2*", "3*", "4*", "5*", "6*", "7*", "8*", "9*"]),
            },
            Way {
                row: "C7, 48: setns",
                line: "./escape setns /proc/self/ns/uts",
                closed: &["EPERM"],
                layers: &[CallsNamespaces, Capabilities],
                open: Open::Answers(&["ok"]),
            },
        ],
    );
}

#[test]
fn nesting_is_refused_by_the_filter_and_by_the_kernels_limit_each_alone() {
    as_both(
        "escapes::kernel::nesting_is_refused_by_the_filter_and_by_the_kernels_limit_each_alone",
        || {
            let nest = |off| attempt("./escape unshare 0x10000000", off);
            assert_eq!(nest(&[NestedUsers]), "EPERM");
            assert_eq!(nest(&[CallsNamespaces]), "ENOSPC");
        },
    );
}

#[test]
fn no_mount_is_changed() {
    try_all(
        "escapes::kernel::no_mount_is_changed",
        &[
            Way {
                row: "C7: a mount of one's own",
                line: "./escape tmpfs /tmp",
                closed: &["EPERM"],
                layers: &[CallsMounts, Capabilities, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C7, 28: umount",
                line: "./escape umount /dev/shm",
                closed: &["EPERM"],
                layers: &[CallsMounts, Capabilities, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "D1, 27: a read-only mount made writable",
                line: "./escape remount /proc/sys",
                closed: &["EPERM"],
                layers: &[CallsMounts, Capabilities, Landlock],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C7, 30: chroot",
                line: "./escape chroot /tmp",
                closed: &["EPERM"],
                layers: &[CallsMounts, Capabilities],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C6, 31: a file's handle",
                line: "./escape handle /usr",
                closed: &["EPERM"],
                layers: &[CallsHandles],
                open: Open::Answers(&["ok"]),
            },
        ],
    );
}

#[test]
fn what_the_machine_shares_is_out_of_reach() {
    try_all(
        "escapes::kernel::what_the_machine_shares_is_out_of_reach",
        &[
            Way {
                row: "C6, 50: personality",
                line: "./escape personality",
                closed: &["EPERM"],
                layers: &[CallsPersonality],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C6, 34: userfaultfd",
                line: "./probe syscall 323 1",
                closed: &["EPERM"],
                layers: &[CallsKernel],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "44: the host's name",
                line: "hostname",
                closed: &["sandbox"],
                layers: &[HostName],
                open: Open::Answers(&["*"]),
            },
            Way {
                row: "44: sethostname",
                line: "./escape name",
                closed: &["EPERM"],
                layers: &[CallsMachine, Capabilities],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C8, 16: vsock",
                line: "./probe socket 40 1 0",
                closed: &["EAFNOSUPPORT"],
                layers: &[CallsSockets],
                // A kernel without it answers like the filter.
                open: Open::Answers(&["ok", "ENODEV", "EAFNOSUPPORT"]),
            },
            Way {
                row: "C8, 19: netlink to the packet filter",
                line: "./probe socket 16 3 12",
                closed: &["EAFNOSUPPORT"],
                layers: &[CallsSockets],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C8, 17: packets as they are",
                line: "./probe socket 17 3 768",
                closed: &["EAFNOSUPPORT"],
                layers: &[CallsSockets, Capabilities],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "E2: ICMP",
                line: "./probe socket 2 3 1",
                closed: &["EPERM"],
                layers: &[CallsSockets, Capabilities],
                open: Open::Answers(&["ok"]),
            },
            Way {
                row: "C8, 18: the kernel's ciphers",
                line: "./probe socket 38 5 0",
                closed: &["EAFNOSUPPORT"],
                layers: &[CallsSockets],
                open: Open::Answers(&["ok", "EAFNOSUPPORT"]),
            },
            Way {
                row: "E9, 19b: TIPC, RDS, Bluetooth, XDP",
                line: "echo $(for f in '30 1' '21 5' '31 1' '44 3'; do ./probe socket $f 0; done)",
                closed: &["EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT"],
                layers: &[CallsSockets, Capabilities],
                open: Open::Answers(&["*"]),
            },
        ],
    );
}

#[test]
fn two_runs_do_not_meet_in_the_keyring() {
    as_both(
        "escapes::kernel::two_runs_do_not_meet_in_the_keyring",
        || {
            assert_eq!(attempt("./escape key a", &[]), "EPERM", "C5, 21");
            assert_eq!(attempt("./escape findkey a", &[]), "EPERM", "C5, 21");
            assert_eq!(attempt("./escape key b", &[CallsKeys]), "ok", "C5, 21");
            // What was a leak before Linux 5.3: since then, each user namespace has a keyring of its own as well.
            let found = attempt("./escape findkey b", &[CallsKeys]);
            assert!(is_one_of(&found, &["ENOKEY", "ok"]), "C5, 21: {found}");
        },
    );
}

#[test]
fn shared_memory_of_the_host_is_seen_only_without_the_namespace() {
    as_both(
        "escapes::kernel::shared_memory_of_the_host_is_seen_only_without_the_namespace",
        || {
            // Made without the namespace, so that the host has one.
            let made = attempt("ipcmk -M 4096 | tr -dc 0-9", &[IpcNamespace]);
            let listed = "tail -n +2 /proc/sysvipc/shm | grep -c .";
            let (closed, open) = (attempt(listed, &[]), attempt(listed, &[IpcNamespace]));
            let gone = sandbox(&format!("ipcrm -m {made}"), &[IpcNamespace]).run();
            assert_eq!(closed, "0", "43");
            assert_ne!(open, "0", "43");
            drop(gone);
        },
    );
}
