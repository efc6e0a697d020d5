//! Which system calls the command may make: everything but what is listed here.
//!
//! The list names what reaches parts of the kernel that namespaces do not divide, or that only matters to
//! administration. It is a list of refusals because the commands are not known; a system call newer than the last one
//! reviewed is treated as one the kernel does not have.

use libc::c_long;

use crate::bpf::{
    ALLOW, AND, ARCHITECTURE, ARCHITECTURE_OFFSET, ERROR, JUMP_IF_ANY_BIT, JUMP_IF_AT_LEAST,
    JUMP_IF_EQUAL, JUMP_IF_GREATER, KILL_PROCESS, NUMBER_OFFSET, RETURN, argument_low, jump, load,
    skip_unless_equal, statement,
};
use crate::sys::Instruction;

/// How a refused call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It fails: not permitted.
    NotPermitted,
    /// It fails as in a kernel without it, for calls whose callers then use an older one.
    Missing,
}

use Refusal::{Missing, NotPermitted};

/// Refused whatever the arguments.
const REFUSED: &[(c_long, Refusal)] = &[
    // Hides its flags in memory, where a filter cannot read them. The C libraries fall back to clone.
    (libc::SYS_clone3, Missing),
    // New namespaces, and the way into others.
    (libc::SYS_unshare, NotPermitted),
    (libc::SYS_setns, NotPermitted),
    // Mounts.
    (libc::SYS_mount, NotPermitted),
    (libc::SYS_umount2, NotPermitted),
    (libc::SYS_pivot_root, NotPermitted),
    (libc::SYS_chroot, NotPermitted),
    (libc::SYS_open_tree, NotPermitted),
    (libc::SYS_move_mount, NotPermitted),
    (libc::SYS_fsopen, NotPermitted),
    (libc::SYS_fsconfig, NotPermitted),
    (libc::SYS_fsmount, NotPermitted),
    (libc::SYS_fspick, NotPermitted),
    (libc::SYS_mount_setattr, NotPermitted),
    (OPEN_TREE_ATTR, NotPermitted),
    (libc::SYS_quotactl, NotPermitted),
    (libc::SYS_quotactl_fd, NotPermitted),
    // Files by handle lead around every path (the "shocker" escape).
    (libc::SYS_open_by_handle_at, NotPermitted),
    (libc::SYS_name_to_handle_at, NotPermitted),
    (libc::SYS_fanotify_init, NotPermitted),
    // Does what the other calls do, past the filter.
    (libc::SYS_io_uring_setup, NotPermitted),
    (libc::SYS_io_uring_enter, NotPermitted),
    (libc::SYS_io_uring_register, NotPermitted),
    // Keys are kept per user, not per namespace.
    (libc::SYS_add_key, NotPermitted),
    (libc::SYS_request_key, NotPermitted),
    (libc::SYS_keyctl, NotPermitted),
    // Other processes.
    (libc::SYS_ptrace, NotPermitted),
    (libc::SYS_process_vm_readv, NotPermitted),
    (libc::SYS_process_vm_writev, NotPermitted),
    (libc::SYS_process_madvise, NotPermitted),
    (libc::SYS_pidfd_getfd, NotPermitted),
    (libc::SYS_kcmp, NotPermitted),
    // Large, privileged or racy parts of the kernel.
    (libc::SYS_bpf, NotPermitted),
    (libc::SYS_perf_event_open, NotPermitted),
    (libc::SYS_userfaultfd, NotPermitted),
    (libc::SYS_vmsplice, NotPermitted),
    (libc::SYS_mbind, NotPermitted),
    (libc::SYS_migrate_pages, NotPermitted),
    (libc::SYS_move_pages, NotPermitted),
    (libc::SYS_set_mempolicy, NotPermitted),
    (libc::SYS_set_mempolicy_home_node, NotPermitted),
    // The machine.
    (libc::SYS_kexec_load, NotPermitted),
    (libc::SYS_kexec_file_load, NotPermitted),
    (libc::SYS_init_module, NotPermitted),
    (libc::SYS_finit_module, NotPermitted),
    (libc::SYS_delete_module, NotPermitted),
    (libc::SYS_reboot, NotPermitted),
    (libc::SYS_swapon, NotPermitted),
    (libc::SYS_swapoff, NotPermitted),
    (libc::SYS_acct, NotPermitted),
    (libc::SYS_syslog, NotPermitted),
    (libc::SYS_vhangup, NotPermitted),
    (libc::SYS_settimeofday, NotPermitted),
    (libc::SYS_clock_settime, NotPermitted),
    (libc::SYS_adjtimex, NotPermitted),
    (libc::SYS_clock_adjtime, NotPermitted),
    (libc::SYS_sethostname, NotPermitted),
    (libc::SYS_setdomainname, NotPermitted),
    (libc::SYS_lookup_dcookie, NotPermitted),
    (libc::SYS_nfsservctl, NotPermitted),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_iopl, NotPermitted),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_ioperm, NotPermitted),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_modify_ldt, NotPermitted),
];

