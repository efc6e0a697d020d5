//! Which system calls are refused as not permitted, in groups, each with its reason.
//!
//! They are refused by name, and not just left out, so that a program is told what it may not do.

use crate::calls_allowed::Call;
use crate::weaken::Layer;

/// How a refused call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It fails: not permitted.
    NotPermitted,
    /// It fails as in a kernel without it, for calls whose callers then use an older one.
    Missing,
}

use Refusal::{Missing, NotPermitted};

/// Calls that are refused for one reason.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "docs/sandbox.md is held to the words by a test")
)]
pub(crate) struct Refused {
    /// What they are about.
    pub(crate) name: &'static str,
    /// What they would allow.
    pub(crate) reason: &'static str,
    /// The calls, and how each fails.
    pub(crate) calls: &'static [(Call, Refusal)],
    /// The switch of the tests that allows them.
    pub(crate) layer: Layer,
}

/// Refused whatever the arguments.
pub(crate) const REFUSED: &[Refused] = &[
    Refused {
        name: "Namespaces",
        reason: "new namespaces make a process root in them, and with that give access to parts of the kernel that no ordinary program reaches; `clone3` keeps its flags in memory, where a filter cannot read them, so it is as in a kernel without it and the C libraries fall back to `clone`",
        layer: Layer::CallsNamespaces,
        calls: &[
            (("clone3", 435), Missing),
            (("unshare", libc::SYS_unshare), NotPermitted),
            (("setns", libc::SYS_setns), NotPermitted),
        ],
    },
    Refused {
        name: "Mounts",
        reason: "the view is built by mounts; whoever changes them changes what is read-only and what is hidden",
        layer: Layer::CallsMounts,
        calls: &[
            (("mount", libc::SYS_mount), NotPermitted),
            (("umount2", libc::SYS_umount2), NotPermitted),
            (("pivot_root", libc::SYS_pivot_root), NotPermitted),
            (("chroot", libc::SYS_chroot), NotPermitted),
            (("open_tree", 428), NotPermitted),
            (("open_tree_attr", 467), NotPermitted),
            (("move_mount", 429), NotPermitted),
            (("fsopen", 430), NotPermitted),
            (("fsconfig", 431), NotPermitted),
            (("fsmount", 432), NotPermitted),
            (("fspick", 433), NotPermitted),
            (("mount_setattr", 442), NotPermitted),
            (("statmount", 457), Missing),
            (("listmount", 458), Missing),
        ],
    },
    Refused {
        name: "Files by handle",
        reason: "a handle leads to a file around every path and every mount (the \"shocker\" escape)",
        layer: Layer::CallsHandles,
        calls: &[
            (
                ("open_by_handle_at", libc::SYS_open_by_handle_at),
                NotPermitted,
            ),
            (
                ("name_to_handle_at", libc::SYS_name_to_handle_at),
                NotPermitted,
            ),
            (("fanotify_init", libc::SYS_fanotify_init), NotPermitted),
            (("fanotify_mark", libc::SYS_fanotify_mark), NotPermitted),
        ],
    },
    Refused {
        name: "io_uring",
        reason: "does what other calls do, past the filter",
        layer: Layer::CallsIoUring,
        calls: &[
            (("io_uring_setup", 425), NotPermitted),
            (("io_uring_enter", 426), NotPermitted),
            (("io_uring_register", 427), NotPermitted),
        ],
    },
    Refused {
        name: "Keys",
        reason: "the kernel keeps keys per user, not per namespace: two runs could meet there",
        layer: Layer::CallsKeys,
        calls: &[
            (("add_key", libc::SYS_add_key), NotPermitted),
            (("request_key", libc::SYS_request_key), NotPermitted),
            (("keyctl", libc::SYS_keyctl), NotPermitted),
        ],
    },
    Refused {
        name: "Other processes",
        reason: "reading, writing or stopping another process; what a debugger needs",
        layer: Layer::CallsOthers,
        calls: &[
            (("ptrace", libc::SYS_ptrace), NotPermitted),
            (
                ("process_vm_readv", libc::SYS_process_vm_readv),
                NotPermitted,
            ),
            (
                ("process_vm_writev", libc::SYS_process_vm_writev),
                NotPermitted,
            ),
            (("process_madvise", 440), NotPermitted),
            (("process_mrelease", 448), NotPermitted),
            (("pidfd_getfd", 438), NotPermitted),
            (("kcmp", libc::SYS_kcmp), NotPermitted),
        ],
    },
    Refused {
        name: "Large or racy parts of the kernel",
        reason: "found vulnerable again and again, and used by very few programs",
        layer: Layer::CallsKernel,
        calls: &[
            (("bpf", libc::SYS_bpf), NotPermitted),
            (("perf_event_open", libc::SYS_perf_event_open), NotPermitted),
            (("userfaultfd", libc::SYS_userfaultfd), NotPermitted),
            (("vmsplice", libc::SYS_vmsplice), NotPermitted),
            (("mbind", libc::SYS_mbind), NotPermitted),
            (("set_mempolicy", libc::SYS_set_mempolicy), NotPermitted),
            (("set_mempolicy_home_node", 450), NotPermitted),
            (("migrate_pages", libc::SYS_migrate_pages), NotPermitted),
            (("move_pages", libc::SYS_move_pages), NotPermitted),
            #[cfg(target_arch = "x86_64")]
            (("modify_ldt", libc::SYS_modify_ldt), NotPermitted),
            (("lookup_dcookie", libc::SYS_lookup_dcookie), NotPermitted),
        ],
    },
    Refused {
        name: "The machine",
        reason: "its clock, name, modules, swap, log, accounting and power are nobody's but the administrator's",
        layer: Layer::CallsMachine,
        calls: &[
            (("kexec_load", libc::SYS_kexec_load), NotPermitted),
            #[cfg(target_arch = "x86_64")]
            (("kexec_file_load", libc::SYS_kexec_file_load), NotPermitted),
            (("init_module", libc::SYS_init_module), NotPermitted),
            (("finit_module", libc::SYS_finit_module), NotPermitted),
            (("delete_module", libc::SYS_delete_module), NotPermitted),
            (("reboot", libc::SYS_reboot), NotPermitted),
            (("swapon", libc::SYS_swapon), NotPermitted),
            (("swapoff", libc::SYS_swapoff), NotPermitted),
            (("acct", libc::SYS_acct), NotPermitted),
            (("syslog", libc::SYS_syslog), NotPermitted),
            (("vhangup", libc::SYS_vhangup), NotPermitted),
            (("settimeofday", libc::SYS_settimeofday), NotPermitted),
            (("clock_settime", libc::SYS_clock_settime), NotPermitted),
            (("adjtimex", libc::SYS_adjtimex), NotPermitted),
            (("clock_adjtime", libc::SYS_clock_adjtime), NotPermitted),
            (("sethostname", libc::SYS_sethostname), NotPermitted),
            (("setdomainname", libc::SYS_setdomainname), NotPermitted),
            (("quotactl", libc::SYS_quotactl), NotPermitted),
            (("quotactl_fd", 443), NotPermitted),
            (("nfsservctl", libc::SYS_nfsservctl), NotPermitted),
            #[cfg(target_arch = "x86_64")]
            (("iopl", libc::SYS_iopl), NotPermitted),
            #[cfg(target_arch = "x86_64")]
            (("ioperm", libc::SYS_ioperm), NotPermitted),
        ],
    },
];
