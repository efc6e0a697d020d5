//! The filter, judged as the kernel would.

use super::*;
use crate::bpf::LOAD;

/// What the filter answers to a call, computed as the kernel would.
fn run(architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
    let program = filter(EVERYTHING, Weaken::default());
    judge(&program, architecture, number, arguments)
}

fn judge(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 4]) -> u32 {
    judge_counting(program, architecture, number, arguments).0
}

/// The same, with the number of instructions that it took.
fn judge_counting(
    program: &[Instruction],
    architecture: u32,
    number: u32,
    arguments: [u64; 4],
) -> (u32, usize) {
    let (mut at, mut value, mut steps) = (0_usize, 0_u32, 0);
    loop {
        let step = program[at];
        at += 1;
        steps += 1;
        match step.code {
            LOAD => {
                value = match step.operand {
                    0 => number,
                    4 => architecture,
                    offset => arguments[(offset as usize - 16) / 8] as u32,
                }
            }
            AND => value &= step.operand,
            RETURN => return (step.operand, steps),
            JUMP => at += step.operand as usize,
            code => {
                let holds = match code {
                    JUMP_IF_EQUAL => value == step.operand,
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

const EVERYTHING: Also = Also {
    processors: true,
    set_id: true,
    unseen_memory: true,
};
const NOTHING_ELSE: Also = Also {
    processors: false,
    set_id: false,
    unseen_memory: false,
};
const EPERM: u32 = ERROR | libc::EPERM as u32;

#[test]
fn reading_and_writing_are_allowed() {
    assert_eq!(call(libc::SYS_read, [0; 4]), ALLOW);
    assert_eq!(call(libc::SYS_write, [0; 4]), ALLOW);
}

#[test]
fn every_listed_call_is_answered_as_listed() {
    for ((name, number), refusal) in REFUSED.iter().flat_map(|group| group.calls) {
        assert_eq!(call(*number, [0; 4]), answer(*refusal).operand, "{name}");
    }
    let plain = filter(NOTHING_ELSE, Weaken::default());
    for (name, number) in ALLOWED.iter().flat_map(|group| group.calls) {
        if ["socket", "socketpair"].contains(name) {
            continue;
        }
        let answer = judge(&plain, ARCHITECTURE, *number as u32, [0; 4]);
        assert_eq!(answer, ALLOW, "{name}");
    }
}

#[test]
fn no_call_is_listed_twice() {
    let allowed = ALLOWED.iter().flat_map(|group| group.calls);
    let refused = REFUSED.iter().flat_map(|group| group.calls);
    let mut seen = std::collections::BTreeSet::new();
    for (name, number) in allowed.chain(refused.map(|(call, _)| call)) {
        assert!(seen.insert(*number), "{name}");
    }
}

#[test]
fn another_architecture_ends_the_process() {
    assert_eq!(run(0x4000_0003, 20, [0; 4]), KILL_PROCESS);
    assert_eq!(run(ARCHITECTURE, 0x4000_0027, [0; 4]), KILL_PROCESS);
}

#[test]
fn a_call_that_is_not_listed_is_missing() {
    let listed: Vec<c_long> = (ALLOWED.iter().flat_map(|group| group.calls))
        .chain(
            REFUSED
                .iter()
                .flat_map(|group| group.calls)
                .map(|(call, _)| call),
        )
        .map(|(_, number)| *number)
        .collect();
    for number in (0..2000).filter(|number| !listed.contains(number)) {
        let missing = ERROR | libc::ENOSYS as u32;
        assert_eq!(call(number, [0; 4]), missing, "{number}");
    }
}

#[test]
fn the_kernel_takes_the_filter_and_finds_an_answer_in_a_few_steps() {
    let program = filter(EVERYTHING, Weaken::default());
    // linux/bpf_common.h: BPF_MAXINSNS
    assert!(program.len() < 4096, "{}", program.len());
    for number in 0..500 {
        let (_, steps) = judge_counting(&program, ARCHITECTURE, number, [0; 4]);
        assert!(steps < 40, "{number}: {steps}");
    }
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
    let plain = filter(NOTHING_ELSE, Weaken::default());
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

// The page is written for the architecture that has them all.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_page_lists_every_call_with_its_reason() {
    let page = include_str!("../../../docs/sandbox.md");
    let mut rows: Vec<String> = Vec::new();
    for group in ALLOWED {
        rows.push(row(group.name, group.calls.iter(), group.reason));
    }
    for group in REFUSED {
        let calls = group.calls.iter().map(|(call, _)| call);
        rows.push(row(group.name, calls, group.reason));
    }
    let missing: Vec<String> = (rows.into_iter())
        .filter(|row| !page.contains(row.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "put into docs/sandbox.md:\n{}",
        missing.join("\n")
    );
}

fn row<'a>(
    name: &str,
    calls: impl Iterator<Item = &'a (&'static str, c_long)>,
    why: &str,
) -> String {
    let calls: Vec<String> = calls.map(|(name, _)| format!("`{name}`")).collect();
    format!("| {name} | {why} | {} |", calls.join(" "))
}