/// Terminal requests that put input into a terminal or change what it is. Only the low 32 bits count: the kernel
/// ignores the others (CVE-2019-10063).
const REFUSED_IOCTLS: &[u32] = &[
    0x5412, // TIOCSTI: types into the terminal
    0x541c, // TIOCLINUX: pastes into the console
    0x541d, // TIOCCONS: redirects the console
    0x5423, // TIOCSETD: loads a line discipline
];

/// `clone` flags that make namespaces: mount, cgroup, uts, ipc, user, pid, net.
const NAMESPACE_FLAGS: u32 =
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// The highest system call that was reviewed for this list (`file_setattr`, Linux 6.17).
const LAST_REVIEWED: u32 = 469;

/// What is refused in some sandboxes only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Also {
    /// Choosing processors, where that is how the `cpus` limit is kept.
    pub(crate) processors: bool,
    /// Making set-user-id and set-group-id files, where files outlive the sandbox: they would run as the owner, for
    /// anybody on the host.
    pub(crate) set_id: bool,
    /// Memory that belongs to no process and no file system, where the memory limit is kept by watching those.
    pub(crate) unseen_memory: bool,
}

/// The filter.
pub(crate) fn filter(also: Also) -> Vec<Instruction> {
    let mut program = Program::default();
    program.refuse_other_architectures();
    for (number, refusal) in REFUSED {
        program.if_call(*number, &[answer(*refusal)]);
    }
    if also.processors {
        program.if_call(libc::SYS_sched_setaffinity, &[answer(NotPermitted)]);
    }
    if also.unseen_memory {
        for number in [
            libc::SYS_memfd_create,
            libc::SYS_memfd_secret,
            libc::SYS_shmget,
        ] {
            program.if_call(number, &[answer(Missing)]);
        }
    }
    if also.set_id {
        for (number, mode) in CHANGE_MODE {
            program.if_call(*number, &with_set_id(*mode));
        }
        for (number, flags) in OPEN {
            program.if_call(*number, &created_with_set_id(*flags));
        }
        // Its mode lies in memory, where a filter cannot read it; callers fall back to `openat`.
        program.if_call(libc::SYS_openat2, &[answer(Missing)]);
    }
    program.if_call(libc::SYS_ioctl, &ioctl());
    program.if_call(libc::SYS_clone, &clone());
    program.if_call(libc::SYS_personality, &personality());
    program.if_call(libc::SYS_socket, &socket());
    program.if_call(libc::SYS_socketpair, &socketpair());
    program.push(statement(RETURN, ALLOW));
    program.instructions
}

