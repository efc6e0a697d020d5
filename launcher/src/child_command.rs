//! How the sandbox's second process becomes the command.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::Rlimit;

use crate::child::{Given, drop_capabilities, failed, gain_nothing, tell};
use crate::landlock::Rules;
use crate::message::{Other, Report};
use crate::plan::{Bounded, Command};
use crate::sys;
use crate::weaken::{Layer, Weaken};

/// Gives up everything and becomes the command.
pub(crate) fn become_it(
    command: &Command,
    kept: (&Option<Rules>, &Given),
    weaken: Weaken,
    terminal: Option<BorrowedFd<'_>>,
    control: BorrowedFd<'_>,
) -> ! {
    match ready(command, kept, weaken, terminal) {
        Err((other, errno)) => tell(control, failed(other, errno)),
        Ok(()) => {
            let errno = execute(command);
            tell(control, Report::NotExecuted(errno.raw_os_error()));
        }
    }
    sys::exit(125)
}

fn ready(
    command: &Command,
    kept: (&Option<Rules>, &Given),
    weaken: Weaken,
    terminal: Option<BorrowedFd<'_>>,
) -> Result<(), (Other, Errno)> {
    let (landlock, given) = kept;
    let other = |which| move |errno| (which, errno);
    if !weaken.is_off(Layer::Session) {
        rustix::process::setsid().map_err(other(Other::Init))?;
    }
    rustix::process::umask(rustix::fs::Mode::from(0o022));
    let [stdin, stdout, stderr] = match terminal {
        Some(terminal) => {
            crate::child_terminal::take(terminal).map_err(other(Other::Terminal))?;
            [terminal; 3]
        }
        None => given.stdio.each_ref().map(AsFd::as_fd),
    };
    // These three are above 2, so none is overwritten before it is copied.
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
    if !weaken.is_off(Layer::Descriptors) {
        sys::close_on_exec_from(3).map_err(other(Other::Descriptors))?;
    }
    if !weaken.is_off(Layer::NoNewPrivileges) {
        gain_nothing().map_err(other(Other::Privileges))?;
    }
    if let (Some(rules), Some(set)) = (landlock, &given.rules) {
        restrict(rules, set.as_fd()).map_err(other(Other::Landlock))?;
    }
    // What comes before needs calls that the filter refuses.
    if !weaken.is_off(Layer::Calls) {
        sys::install_filter(&command.filter).map_err(other(Other::Filter))?;
    }
    if weaken.is_off(Layer::Capabilities) {
        return keep_capabilities().map_err(other(Other::Privileges));
    }
    drop_capabilities().map_err(other(Other::Privileges))
}

/// Puts this process under Landlock's rules.
fn restrict(rules: &Rules, set: BorrowedFd<'_>) -> Result<(), Errno> {
    let input = sys::borrowed(0);
    let found = rustix::fs::fstat(input)?;
    // So that `/dev/stdin` can be opened. What is not of a file system, such as a pipe, always can.
    if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
        sys::landlock_allow(set, input, rules.input)?;
    }
    sys::landlock_enforce(set)
}

/// Lets the command have what the first process has, for a test.
fn keep_capabilities() -> Result<(), Errno> {
    use rustix::thread::CapabilitySets;
    let has = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            inheritable: has.permitted,
            ..has
        },
    )?;
    for capability in has.permitted.iter() {
        rustix::thread::configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Tries the places where the command may be, as `execvp` does.
pub(crate) fn execute(command: &Command) -> Errno {
    let mut answer = Errno::NOENT;
    for candidate in &command.candidates {
        match sys::execve(candidate, &command.arguments.0, &command.environment.0) {
            Errno::NOENT | Errno::NOTDIR => {}
            // Remembered, but a later one may do.
            Errno::ACCESS => answer = Errno::ACCESS,
            errno => return errno,
        }
    }
    answer
}

/// Sets a limit, or keeps the inherited one where that is lower.
pub(crate) fn lower(bounded: Bounded, value: u64) -> Result<(), Errno> {
    let resource = bounded.resource();
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
pub(crate) fn pin(count: usize) -> Result<(), Errno> {
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
