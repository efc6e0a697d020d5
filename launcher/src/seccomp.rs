//! The system call filter: an allowlist.
//!
//! [`ALLOWED`] is allowed, some of it by its arguments; [`REFUSED`] fails as not permitted; every other call, such as one
//! that a later kernel has, fails as in a kernel without it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock, PoisonError};

use libc::c_long;

use crate::bpf::{
    ALLOW, AND, ARCHITECTURE, ARCHITECTURE_OFFSET, ERROR, JUMP, JUMP_IF_ANY_BIT, JUMP_IF_AT_LEAST,
    JUMP_IF_EQUAL, KILL_PROCESS, NUMBER_OFFSET, RETURN, argument_low, jump, load,
    skip_unless_equal, statement,
};
use crate::calls_allowed::ALLOWED;
use crate::calls_refused::{REFUSED, Refusal};
use crate::sys::Instruction;
use crate::weaken::{Layer, Weaken};

use Refusal::{Missing, NotPermitted};

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

/// What is refused in some sandboxes only.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub(crate) struct Also {
    /// Choosing processors, where that is how the `cpus` limit is kept.
    pub(crate) processors: bool,
    /// Making set-user-id and set-group-id files, where files outlive the sandbox: they would run as the owner, for
    /// anybody on the host.
    pub(crate) set_id: bool,
    /// Memory that belongs to no process and no file system, where the memory limit is kept by watching those.
    pub(crate) unseen_memory: bool,
}

/// The filter. Each kind is worked out once.
pub(crate) fn filter(also: Also, weaken: Weaken) -> Vec<Instruction> {
    type Made = HashMap<(Also, Weaken), Vec<Instruction>>;
    static MADE: OnceLock<Mutex<Made>> = OnceLock::new();
    let made = MADE.get_or_init(Mutex::default);
    // It is whole after each operation, so a panic elsewhere does not spoil it.
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    let filter = made
        .entry((also, weaken))
        .or_insert_with(|| program(also, weaken));
    filter.clone()
}

fn program(also: Also, weaken: Weaken) -> Vec<Instruction> {
    let mut calls = Calls::new(weaken);
    if also.processors {
        calls.refuse(libc::SYS_sched_setaffinity, NotPermitted);
    }
    if also.unseen_memory {
        for number in [
            libc::SYS_memfd_create,
            libc::SYS_memfd_secret,
            libc::SYS_shmget,
        ] {
            calls.refuse(number, Missing);
        }
    }
    if also.set_id {
        for (number, mode) in CHANGE_MODE {
            calls.judge(*number, with_set_id(*mode));
        }
        for (number, flags) in OPEN {
            calls.judge(*number, created_with_set_id(*flags));
        }
        // Its mode lies in memory, where a filter cannot read it; callers fall back to `openat`.
        calls.refuse(libc::SYS_openat2, Missing);
    }
    calls.program(weaken)
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

/// What happens to each call that is not missing.
struct Calls {
    // By number: the instructions that end with the answer.
    answers: BTreeMap<u32, Vec<Instruction>>,
}

impl Calls {
    fn new(weaken: Weaken) -> Self {
        let mut calls = Self {
            answers: BTreeMap::new(),
        };
        for (_, number) in ALLOWED.iter().flat_map(|group| group.calls) {
            calls.judge(*number, vec![statement(RETURN, ALLOW)]);
        }
        let judged: [(Layer, c_long, Vec<Instruction>); 5] = [
            (Layer::CallsTerminal, libc::SYS_ioctl, ioctl()),
            (Layer::CallsNamespaces, libc::SYS_clone, clone()),
            (
                Layer::CallsPersonality,
                libc::SYS_personality,
                personality(),
            ),
            (Layer::CallsSockets, libc::SYS_socket, socket()),
            (Layer::CallsSockets, libc::SYS_socketpair, socketpair()),
        ];
        for (layer, number, body) in judged {
            if !weaken.is_off(layer) {
                calls.judge(number, body);
            }
        }
        for group in REFUSED {
            for ((_, number), refusal) in group.calls {
                if weaken.is_off(group.layer) {
                    calls.judge(*number, vec![statement(RETURN, ALLOW)]);
                } else {
                    calls.refuse(*number, *refusal);
                }
            }
        }
        calls
    }

    fn refuse(&mut self, number: c_long, refusal: Refusal) {
        self.judge(number, vec![answer(refusal)]);
    }

    /// Sets what happens to one call; `body` must end with a return.
    fn judge(&mut self, number: c_long, body: Vec<Instruction>) {
        let number = u32::try_from(number).expect("system calls have small numbers");
        self.answers.insert(number, body);
    }

    fn program(&self, weaken: Weaken) -> Vec<Instruction> {
        let mut program = Vec::new();
        if !weaken.is_off(Layer::CallsOtherAbis) {
            // A call through another calling convention would have other numbers, so it ends the process.
            program.extend([
                load(ARCHITECTURE_OFFSET),
                jump(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0),
                statement(RETURN, KILL_PROCESS),
                load(NUMBER_OFFSET),
                // x32: the 64-bit architecture with 32-bit numbers, marked by bit 30.
                jump(JUMP_IF_AT_LEAST, X32, 0, 1),
                statement(RETURN, KILL_PROCESS),
            ]);
        }
        program.push(load(NUMBER_OFFSET));
        let unknown = if weaken.is_off(Layer::CallsUnknown) || weaken.is_off(Layer::CallsOtherAbis)
        {
            statement(RETURN, ALLOW)
        } else {
            answer(Missing)
        };
        program.extend(search(&self.ranges(unknown)));
        program
    }

    /// Ranges of calls with one answer, by their first number, without a gap from 0 to the last number there is.
    fn ranges(&self, unknown: Instruction) -> Vec<(u32, Vec<Instruction>)> {
        let mut ranges: Vec<(u32, Vec<Instruction>)> = Vec::new();
        let mut add = |first: u32, answer: Vec<Instruction>| {
            if ranges.last().is_none_or(|(_, last)| *last != answer) {
                ranges.push((first, answer));
            }
        };
        let mut next = 0;
        for (number, answer) in &self.answers {
            if *number > next {
                add(next, vec![unknown]);
            }
            add(*number, answer.clone());
            next = number + 1;
        }
        add(next, vec![unknown]);
        ranges
    }
}

/// Finds the range of the loaded number by halving: the kernel runs the filter for every number when it is installed,
/// and for some at every call.
fn search(ranges: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    if let [(_, answer)] = ranges {
        return answer.clone();
    }
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let pivot = above[0].0;
    let (below, above) = (search(below), search(above));
    let mut code = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(JUMP_IF_AT_LEAST, pivot, length, 0)],
        Err(_) => vec![
            jump(JUMP_IF_AT_LEAST, pivot, 0, 1),
            statement(JUMP, below.len() as u32),
        ],
    };
    code.extend(below);
    code.extend(above);
    code
}

fn answer(refusal: Refusal) -> Instruction {
    let number = match refusal {
        NotPermitted => libc::EPERM,
        Missing => libc::ENOSYS,
    };
    statement(RETURN, ERROR | number as u32)
}

const FCHMODAT2: c_long = 452;
/// `S_ISUID | S_ISGID`.
const SET_ID: u32 = 0o6000;
const X32: u32 = 0x4000_0000;

#[cfg(test)]
mod tests;
