//! The system calls that no crate wraps safely, each as thin as it can be.
//!
//! Everything here may be called in the child of [`clone3`] and [`fork`]: nothing but [`execve`] allocates or takes a lock.

#![allow(unsafe_code, reason = "the one file that may hold it")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Which side of a `clone3` or `fork` this is.
pub(crate) enum Side {
    /// The new process.
    Child,
    /// The caller, with the child's process id and, from [`clone3`], a descriptor of it.
    Parent(i32, Option<OwnedFd>),
}

/// Makes a process in new namespaces, with `CLONE_PARENT` a child of the caller's parent. It must end with [`exit`] or
/// [`execve`], and where the caller has threads, neither allocate nor take a lock.
///
/// With a group, a folder of the unified hierarchy, it is in that group from the beginning.
pub(crate) fn clone3(namespaces: u64, group: Option<BorrowedFd<'_>>) -> Result<Side, Errno> {
    let mut pidfd: c_int = -1;
    // SAFETY: plain data, for which all zeroes is a value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = namespaces | libc::CLONE_PIDFD as u64;
    arguments.pidfd = ptr::from_mut(&mut pidfd) as u64;
    if let Some(group) = group {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = group.as_raw_fd() as u64;
    }
    if namespaces & libc::CLONE_PARENT as u64 == 0 {
        // With it, it is that of the caller.
        arguments.exit_signal = libc::SIGCHLD as u64;
    }
    // SAFETY: `arguments` lives until the call returns and its size is passed; `pidfd` is a live `int` the kernel may
    // write. Without CLONE_VM and with `stack` 0 the child runs on its own copy of this stack, as after fork(2).
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    };
    match pid {
        0 => Ok(Side::Child),
        pid if pid > 0 => {
            // SAFETY: with CLONE_PIDFD a successful clone3 stored a new descriptor in `pidfd` that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Side::Parent(pid as i32, Some(pidfd)))
        }
        _ => Err(last_error()),
    }
}

/// Makes a child process in the same namespaces, whose allocator works also where other threads were in the middle of
/// something. It must end with [`exit`] or [`execve`].
pub(crate) fn fork() -> Result<Side, Errno> {
    // SAFETY: takes and gives a number; what the C library has to put right in the child it does itself.
    match unsafe { libc::fork() } {
        0 => Ok(Side::Child),
        pid if pid > 0 => Ok(Side::Parent(pid, None)),
        _ => Err(last_error()),
    }
}

/// Makes a child process in the same namespaces that runs `run` in this one's memory, and waits until it has executed
/// something or ended: what is to become another program soon needs no copy (vfork(2)).
pub(crate) fn fork_to_execute(run: &mut dyn FnMut()) -> Result<i32, Errno> {
    extern "C" fn enter(run: *mut c_void) -> c_int {
        // SAFETY: the pointer that `clone` was given below, to a value that lives until the child is done with it.
        let run = unsafe { &mut *run.cast::<&mut dyn FnMut()>() };
        run();
        125
    }
    let mut run = run;
    let mut stack = Vec::<u128>::with_capacity(STACK);
    // SAFETY: the end of an allocation of that many; a `u128` is aligned as a stack is to be.
    let top = unsafe { stack.as_mut_ptr().add(STACK) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is the child's alone, and with CLONE_VFORK it and `run` live until the child uses them no more;
    // this thread waits, so that nobody else uses what `run` borrows.
    let pid = unsafe { libc::clone(enter, top.cast(), flags, (&raw mut run).cast()) };
    if pid > 0 { Ok(pid) } else { Err(last_error()) }
}

/// Overwrites the values of the environment that this process was given, which may be somebody's keys.
pub(crate) fn forget_environment() {
    // SAFETY: the process was just forked and has one thread. `environ` is null or an array, ended by a null pointer, of
    // C strings in writable memory; each is overwritten up to its end.
    unsafe {
        let mut entry = libc::environ;
        while !entry.is_null() && !(*entry).is_null() {
            ptr::write_bytes(*entry, 0, libc::strlen(*entry));
            entry = entry.add(1);
        }
    }
}

/// What `mount_setattr` changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MountAttributes {
    /// Attributes to set.
    pub(crate) set: u64,
    /// Attributes to clear.
    pub(crate) clear: u64,
    /// The propagation type.
    pub(crate) propagation: u64,
    /// The user namespace of an id-mapped mount.
    pub(crate) user_namespace: u64,
}

/// Changes the attributes of the mount that `mount` names, and of those below it if `recursive`.
pub(crate) fn mount_setattr(
    mount: BorrowedFd<'_>,
    attributes: MountAttributes,
    recursive: bool,
) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static C string, `attributes` is a live `struct mount_attr` (same layout, `repr(C)`) and
    // its size is passed; `mount` is borrowed and so open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    done(result)
}

