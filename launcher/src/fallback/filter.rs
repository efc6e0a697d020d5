//! The second system call filter of a sandbox without namespaces: what those would have kept apart.
//!
//! The kernel asks all filters and takes the strictest answer, so this one names only what it adds to
//! [`crate::seccomp`]. A refusal is stricter than a question to the supervisor, and there can be no second listener for
//! questions, so the command cannot answer its own.

use libc::c_long;

use crate::bpf::{
    ALLOW, AND, ERROR, JUMP_IF_ANY_BIT, JUMP_IF_EQUAL, NUMBER_OFFSET, RETURN, argument_low, jump,
    load, skip_unless_equal, statement,
};
use crate::spec::NetworkMode;
use crate::sys::Instruction;

/// Calls that the supervisor makes in the caller's place, or refuses: they change what Landlock does not watch over.
pub(crate) const CHANGES: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_utimensat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// Refused whatever the arguments, and with which error.
const REFUSED: &[(c_long, i32)] = &[
    // Listening would be on the machine's own network.
    (libc::SYS_bind, libc::EPERM),
    (libc::SYS_listen, libc::EPERM),
    // What belongs to a file without being in it, for files that may only be read.
    (libc::SYS_fchown, libc::EPERM),
    (libc::SYS_fchownat, libc::EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chown, libc::EPERM),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_lchown, libc::EPERM),
    (libc::SYS_setxattr, libc::EOPNOTSUPP),
    (libc::SYS_lsetxattr, libc::EOPNOTSUPP),
    (libc::SYS_fsetxattr, libc::EOPNOTSUPP),
    (libc::SYS_removexattr, libc::EOPNOTSUPP),
    (libc::SYS_lremovexattr, libc::EOPNOTSUPP),
    (libc::SYS_fremovexattr, libc::EOPNOTSUPP),
    (SETXATTRAT, libc::EOPNOTSUPP),
    (REMOVEXATTRAT, libc::EOPNOTSUPP),
    (FILE_SETATTR, libc::EOPNOTSUPP),
    // Tells the names of files in folders that cannot be listed.
    (libc::SYS_inotify_add_watch, libc::EPERM),
    // Memory, queues and semaphores of the machine, by number and by name.
    (libc::SYS_shmget, libc::EPERM),
    (libc::SYS_shmat, libc::EPERM),
    (libc::SYS_shmctl, libc::EPERM),
    (libc::SYS_semget, libc::EPERM),
    (libc::SYS_semop, libc::EPERM),
    (libc::SYS_semtimedop, libc::EPERM),
    (libc::SYS_semctl, libc::EPERM),
    (libc::SYS_msgget, libc::EPERM),
    (libc::SYS_msgsnd, libc::EPERM),
    (libc::SYS_msgrcv, libc::EPERM),
    (libc::SYS_msgctl, libc::EPERM),
    (libc::SYS_mq_open, libc::EPERM),
    (libc::SYS_mq_unlink, libc::EPERM),
];

/// Calls that may be about the caller only: the argument that says whom must be 0.
const OWN_ONLY: &[(c_long, u32)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
];

/// Calls that can open a TCP connection on the side (`MSG_FASTOPEN`), and which argument the flags are.
const SENDING: &[(c_long, u32)] = &[
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
];

/// The filter.
pub(crate) fn filter(network: NetworkMode) -> Vec<Instruction> {
    let mut program = vec![load(NUMBER_OFFSET)];
    for number in CHANGES {
        if_call(&mut program, *number, &[ask()]);
    }
    let connect = match network {
        NetworkMode::ProxyOnly => ask(),
        NetworkMode::None => refuse(libc::ENETUNREACH),
    };
    if_call(&mut program, libc::SYS_connect, &[connect]);
    for (number, errno) in REFUSED {
        if_call(&mut program, *number, &[refuse(*errno)]);
    }
    for (number, argument) in OWN_ONLY {
        if_call(&mut program, *number, &own_only(*argument));
    }
    if_call(
        &mut program,
        libc::SYS_setpriority,
        &own_priority(PRIO_PROCESS),
    );
    if_call(
        &mut program,
        libc::SYS_ioprio_set,
        &own_priority(IOPRIO_WHO_PROCESS),
    );
    for (number, flags) in SENDING {
        if_call(&mut program, *number, &sending(*number, *flags));
    }
    if_call(&mut program, libc::SYS_socket, &socket());
    if_call(&mut program, libc::SYS_socketpair, &socketpair());
    if_call(&mut program, libc::SYS_ioctl, &none_of(1, FILE_IOCTLS));
    if_call(&mut program, libc::SYS_fcntl, &none_of(1, FILE_FCNTLS));
    program.push(statement(RETURN, ALLOW));
    program
}

