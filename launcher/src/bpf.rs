//! The words that system call filters are written in: instructions of the kernel's packet filter machine.

use crate::sys::Instruction;

pub(crate) fn load(offset: u32) -> Instruction {
    statement(LOAD, offset)
}

/// Goes on if the value is `value`, else skips `count` instructions.
pub(crate) fn skip_unless_equal(value: u32, count: u8) -> Instruction {
    jump(JUMP_IF_EQUAL, value, 0, count)
}

pub(crate) fn statement(code: u16, operand: u32) -> Instruction {
    jump(code, operand, 0, 0)
}

pub(crate) fn jump(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
    Instruction {
        code,
        if_true,
        if_false,
        operand,
    }
}

/// Where the low half of an argument lies in `struct seccomp_data` on a little-endian machine.
pub(crate) fn argument_low(index: u32) -> u32 {
    16 + 8 * index
}

pub(crate) const NUMBER_OFFSET: u32 = 0;
pub(crate) const ARCHITECTURE_OFFSET: u32 = 4;
// linux/audit.h
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the launcher's system call filter knows x86_64 and aarch64 only");

// linux/bpf_common.h
pub(crate) const LOAD: u16 = 0x20;
pub(crate) const AND: u16 = 0x54;
pub(crate) const RETURN: u16 = 0x06;
/// Skips as many instructions as the operand says.
pub(crate) const JUMP: u16 = 0x05;
pub(crate) const JUMP_IF_EQUAL: u16 = 0x15;
pub(crate) const JUMP_IF_AT_LEAST: u16 = 0x35;
pub(crate) const JUMP_IF_ANY_BIT: u16 = 0x45;

// linux/seccomp.h
pub(crate) const KILL_PROCESS: u32 = 0x8000_0000;
pub(crate) const ERROR: u32 = 0x0005_0000;
pub(crate) const ALLOW: u32 = 0x7fff_0000;