/// One instruction of a seccomp filter, as `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Instruction {
    /// The operation.
    pub(crate) code: u16,
    /// How many instructions to skip if the comparison holds.
    pub(crate) if_true: u8,
    /// How many to skip if it does not.
    pub(crate) if_false: u8,
    /// The operand.
    pub(crate) operand: u32,
}

/// Installs a system call filter for this thread. `no_new_privs` must be set.
pub(crate) fn install_filter(program: &[Instruction]) -> Result<(), Errno> {
    set_filter(program, 0).map(|_| ())
}

/// Installs a system call filter for this thread and returns where its questions are heard. `no_new_privs` must be set.
///
/// A question waits although signals come, for as long as they do not kill (Go's scheduler sends many).
pub(crate) fn install_asking_filter(program: &[Instruction]) -> Result<OwnedFd, Errno> {
    const WAIT_KILLABLE_RECV: c_long = 1 << 5;
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as c_long | WAIT_KILLABLE_RECV;
    let descriptor = set_filter(program, flags)?;
    let descriptor = RawFd::try_from(descriptor).map_err(|_| Errno::INVAL)?;
    // SAFETY: with NEW_LISTENER a successful call returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn set_filter(program: &[Instruction], flags: c_long) -> Result<c_long, Errno> {
    #[repr(C)]
    struct Program {
        length: u16,
        first: *const Instruction,
    }
    let program = Program {
        length: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        first: program.as_ptr(),
    };
    // SAFETY: `program` is a live `struct sock_fprog` (same layout, `repr(C)`), whose pointer and length are those
    // of one slice of `struct sock_filter`s; the kernel copies it and checks every instruction.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    done(result).map(|()| result)
}

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    /// Names it to the kernel.
    pub(crate) id: u64,
    /// The thread that asks.
    pub(crate) thread: u32,
    /// Which call.
    pub(crate) number: i64,
    /// Its arguments.
    pub(crate) arguments: [u64; 6],
}

/// The next question of a filter. `ENOENT` means that whoever asked is gone.
pub(crate) fn next_question(filter: BorrowedFd<'_>) -> Result<Question, Errno> {
    // SAFETY: plain data, for which all zeroes is a value; the kernel asks for zeroes.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: `asked` is a live `struct seccomp_notif`, which the request fills; `filter` is borrowed and so open.
    let result = unsafe {
        libc::ioctl(
            filter.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV as _,
            &raw mut asked,
        )
    };
    done(result.into())?;
    Ok(Question {
        id: asked.id,
        thread: asked.pid,
        number: asked.data.nr.into(),
        arguments: asked.data.args,
    })
}

/// Whether the one who asked still waits, so that its number still means it.
pub(crate) fn still_asks(filter: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: `id` is a live `u64`, which the request reads; `filter` is borrowed and so open.
    let result = unsafe {
        libc::ioctl(
            filter.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _,
            &raw const id,
        )
    };
    result == 0
}

/// Answers a question: the call returns 0, or fails with this number. It is never made.
pub(crate) fn answer_question(filter: BorrowedFd<'_>, id: u64, errno: i32) -> Result<(), Errno> {
    let response = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: -errno,
        flags: 0,
    };
    // SAFETY: `response` is a live `struct seccomp_notif_resp`, which the request reads; `filter` is borrowed and so
    // open.
    let result = unsafe {
        libc::ioctl(
            filter.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND as _,
            &raw const response,
        )
    };
    done(result.into())
}

/// Puts a copy of `given` in the place of descriptor `number` of the one who asked.
pub(crate) fn replace_descriptor(
    filter: BorrowedFd<'_>,
    id: u64,
    given: BorrowedFd<'_>,
    number: u32,
    closes_on_exec: bool,
) -> Result<(), Errno> {
    let addition = libc::seccomp_notif_addfd {
        id,
        flags: libc::SECCOMP_ADDFD_FLAG_SETFD as u32,
        srcfd: given.as_raw_fd().unsigned_abs(),
        newfd: number,
        newfd_flags: if closes_on_exec {
            libc::O_CLOEXEC.unsigned_abs()
        } else {
            0
        },
    };
    // SAFETY: `addition` is a live `struct seccomp_notif_addfd`, which the request reads; both descriptors are
    // borrowed and so open.
    let result = unsafe {
        libc::ioctl(
            filter.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ADDFD as _,
            &raw const addition,
        )
    };
    done(result.into())
}

