//! Why a command was ended by us: its run was over, by the owner or by its time.

use std::time::Duration;

use broker::Run;
use launcher::Finished;
use sdk::report::{Failure, Limit, LimitHit, Outcome};

/// Why a command's run was over before the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cutoff {
    /// The owner revoked the run.
    Revoked,
    /// The run's time was over.
    Expired(Duration),
}

impl Cutoff {
    /// Tells whether the run was over first; a command that ended by itself has an outcome of its own.
    pub(crate) fn of(run: &Run, finished: &Finished) -> Option<Self> {
        const KILLED: i32 = 9;
        let is_killed = finished.outcome == Outcome::Failed(Failure::Signal(KILLED));
        if !is_killed || run.is_active() {
            return None;
        }
        Some(match run.is_expired() {
            true => Self::Expired(broker::lifetime(None, run.policy().budget().ttl)),
            false => Self::Revoked,
        })
    }

    /// Puts the reason in the place of the signal. A run's time is time on the wall, and 137 would say memory.
    pub(crate) fn explain(self, finished: &mut Finished) {
        match self {
            Self::Revoked => {}
            Self::Expired(lifetime) => {
                let hit = LimitHit {
                    which: Limit::Wall,
                    value: milliseconds(lifetime),
                    used: Some(milliseconds(finished.wall)),
                };
                finished.limits_hit.push(hit.clone());
                finished.outcome = Outcome::Failed(Failure::Limit(hit));
            }
        }
    }

    /// The reason, for people.
    pub(crate) fn reason(self, sets_ttl: bool) -> String {
        match self {
            Self::Revoked => "the run was revoked, so its command was ended".to_owned(),
            Self::Expired(lifetime) => {
                let time = lifetime.as_secs_f64();
                let advice = if sets_ttl { "raise" } else { "set" };
                format!(
                    "the run's time was over after {time} s (its ttl), so its command was ended; {advice} `budget.ttl` \
                     in valetkey.toml if it needs more"
                )
            }
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
