//! Whether a step that failed is tried again, and what for.

use std::collections::BTreeMap;

use sdk::Code;
use sdk::report::{Failure, Limit, Outcome};
use sdk::tally::Tally;

/// Something that a step can fail for, by the name that `retry_on` has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It exited with another code than 0.
    Exit,
    /// A signal ended it.
    Signal,
    /// It reached this limit, which ended it. No command is ended for `cpus` or `open_files`.
    Limit(Limit),
    /// It failed, and a request of it failed or was refused with this code.
    Code(Code),
}

impl Cause {
    /// Reads its name.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "exit" => return Some(Self::Exit),
            "signal" => return Some(Self::Signal),
            _ => {}
        }
        let limit = LIMITS.into_iter().find(|limit| limit.as_str() == word);
        limit.map(Self::Limit).or_else(|| {
            let code = serde_json::Value::from(word);
            serde_json::from_value(code).ok().map(Self::Code)
        })
    }

    /// The names that there are, but for the codes that no second attempt can change.
    pub(crate) fn words() -> Vec<String> {
        let limits = LIMITS.into_iter().map(Limit::as_str);
        let codes = CODES.into_iter().map(Code::as_str);
        ["exit", "signal"]
            .into_iter()
            .chain(limits)
            .chain(codes)
            .map(str::to_owned)
            .collect()
    }

    /// Whether it is met by looking at the requests of the step.
    pub(crate) fn is_code(&self) -> bool {
        matches!(self, Self::Code(_))
    }

    fn name(&self) -> String {
        match self {
            Self::Exit => "exit".to_owned(),
            Self::Signal => "signal".to_owned(),
            Self::Limit(limit) => limit.as_str().to_owned(),
            Self::Code(code) => code.as_str().to_owned(),
        }
    }

    fn is_met(&self, failure: &Failure, codes: &BTreeMap<Code, u64>) -> bool {
        match self {
            Self::Exit => matches!(failure, Failure::Exit(_)),
            Self::Signal => matches!(failure, Failure::Signal(_)),
            Self::Limit(limit) => {
                matches!(failure, Failure::Limit(hit) if hit.which == *limit)
            }
            Self::Code(code) => codes.contains_key(code),
        }
    }
}

/// For what of `retry_on` an attempt that ended like this is followed by another; none if it is not. An empty list means
/// every failure of the command.
pub(crate) fn reason(
    outcome: &Outcome,
    retry_on: &[Cause],
    codes: &BTreeMap<Code, u64>,
) -> Option<String> {
    let failure = match outcome {
        Outcome::Passed | Outcome::NotReached => return None,
        Outcome::Failed(failure) => failure,
    };
    match failure {
        // A command that is not there, or a sandbox that cannot be built, is the same the next time.
        Failure::NotFound | Failure::NotExecutable | Failure::SetupFailed(_) => None,
        Failure::Conflict(_) => None,
        Failure::Exit(_) | Failure::Signal(_) | Failure::Limit(_) if retry_on.is_empty() => {
            let any = [Cause::Exit, Cause::Signal]
                .into_iter()
                .chain(LIMITS.map(Cause::Limit))
                .find(|cause| cause.is_met(failure, codes));
            any.map(|cause| cause.name())
        }
        Failure::Exit(_) | Failure::Signal(_) | Failure::Limit(_) => retry_on
            .iter()
            .find(|cause| cause.is_met(failure, codes))
            .map(Cause::name),
    }
}

/// How often each code was met between two counts.
pub(crate) fn codes_since(before: &Tally, now: &Tally) -> BTreeMap<Code, u64> {
    let count = |tally: &Tally| {
        let mut codes: BTreeMap<Code, u64> = BTreeMap::new();
        for denied in tally.denied().into_iter().chain(tally.failed()) {
            *codes.entry(denied.code).or_default() += denied.times;
        }
        codes
    };
    let (before, mut now) = (count(before), count(now));
    now.retain(|code, times| *times > before.get(code).copied().unwrap_or(0));
    now
}

/// The limits that can end a command. Having fewer processors makes it slow, and what it cannot open it is told itself.
const LIMITS: [Limit; 7] = [
    Limit::Memory,
    Limit::CpuTime,
    Limit::Wall,
    Limit::Disk,
    Limit::FileSize,
    Limit::Processes,
    Limit::Output,
];

const CODES: [Code; 7] = [
    Code::UpstreamUnreachable,
    Code::UpstreamTls,
    Code::UpstreamTimeout,
    Code::RateLimited,
    Code::TooManyConnections,
    Code::CredentialUnavailable,
    Code::ApprovalTimeout,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failure: Failure) -> Outcome {
        Outcome::Failed(failure)
    }

    #[test]
    fn every_name_that_is_offered_can_be_read() {
        for word in Cause::words() {
            let cause = Cause::parse(&word);
            assert_eq!(cause.map(|cause| cause.name()).as_deref(), Some(&*word));
        }
        assert_eq!(Cause::parse("always"), None);
        // Nothing is ever ended for these, so nobody could be served by them.
        assert_eq!(Cause::parse("open_files"), None);
        assert_eq!(Cause::parse("cpus"), None);
    }

    #[test]
    fn only_what_is_asked_for_is_a_reason() {
        let none = BTreeMap::new();
        let on = [Cause::Limit(Limit::Wall)];
        assert_eq!(reason(&failed(Failure::Exit(1)), &on, &none), None);
        let on = [Cause::Signal, Cause::Exit];
        let because = reason(&failed(Failure::Exit(1)), &on, &none);
        assert_eq!(because.as_deref(), Some("exit"));
    }

    #[test]
    fn a_code_is_a_reason_when_the_step_failed_and_met_it() {
        let met = BTreeMap::from([(Code::UpstreamUnreachable, 1)]);
        let on = [Cause::Code(Code::UpstreamUnreachable)];
        let because = reason(&failed(Failure::Exit(1)), &on, &met);
        assert_eq!(because.as_deref(), Some("upstream-unreachable"));
        assert_eq!(
            reason(&failed(Failure::Exit(1)), &on, &BTreeMap::new()),
            None
        );
        assert_eq!(reason(&Outcome::Passed, &on, &met), None);
    }

    #[test]
    fn what_cannot_change_is_not_tried_again() {
        let none = BTreeMap::new();
        assert_eq!(reason(&failed(Failure::NotFound), &[], &none), None);
        assert!(reason(&failed(Failure::Signal(11)), &[], &none).is_some());
    }
}
