//! Who may read this process's memory, which holds secrets: nobody.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

use crate::failure::Failure;

/// Keeps secrets out of core dumps, and this process's memory from others of the same user.
pub(crate) fn close_memory() -> Result<(), Failure> {
    let cannot = |error: rustix::io::Errno| {
        Failure::ours("cannot keep secrets out of core dumps").because(error)
    };
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(cannot)?;
    // core(5): a limit of 0 does not stop a core_pattern that is a pipe; a limit of 1 does.
    let least = Rlimit {
        current: Some(1),
        maximum: Some(1),
    };
    match setrlimit(Resource::Core, least) {
        Ok(()) => Ok(()),
        // The limit was 0 for good, and a process that is not dumpable writes no core in any case.
        Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => Ok(()),
        Err(error) => Err(cannot(error)),
    }
}
