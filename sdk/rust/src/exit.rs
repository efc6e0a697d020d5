//! Which exit code of `valetkey run` means what.

use crate::report::{Failure, Limit, Outcome};

/// With `--fail-on-deny`: the run passed, but something was refused.
pub const DENIED: u8 = 3;
/// The policy is not approved.
pub const NOT_APPROVED: u8 = 77;
/// The policy or the owner's file is wrong.
pub const BAD_POLICY: u8 = 78;
/// A step ended well, but its changes are at odds with another's.
pub const CONFLICT: u8 = 1;
/// Valetkey itself failed; nothing ran.
pub const OURS: u8 = 125;
/// The command cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;

/// The exit code that stands for an outcome.
pub fn code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Passed => 0,
        // A run whose first step was not reached ran nothing.
        Outcome::NotReached => OURS,
        Outcome::Failed(failure) => match failure {
            Failure::Exit(code) => *code,
            Failure::Signal(signal) => u8::try_from(128 + signal).unwrap_or(OURS),
            Failure::Limit(hit) => limit(hit.which),
            Failure::NotFound => NOT_FOUND,
            Failure::NotExecutable => NOT_EXECUTABLE,
            Failure::SetupFailed(_) => OURS,
            Failure::Conflict(_) => CONFLICT,
        },
    }
}

fn limit(which: Limit) -> u8 {
    match which {
        Limit::Wall => 124,
        Limit::Memory => 137,
        Limit::CpuTime | Limit::Cpus => 152,
        Limit::Disk | Limit::FileSize => 153,
        Limit::Processes => 154,
        // Running out of descriptors never ends a step by itself; it is told like a full pipe.
        Limit::Output | Limit::OpenFiles => 155,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::LimitHit;

    #[test]
    fn a_steps_own_code_is_kept() {
        assert_eq!(code(&Outcome::Failed(Failure::Exit(7))), 7);
    }

    #[test]
    fn a_wall_clock_limit_is_124_as_with_timeout() {
        let hit = LimitHit {
            which: Limit::Wall,
            value: 1000,
            used: None,
        };
        assert_eq!(code(&Outcome::Failed(Failure::Limit(hit))), 124);
    }

    #[test]
    fn an_impossible_signal_does_not_look_like_success() {
        assert_eq!(code(&Outcome::Failed(Failure::Signal(1 << 20))), OURS);
    }
}
