//! How the sandbox's second process becomes the command.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::process::Rlimit;

use crate::child::{Wires, drop_privileges, failed, tell};
use crate::message::{Other, Report};
use crate::plan::Command;
use crate::sys;

/// Gives up everything and becomes the command.
pub(crate) fn become_it(command: &Command, wires: &Wires, control: BorrowedFd<'_>) -> ! {
    match ready(command, wires) {
        Err((other, errno)) => tell(control, failed(other, errno)),
        Ok(()) => {
            let errno = execute(command);
            tell(control, Report::NotExecuted(errno.raw_os_error()));
        }
    }
    sys::exit(125)
}

fn ready(command: &Command, wires: &Wires) -> Result<(), (Other, Errno)> {
    let other = |which| move |errno| (which, errno);
    rustix::process::setsid().map_err(other(Other::Init))?;
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let [stdin, stdout, stderr] = wires.stdio.map(sys::borrowed);
    // The supervisor keeps these three above 2, so none is overwritten before it is copied.
    rustix::stdio::dup2_stdin(stdin).map_err(other(Other::Descriptors))?;
    rustix::stdio::dup2_stdout(stdout).map_err(other(Other::Descriptors))?;
    rustix::stdio::dup2_stderr(stderr).map_err(other(Other::Descriptors))?;
    rustix::process::chdir(command.workdir.as_c_str()).map_err(other(Other::Workdir))?;
    for (resource, value) in &command.rlimits {
        lower(*resource, *value).map_err(other(Other::Rlimits))?;
    }
    if let Some(count) = command.processors {
        pin(count).map_err(other(Other::Rlimits))?;
    }
    sys::reset_signals();
    // The channel to the supervisor closes with a successful exec, like everything else above 2.
    sys::close_on_exec_from(3).map_err(other(Other::Descriptors))?;
    drop_privileges().map_err(other(Other::Privileges))?;
    // Last: what comes before needs calls that the filter refuses.
    sys::install_filter(&command.filter).map_err(other(Other::Filter))
}

/// Tries the places where the command may be, as `execvp` does.
fn execute(command: &Command) -> Errno {
    let mut answer = Errno::NOENT;
    for candidate in &command.candidates {
        match sys::execve(candidate, &command.arguments, &command.environment) {
            Errno::NOENT | Errno::NOTDIR => {}
            // Remembered, but a later one may do.
            Errno::ACCESS => answer = Errno::ACCESS,
            errno => return errno,
        }
    }
    answer
}

/// Sets a limit, or keeps the inherited one where that is lower.
fn lower(resource: rustix::process::Resource, value: u64) -> Result<(), Errno> {
    let inherited = rustix::process::getrlimit(resource);
    let value = inherited
        .maximum
        .map_or(value, |maximum| maximum.min(value));
    rustix::process::setrlimit(
        resource,
        Rlimit {
            current: Some(value),
            maximum: Some(value),
        },
    )
}

/// Keeps the first `count` of the processors that may be used.
fn pin(count: usize) -> Result<(), Errno> {
    use rustix::thread::CpuSet;
    let available = rustix::thread::sched_getaffinity(None)?;
    let mut chosen = CpuSet::new();
    let mut left = count;
    for processor in 0..CpuSet::MAX_CPU {
        if left > 0 && available.is_set(processor) {
            chosen.set(processor);
            left -= 1;
        }
    }
    rustix::thread::sched_setaffinity(None, &chosen)
}
