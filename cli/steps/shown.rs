//! How a run's steps ended, in words.

use sdk::report::{Conflict, Failure, Outcome, Report, Step};

use super::report::NOT_ENDED;
use crate::interruption;
use crate::limit;
use crate::output::count;

/// "no step failed; 7 to 9 were not reached"
pub(super) fn headline(report: &Report) -> String {
    let told = which_failed(report);
    let told = match not_reached(report) {
        Some(which) => format!("{told}; {which} not reached"),
        None => told,
    };
    interrupted(report, told)
}

/// What is told of a run's end, and that its owner asked it to end, where that is not told already.
pub(crate) fn interrupted(report: &Report, told: String) -> String {
    let Some(signal) = report.interrupted else {
        return told;
    };
    let said = format!("interrupted by {}", interruption::name(signal));
    match told.contains(&said) {
        true => told,
        false => format!("{said}; {told}"),
    }
}

/// "step 6 of 9 (`test`): failed with exit code 1"
pub(super) fn which_failed(report: &Report) -> String {
    let all = report.steps.len();
    match first_failed(report) {
        Some(step) => format!(
            "step {} of {all} (`{}`): {}",
            step.index,
            step.name,
            outcome(&step.outcome)
        ),
        None if report.outcome == Outcome::Passed => match all {
            1 => "the one step passed".to_owned(),
            _ => format!("all {} passed", count(all as u64, "step")),
        },
        None => "no step failed".to_owned(),
    }
}

/// The first step that failed, in the order of the file.
pub(crate) fn first_failed(report: &Report) -> Option<&Step> {
    report.steps.iter().find(|step| is_failed(step))
}

/// Whether a step ran, or was to, and failed.
pub(super) fn is_failed(step: &Step) -> bool {
    matches!(step.outcome, Outcome::Failed(_))
}

/// "7 to 9 were", "8 was"
fn not_reached(report: &Report) -> Option<String> {
    let numbers: Vec<u32> = report
        .steps
        .iter()
        .filter(|step| step.outcome == Outcome::NotReached)
        .map(|step| step.index)
        .collect();
    match numbers.as_slice() {
        [] => None,
        [one] => Some(format!("{one} was")),
        [first, .., last] if (last - first) as usize + 1 == numbers.len() => {
            Some(format!("{first} to {last} were"))
        }
        [rest @ .., last] => {
            let rest: Vec<String> = rest.iter().map(u32::to_string).collect();
            Some(format!("{} and {last} were", rest.join(", ")))
        }
    }
}

/// How a step ended, in a sentence.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::NotReached => "not reached".to_owned(),
        Outcome::Failed(failure) => match failure {
            Failure::Exit(code) => format!("failed with exit code {code}"),
            Failure::Signal(signal) => format!("ended by {}", signal_name(*signal)),
            Failure::Limit(hit) => format!("stopped: {}", limit::reached(hit)),
            Failure::NotFound => "its command was not found in the sandbox".to_owned(),
            Failure::NotExecutable => "its command cannot be executed".to_owned(),
            Failure::SetupFailed(why) if why == NOT_ENDED => format!("cut off: {why}"),
            Failure::SetupFailed(why) => format!("nothing ran: {why}"),
            Failure::Conflict(Conflict { with, paths }) => format!(
                "it changed what `{with}` beside it changed: {}",
                some(paths)
            ),
        },
    }
}

/// How a step ended, in a word or three.
pub(super) fn briefly(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::NotReached => "not reached".to_owned(),
        Outcome::Failed(failure) => match failure {
            Failure::Exit(code) => format!("exit code {code}"),
            Failure::Signal(signal) => signal_name(*signal),
            Failure::Limit(hit) => format!("{} limit", hit.which.as_str()),
            Failure::NotFound => "not found".to_owned(),
            Failure::NotExecutable => "not executable".to_owned(),
            Failure::SetupFailed(why) if why == NOT_ENDED => "cut off".to_owned(),
            Failure::SetupFailed(_) => "nothing ran".to_owned(),
            Failure::Conflict(_) => "conflict".to_owned(),
        },
    }
}

/// "signal 11 (SIGSEGV)"
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return format!("signal {number}"),
    };
    format!("signal {number} ({name})")
}

fn some(paths: &[String]) -> String {
    let (shown, rest) = paths.split_at(paths.len().min(MOST_PATHS));
    match rest.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

const MOST_PATHS: usize = 5;
