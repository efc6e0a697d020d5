//! The steps of a report, for people.

use sdk::report::{Conflict, Failure, Outcome, Report, Step};

use crate::interruption;
use crate::limit;
use crate::output::count;

/// A line for each step, and for the first that failed its last output.
pub(crate) fn lines(report: &Report) -> Vec<String> {
    let widest = |text: &dyn Fn(&Step) -> String| {
        report
            .steps
            .iter()
            .map(|step| text(step).chars().count())
            .max()
            .unwrap_or(0)
    };
    let name = |step: &Step| step.name.clone();
    let ended = |step: &Step| outcome(&step.outcome);
    let (names, endings) = (widest(&name), widest(&ended).min(WIDEST));
    let mut lines: Vec<String> = report
        .steps
        .iter()
        .map(|step| {
            let line = format!(
                "{:>2}  {:names$}  {:endings$}  {}",
                step.index,
                step.name,
                ended(step),
                remarks(step)
            );
            line.trim_end().to_owned()
        })
        .collect();
    if let Some(failed) = first_failed(report) {
        lines.extend(last_output(failed));
    }
    lines
}

/// "step 6 of 9 (`test`) failed with exit code 1; 7 to 9 were not reached"
pub(crate) fn headline(report: &Report) -> String {
    let told = which_failed(report);
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

fn which_failed(report: &Report) -> String {
    let all = report.steps.len();
    let headline = match first_failed(report) {
        Some(step) => format!(
            "step {} of {all} (`{}`): {}",
            step.index,
            step.name,
            outcome(&step.outcome)
        ),
        None if report.outcome == Outcome::Passed => {
            return format!("all {} passed", count(all as u64, "step"));
        }
        None => "no step failed".to_owned(),
    };
    match not_reached(report) {
        Some(which) => format!("{headline}; {which} not reached"),
        None => headline,
    }
}

fn first_failed(report: &Report) -> Option<&Step> {
    let is_failed = |step: &&Step| matches!(step.outcome, Outcome::Failed(_));
    report.steps.iter().find(is_failed)
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

/// How a step ended, in a few words.
pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passed".to_owned(),
        Outcome::NotReached => "not reached".to_owned(),
        Outcome::Failed(failure) => match failure {
            Failure::Exit(code) => format!("failed with exit code {code}"),
            Failure::Signal(signal) => format!("ended by signal {signal}"),
            Failure::Limit(hit) => format!("stopped: {}", limit::reached(hit)),
            Failure::NotFound => "its command was not found in the sandbox".to_owned(),
            Failure::NotExecutable => "its command cannot be executed".to_owned(),
            Failure::SetupFailed(why) => format!("nothing ran: {why}"),
            Failure::Conflict(Conflict { with, paths }) => format!(
                "it changed what `{with}` beside it changed: {}",
                paths.join(", ")
            ),
        },
    }
}

/// "0.3 s, 2 files changed, on attempt 2 (1: exit code 1)"
fn remarks(step: &Step) -> String {
    if step.outcome == Outcome::NotReached {
        return String::new();
    }
    let mut remarks = vec![format!("{:.1} s", step.wall_ms as f64 / 1000.0)];
    if let Some(files) = step.files_changed.filter(|files| *files > 0) {
        let dropped = if step.rolled_back { " (dropped)" } else { "" };
        remarks.push(format!("{} changed{dropped}", count(files, "file")));
    }
    let requests: u64 = step.reached.iter().map(|host| host.requests).sum();
    if requests > 0 {
        remarks.push(count(requests, "request"));
    }
    if !step.retried.is_empty() {
        let before: Vec<String> = step
            .retried
            .iter()
            .map(|one| match one.because.contains('-') {
                // A code says more than the outcome.
                true => format!("{} ({})", outcome(&one.outcome), one.because),
                false => outcome(&one.outcome),
            })
            .collect();
        remarks.push(format!(
            "attempt {}, after: {}",
            step.attempts,
            before.join("; ")
        ));
    }
    let ending = match &step.outcome {
        Outcome::Failed(Failure::Limit(hit)) => Some(hit.which),
        Outcome::Failed(_) | Outcome::Passed | Outcome::NotReached => None,
    };
    let met = step
        .limits_hit
        .iter()
        .filter(|hit| Some(hit.which) != ending);
    remarks.extend(met.map(limit::reached));
    remarks.join(", ")
}

/// The last lines of what a step said: of its standard error, or else of its standard output.
fn last_output(step: &Step) -> Vec<String> {
    let tail = [&step.stderr, &step.stdout]
        .into_iter()
        .find(|tail| !tail.text.trim().is_empty());
    let Some(tail) = tail else {
        return vec![format!("`{}` printed nothing", step.name)];
    };
    let all: Vec<&str> = tail.text.trim_end().lines().collect();
    let shown = &all[all.len().saturating_sub(LAST_LINES)..];
    let mut lines = vec![format!("the last lines of `{}`:", step.name)];
    lines.extend(shown.iter().map(|line| {
        let line: String = line.chars().take(LONGEST_LINE).collect();
        format!("  | {line}")
    }));
    lines
}

const LAST_LINES: usize = 10;
const LONGEST_LINE: usize = 200;
/// Longer endings do not push the rest of every line away.
const WIDEST: usize = 40;