/// TCP sockets only.
fn socket() -> Vec<Instruction> {
    vec![
        load(argument_low(0)),
        jump(JUMP_IF_EQUAL, libc::AF_INET.unsigned_abs(), 1, 0),
        skip_unless_equal(libc::AF_INET6.unsigned_abs(), 7),
        load(argument_low(1)),
        statement(AND, TYPE_MASK),
        skip_unless_equal(libc::SOCK_STREAM.unsigned_abs(), 4),
        load(argument_low(2)),
        jump(JUMP_IF_EQUAL, 0, 1, 0),
        skip_unless_equal(libc::IPPROTO_TCP.unsigned_abs(), 1),
        statement(RETURN, ALLOW),
        refuse(libc::EPERM),
    ]
}

/// Pairs that cannot send to an address: datagrams could, past `connect`.
fn socketpair() -> Vec<Instruction> {
    vec![
        load(argument_low(1)),
        statement(AND, TYPE_MASK),
        jump(JUMP_IF_EQUAL, libc::SOCK_STREAM.unsigned_abs(), 1, 0),
        skip_unless_equal(libc::SOCK_SEQPACKET.unsigned_abs(), 1),
        statement(RETURN, ALLOW),
        refuse(libc::EPERM),
    ]
}

/// No connection on the side, and for `sendto` no address at all.
fn sending(number: c_long, flags: u32) -> Vec<Instruction> {
    let mut body = vec![
        load(argument_low(flags)),
        jump(JUMP_IF_ANY_BIT, libc::MSG_FASTOPEN.unsigned_abs(), 0, 1),
        refuse(libc::EOPNOTSUPP),
    ];
    if number == libc::SYS_sendto {
        body.extend([
            load(argument_low(4)),
            skip_unless_equal(0, 2),
            load(argument_low(4) + 4),
            jump(JUMP_IF_EQUAL, 0, 1, 0),
            refuse(libc::EPERM),
        ]);
    }
    body.push(statement(RETURN, ALLOW));
    body
}

fn own_only(argument: u32) -> Vec<Instruction> {
    vec![
        load(argument_low(argument)),
        skip_unless_equal(0, 1),
        statement(RETURN, ALLOW),
        refuse(libc::EPERM),
    ]
}

/// `setpriority` and `ioprio_set`: of a process, and that the caller.
fn own_priority(kind: u32) -> Vec<Instruction> {
    vec![
        load(argument_low(0)),
        skip_unless_equal(kind, 3),
        load(argument_low(1)),
        skip_unless_equal(0, 1),
        statement(RETURN, ALLOW),
        refuse(libc::EPERM),
    ]
}

fn none_of(argument: u32, refused: &[u32]) -> Vec<Instruction> {
    let mut body = vec![load(argument_low(argument))];
    for value in refused {
        body.extend([skip_unless_equal(*value, 1), refuse(libc::EPERM)]);
    }
    body.push(statement(RETURN, ALLOW));
    body
}

/// Appends what happens to one call; `body` must end with a return.
fn if_call(program: &mut Vec<Instruction>, number: c_long, body: &[Instruction]) {
    let number = u32::try_from(number).expect("system calls have small numbers");
    let length = u8::try_from(body.len()).expect("bodies are a few instructions");
    program.push(skip_unless_equal(number, length));
    program.extend(body);
}

fn ask() -> Instruction {
    statement(RETURN, libc::SECCOMP_RET_USER_NOTIF)
}

fn refuse(errno: i32) -> Instruction {
    statement(RETURN, ERROR | errno.unsigned_abs())
}