/// The version of Landlock that the kernel has.
pub(crate) fn landlock_version() -> Result<u32, Errno> {
    const VERSION: c_int = 1;
    // SAFETY: with this flag the kernel takes no attributes and a size of 0, and answers with a number.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0_usize,
            VERSION,
        )
    };
    done(answer)?;
    u32::try_from(answer).map_err(|_| Errno::INVAL)
}

/// Lets `access` be done at and below what `place` names, as far as a Landlock set of rules has a say.
pub(crate) fn landlock_allow(
    rules: BorrowedFd<'_>,
    place: BorrowedFd<'_>,
    access: u64,
) -> Result<(), Errno> {
    #[repr(C, packed)]
    struct Beneath {
        allowed: u64,
        parent: RawFd,
    }
    const PATH_BENEATH: c_int = 1;
    let rule = Beneath {
        allowed: access,
        parent: place.as_raw_fd(),
    };
    // SAFETY: `rule` is a live `struct landlock_path_beneath_attr` (same layout: packed); both descriptors are borrowed
    // and so open.
    done(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0,
        )
    })
}

/// Puts this process under a Landlock set of rules, for good.
pub(crate) fn landlock_enforce(rules: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no pointers; `rules` is borrowed and so open.
    done(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) })
}

/// Sets an `int` option of a socket.
pub(crate) fn set_socket_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> Result<(), Errno> {
    let (value, size) = ((&raw const value).cast(), size_of::<c_int>());
    let socket = socket.as_raw_fd();
    // SAFETY: the value is a live `int` and its size is passed; the socket is borrowed and so open.
    done(unsafe { libc::setsockopt(socket, level, name, value, size as libc::socklen_t) }.into())
}

/// Closes the descriptors from `first` to `last`.
pub(crate) fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: no pointers. Only the child of `clone3` calls this, about descriptors that no `OwnedFd` it will drop
    // stands for: it never returns to code that would.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })
}

/// Marks the descriptors from `first` on as closed at `execve`.
pub(crate) fn close_on_exec_from(first: u32) -> Result<(), Errno> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: no pointers, and no descriptor is closed by this call.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) })
}

/// A descriptor by its number.
///
/// For the child of [`clone3`] only, whose descriptors are those the parent prepared and kept open.
pub(crate) fn borrowed<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the parent passes numbers of `OwnedFd`s that it holds during `clone3`, so they are open in the child's
    // copy of the table, and the child keeps them (see `Keep`) until it exits or executes.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// A descriptor that carries SIGCHLD, which is blocked from now on.
pub(crate) fn child_signals() -> Result<OwnedFd, Errno> {
    // SAFETY: a `sigset_t` is plain data for which all zeroes is a value; `sigemptyset` makes it the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a live signal set, the old mask is not asked for, and SIGCHLD is a signal's number.
    let descriptor = unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if descriptor < 0 {
        return Err(last_error());
    }
    // SAFETY: `signalfd` has just returned it, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Blocks every signal: the handlers are the supervisor's, and would write to descriptors that are others here.
pub(crate) fn block_signals() {
    // SAFETY: as in `child_signals`; `sigfillset` makes the set of all.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
    }
}

/// Sends a signal to every process of this namespace but the caller, which leads it.
pub(crate) fn signal_all(signal: c_int) {
    // SAFETY: no pointers. Only the first process of a process namespace calls this, so that nobody outside is meant.
    unsafe { libc::kill(-1, signal) };
}

/// Has this process get an error, and not be stopped, when it reads from a terminal in whose background it is.
pub fn ignore_background_reads() {
    // SAFETY: SIG_IGN installs no handler, and nothing else in this process waits for this signal.
    unsafe { libc::signal(libc::SIGTTIN, libc::SIG_IGN) };
}

/// Sets every signal to its default and blocks none.
///
/// A caller's ignored SIGXFSZ or SIGPIPE would otherwise reach the command.
pub(crate) fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no handler. The C library refuses the numbers it keeps for itself and the kernel
        // refuses SIGKILL and SIGSTOP; both leave things as they are.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: as in `child_signals`.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
}

/// Becomes another program; returns only if that fails.
pub(crate) fn execve(path: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        let all = strings.iter().map(|string| string.as_ptr());
        all.chain([ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: `path` is a C string; both arrays are pointers to live C strings, ended by a null pointer.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    last_error()
}

/// Ends this process at once: no destructor, no exit function.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// The C library's constant is too small for it (linux/sched.h).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
/// In 16 bytes: room for the few calls before another program.
const STACK: usize = 64 << 10 >> 4;

fn done(result: c_long) -> Result<(), Errno> {
    if result < 0 {
        Err(last_error())
    } else {
        Ok(())
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