/// Calls that set a file's mode, and which argument that is.
const CHANGE_MODE: &[(c_long, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Calls that open a file, and which argument the flags are; the mode follows.
const OPEN: &[(c_long, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

fn with_set_id(mode: u32) -> Vec<Instruction> {
    vec![
        load(argument_low(mode)),
        jump(JUMP_IF_ANY_BIT, SET_ID, 0, 1),
        answer(NotPermitted),
        statement(RETURN, ALLOW),
    ]
}

/// Where no file is made there is no mode, and the argument may hold anything.
fn created_with_set_id(flags: u32) -> Vec<Instruction> {
    // O_TMPFILE holds O_DIRECTORY too, which makes nothing by itself.
    let makes = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
    let mut body = vec![
        load(argument_low(flags)),
        jump(JUMP_IF_ANY_BIT, makes, 1, 0),
        statement(RETURN, ALLOW),
    ];
    body.extend(with_set_id(flags + 1));
    body
}

fn ioctl() -> Vec<Instruction> {
    let mut body = vec![load(argument_low(1))];
    for request in REFUSED_IOCTLS {
        body.extend([skip_unless_equal(*request, 1), answer(NotPermitted)]);
    }
    body.push(statement(RETURN, ALLOW));
    body
}

fn clone() -> Vec<Instruction> {
    vec![
        load(argument_low(0)),
        jump(JUMP_IF_ANY_BIT, NAMESPACE_FLAGS, 0, 1),
        answer(NotPermitted),
        statement(RETURN, ALLOW),
    ]
}

/// Only asking (all ones) and the ordinary one (0) are allowed: the others turn off address randomisation.
fn personality() -> Vec<Instruction> {
    vec![
        load(argument_low(0)),
        skip_unless_equal(0, 1),
        statement(RETURN, ALLOW),
        skip_unless_equal(u32::MAX, 1),
        statement(RETURN, ALLOW),
        answer(NotPermitted),
    ]
}

/// Unix sockets, TCP and UDP over IPv4 and IPv6, and netlink's `ROUTE`, which programs use to list interfaces.
///
/// Others reach past the network namespace (vsock) or are large and rarely used.
fn socket() -> Vec<Instruction> {
    const UNIX: u32 = 1;
    const INET: u32 = 2;
    const INET6: u32 = 10;
    const NETLINK: u32 = 16;
    const STREAM: u32 = 1;
    const DATAGRAM: u32 = 2;
    const RAW: u32 = 3;
    const TYPE_MASK: u32 = 0xf;
    let allow = statement(RETURN, ALLOW);
    let family_refused = statement(RETURN, ERROR | libc::EAFNOSUPPORT as u32);
    let protocol_refused = statement(RETURN, ERROR | libc::EPROTONOSUPPORT as u32);
    vec![
        load(argument_low(0)),
        skip_unless_equal(UNIX, 1),
        allow,
        skip_unless_equal(NETLINK, 4),
        load(argument_low(2)),
        skip_unless_equal(0, 1), // NETLINK_ROUTE
        allow,
        family_refused,
        jump(JUMP_IF_EQUAL, INET, 2, 0),
        jump(JUMP_IF_EQUAL, INET6, 1, 0),
        family_refused,
        load(argument_low(1)),
        statement(AND, TYPE_MASK),
        skip_unless_equal(RAW, 1),
        answer(NotPermitted),
        skip_unless_equal(STREAM, 5),
        load(argument_low(2)),
        jump(JUMP_IF_EQUAL, 0, 1, 0),
        skip_unless_equal(libc::IPPROTO_TCP as u32, 1),
        allow,
        protocol_refused,
        skip_unless_equal(DATAGRAM, 4),
        load(argument_low(2)),
        jump(JUMP_IF_EQUAL, 0, 1, 0),
        skip_unless_equal(libc::IPPROTO_UDP as u32, 1),
        allow,
        protocol_refused,
    ]
}

fn socketpair() -> Vec<Instruction> {
    vec![
        load(argument_low(0)),
        skip_unless_equal(1, 1),
        statement(RETURN, ALLOW),
        statement(RETURN, ERROR | libc::EAFNOSUPPORT as u32),
    ]
}

#[derive(Default)]
struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    /// A call through another calling convention would have other numbers, so it ends the process.
    fn refuse_other_architectures(&mut self) {
        self.push(load(ARCHITECTURE_OFFSET));
        self.push(jump(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0));
        self.push(statement(RETURN, KILL_PROCESS));
        self.push(load(NUMBER_OFFSET));
        // x32: the 64-bit architecture with 32-bit numbers, marked by bit 30.
        self.push(jump(JUMP_IF_AT_LEAST, 0x4000_0000, 0, 1));
        self.push(statement(RETURN, KILL_PROCESS));
        self.push(jump(JUMP_IF_GREATER, LAST_REVIEWED, 0, 1));
        self.push(answer(Missing));
    }

    /// Appends what happens to one call; `body` must end with a return.
    fn if_call(&mut self, number: c_long, body: &[Instruction]) {
        let number = u32::try_from(number).expect("system calls have small numbers");
        let length = u8::try_from(body.len()).expect("bodies are a few instructions");
        self.push(jump(JUMP_IF_EQUAL, number, 0, length));
        self.instructions.extend(body);
    }

    fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }
}

fn answer(refusal: Refusal) -> Instruction {
    let number = match refusal {
        NotPermitted => libc::EPERM,
        Missing => libc::ENOSYS,
    };
    statement(RETURN, ERROR | number as u32)
}

const OPEN_TREE_ATTR: c_long = 467;
const FCHMODAT2: c_long = 452;
/// `S_ISUID | S_ISGID`.
const SET_ID: u32 = 0o6000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::LOAD;

    /// What the filter answers to a call, computed as the kernel would.
    fn run(architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
        let everything = Also {
            processors: true,
            set_id: true,
            unseen_memory: true,
        };
        judge(&filter(everything), architecture, number, arguments)
    }

    fn judge(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
        let (mut at, mut value) = (0_usize, 0_u32);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD => {
                    value = match step.operand {
                        0 => number,
                        4 => architecture,
                        offset => arguments[(offset as usize - 16) / 8] as u32,
                    }
                }
                AND => value &= step.operand,
                RETURN => return step.operand,
                code => {
                    let holds = match code {
                        JUMP_IF_EQUAL => value == step.operand,
                        JUMP_IF_GREATER => value > step.operand,
                        JUMP_IF_AT_LEAST => value >= step.operand,
                        JUMP_IF_ANY_BIT => value & step.operand != 0,
                        other => panic!("unknown operation {other:#x}"),
                    };
                    at += usize::from(if holds { step.if_true } else { step.if_false });
                }
            }
        }
    }

    fn call(number: c_long, arguments: [u64; 4]) -> u32 {
        run(ARCHITECTURE, number as u32, arguments)
    }

    const EPERM: u32 = ERROR | libc::EPERM as u32;

    #[test]
    fn reading_and_writing_are_allowed() {
        assert_eq!(call(libc::SYS_read, [0; 4]), ALLOW);
        assert_eq!(call(libc::SYS_write, [0; 4]), ALLOW);
    }

    #[test]
    fn every_listed_call_is_refused() {
        for (number, refusal) in REFUSED {
            assert_eq!(call(*number, [0; 4]), answer(*refusal).operand, "{number}");
        }
    }

    #[test]
    fn another_architecture_ends_the_process() {
        assert_eq!(run(0x4000_0003, 20, [0; 4]), KILL_PROCESS);
        assert_eq!(run(ARCHITECTURE, 0x4000_0027, [0; 4]), KILL_PROCESS);
    }

    #[test]
    fn a_call_nobody_reviewed_is_missing() {
        assert_eq!(call(470, [0; 4]), ERROR | libc::ENOSYS as u32);
        assert_eq!(call(469, [0; 4]), ALLOW);
    }

    #[test]
    fn high_bits_do_not_hide_a_terminal_request() {
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5412, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5412 | 1 << 32, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5413, 0, 0]), ALLOW);
    }

    #[test]
    fn clone_makes_processes_and_no_namespaces() {
        assert_eq!(call(libc::SYS_clone, [0x1000_0011, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_clone, [0x0001_0f11, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn no_set_user_id_file_is_made_and_other_modes_are_free() {
        let made = u64::from(libc::O_CREAT.unsigned_abs());
        let temporary = u64::from(libc::O_TMPFILE.unsigned_abs());
        for bits in [0o4755, 0o2755, 0o6000] {
            assert_eq!(call(libc::SYS_fchmod, [3, bits, 0, 0]), EPERM);
            assert_eq!(call(libc::SYS_fchmodat, [3, 0, bits, 0]), EPERM);
            assert_eq!(call(FCHMODAT2, [3, 0, bits, 0]), EPERM);
            assert_eq!(call(libc::SYS_mknodat, [3, 0, bits, 0]), EPERM);
            assert_eq!(call(libc::SYS_openat, [3, 0, made, bits]), EPERM);
            assert_eq!(call(libc::SYS_openat, [3, 0, temporary, bits]), EPERM);
            // Nothing is made: what stands in the place of the mode is no mode.
            assert_eq!(call(libc::SYS_openat, [3, 0, 0, bits]), ALLOW);
        }
        assert_eq!(call(libc::SYS_fchmod, [3, 0o1777, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_openat, [3, 0, made, 0o755]), ALLOW);
    }

    #[test]
    fn what_matters_in_some_sandboxes_is_free_in_others() {
        let plain = filter(Also {
            processors: false,
            set_id: false,
            unseen_memory: false,
        });
        for number in [
            libc::SYS_sched_setaffinity,
            libc::SYS_memfd_create,
            libc::SYS_openat2,
        ] {
            let arguments = [0; 4];
            assert_eq!(judge(&plain, ARCHITECTURE, number as u32, arguments), ALLOW);
            assert_ne!(call(number, arguments), ALLOW);
        }
    }

    #[test]
    fn only_unix_tcp_udp_and_route_sockets_are_made() {
        let socket = |family, kind, protocol| call(libc::SYS_socket, [family, kind, protocol, 0]);
        let family_refused = ERROR | libc::EAFNOSUPPORT as u32;
        let protocol_refused = ERROR | libc::EPROTONOSUPPORT as u32;
        for family in [2, 10] {
            assert_eq!(socket(family, 1 | 0o2_000_000, 6), ALLOW);
            assert_eq!(socket(family, 1, 0), ALLOW);
            assert_eq!(socket(family, 2, 17), ALLOW);
            assert_eq!(socket(family, 2, 0), ALLOW);
            assert_eq!(socket(family, 3, 1), EPERM);
            assert_eq!(socket(family, 3 | 0o2_000_000, 255), EPERM);
            assert_eq!(socket(family, 1, 132), protocol_refused);
            assert_eq!(socket(family, 2, 1), protocol_refused);
            assert_eq!(socket(family, 5, 0), protocol_refused);
        }
        assert_eq!(socket(1, 1, 0), ALLOW);
        assert_eq!(socket(16, 3, 0), ALLOW);
        assert_eq!(socket(16, 3, 12), family_refused);
        for family in [17, 21, 30, 31, 38, 40, 44] {
            assert_eq!(socket(family, 1, 0), family_refused, "{family}");
        }
        assert_eq!(call(libc::SYS_socketpair, [30, 1, 0, 0]), family_refused);
        assert_eq!(call(libc::SYS_socketpair, [1, 1, 0, 0]), ALLOW);
    }
}