/// Flags of files that may only be read, and encryption.
const FILE_IOCTLS: &[u32] = &[
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // FS_IOC32_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4008_7602, // FS_IOC_SETVERSION
];
/// Leases, which hold up the owner's writers, and notices about folders.
const FILE_FCNTLS: &[u32] = &[1024, 1026];
const TYPE_MASK: u32 = 0xf;
const PRIO_PROCESS: u32 = 0;
const IOPRIO_WHO_PROCESS: u32 = 1;
/// `fchmodat2`, Linux 6.6.
pub(crate) const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const FILE_SETATTR: c_long = 469;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::LOAD;

    /// What the filter answers to a call, computed as the kernel would.
    fn call(number: c_long, arguments: [u64; 6]) -> u32 {
        judge(&filter(NetworkMode::ProxyOnly), number, arguments)
    }

    fn judge(program: &[Instruction], number: c_long, arguments: [u64; 6]) -> u32 {
        let (mut at, mut value) = (0_usize, 0_u32);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD if step.operand == NUMBER_OFFSET => value = number as u32,
                LOAD => {
                    let offset = step.operand as usize - 16;
                    value = (arguments[offset / 8] >> (offset % 8 * 8)) as u32;
                }
                AND => value &= step.operand,
                RETURN => return step.operand,
                code => {
                    let holds = match code {
                        JUMP_IF_EQUAL => value == step.operand,
                        JUMP_IF_ANY_BIT => value & step.operand != 0,
                        other => panic!("unknown operation {other:#x}"),
                    };
                    at += usize::from(if holds { step.if_true } else { step.if_false });
                }
            }
        }
    }

    const EPERM: u32 = ERROR | libc::EPERM as u32;
    const ASKED: u32 = libc::SECCOMP_RET_USER_NOTIF;

    #[test]
    fn what_landlock_does_not_watch_over_is_asked_or_refused() {
        assert_eq!(call(libc::SYS_connect, [3, 1, 16, 0, 0, 0]), ASKED);
        for number in CHANGES {
            assert_eq!(call(*number, [0; 6]), ASKED, "{number}");
        }
        for (number, errno) in REFUSED {
            assert_eq!(
                call(*number, [0; 6]),
                ERROR | errno.unsigned_abs(),
                "{number}"
            );
        }
        assert_eq!(call(libc::SYS_openat, [0; 6]), ALLOW);
    }

    #[test]
    fn without_a_network_no_connection_is_asked_for() {
        let program = filter(NetworkMode::None);
        let answer = judge(&program, libc::SYS_connect, [0; 6]);
        assert_eq!(answer, ERROR | libc::ENETUNREACH as u32);
    }

    #[test]
    fn only_tcp_sockets_are_made() {
        let socket =
            |family, kind, protocol| call(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]);
        for family in [2, 10] {
            assert_eq!(socket(family, 1, 0), ALLOW);
            assert_eq!(socket(family, 1 | 0o2_004_000, 6), ALLOW);
            for (kind, protocol) in [(1, 262), (1, 132), (2, 0), (2, 17), (3, 1)] {
                assert_eq!(socket(family, kind, protocol), EPERM);
            }
        }
        for family in [0, 1, 16, 17, 30, 38, 40, 44] {
            assert_eq!(socket(family, 1, 0), EPERM, "{family}");
        }
        assert_eq!(call(libc::SYS_socketpair, [1, 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_socketpair, [1, 5, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_socketpair, [1, 2, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn nothing_is_sent_to_an_address() {
        let fast_open = ERROR | libc::EOPNOTSUPP as u32;
        for (number, flags) in SENDING {
            let mut arguments = [0; 6];
            assert_eq!(call(*number, arguments), ALLOW);
            arguments[*flags as usize] = 0x2000_0000;
            assert_eq!(call(*number, arguments), fast_open);
        }
        for address in [1, 1 << 32] {
            assert_eq!(call(libc::SYS_sendto, [3, 1, 1, 0, address, 16]), EPERM);
        }
    }

    #[test]
    fn what_names_a_process_names_the_caller() {
        for (number, _) in OWN_ONLY {
            assert_eq!(call(*number, [0, 7, 7, 7, 0, 0]), ALLOW);
            assert_eq!(call(*number, [1, 0, 0, 0, 0, 0]), EPERM);
        }
        assert_eq!(call(libc::SYS_setpriority, [0, 0, 5, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_setpriority, [0, 1, 5, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_setpriority, [2, 0, 5, 0, 0, 0]), EPERM);
        assert_eq!(call(libc::SYS_ioprio_set, [1, 0, 5, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_ioprio_set, [3, 0, 5, 0, 0, 0]), EPERM);
    }
}
