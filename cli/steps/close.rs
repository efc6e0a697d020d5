//! One step of a report from close by: how it ended, what it said, changed and reached, and what to do next.

use sdk::Code;
use sdk::report::{Denied, Failure, Limit, Outcome, Report, Step};

use super::report::NOT_ENDED;
use super::rows::Rows;
use super::shown::{is_failed, outcome};
use crate::output::{bytes, count};
use crate::{limit, plain};

/// How much of a step is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Much {
    /// What fits on a screen together with the list of steps.
    Short,
    /// All that the report has of it, but for the beginning of long output.
    Long,
}

/// What is told of one step, a row for each thing.
pub(crate) fn close(report: &Report, step: &Step, much: Much) -> Vec<String> {
    let mut rows = Rows::default();
    said(&mut rows, step, much);
    changed(&mut rows, step);
    reached(&mut rows, step);
    refused(&mut rows, step);
    attempts(&mut rows, step);
    for hit in &step.limits_hit {
        if !is_ending(step, hit.which) {
            rows.add("limit", &limit::reached(hit));
        }
    }
    if much == Much::Long {
        used(&mut rows, step);
    }
    if is_failed(step) {
        let waiting: Vec<String> = report
            .steps
            .iter()
            .filter(|other| other.outcome == Outcome::NotReached)
            .map(|other| format!("{} {}", other.index, other.name))
            .collect();
        if !waiting.is_empty() {
            rows.add(
                "not reached",
                &first(&waiting, MOST_NAMES, waiting.len() as u64),
            );
        }
    }
    rows.into_lines()
}

/// What its owner can do about a step that failed.
pub(crate) fn advice(step: &Step) -> Option<String> {
    let failure = match &step.outcome {
        Outcome::Passed | Outcome::NotReached => return None,
        Outcome::Failed(failure) => failure,
    };
    match failure {
        Failure::Limit(hit) => Some(format!(
            "raise `{0}` of the step, or `limits.{0}` in valetkey.toml if that is what bounds it",
            hit.which.as_str()
        )),
        Failure::NotFound => Some(
            "give the step a program that the sandbox has: `valetkey check --files` lists what it sees".to_owned(),
        ),
        Failure::NotExecutable => {
            Some("make it executable, or name its interpreter first: run = [\"sh\", …]".to_owned())
        }
        Failure::Conflict(conflict) => Some(format!(
            "let one have the other's changes: needs = [\"{}\"]",
            conflict.with
        )),
        Failure::SetupFailed(why) if why == NOT_ENDED => None,
        Failure::SetupFailed(_) => Some("see what this machine can do: `valetkey doctor`".to_owned()),
        Failure::Exit(_) | Failure::Signal(_) => None,
    }
}

fn said(rows: &mut Rows, step: &Step, much: Much) {
    if step.outcome == Outcome::NotReached || step.attempts == 0 {
        return;
    }
    let (err, out) = (
        plain::lines(&step.stderr.text),
        plain::lines(&step.stdout.text),
    );
    let is_blank = |lines: &[String]| lines.iter().all(|line| line.is_empty());
    let (most, of_the_other) = match much {
        Much::Short => (LINES, LINES_OF_THE_OTHER),
        Much::Long => (LINES_LONG, LINES_LONG),
    };
    let (err_is_cut, out_is_cut) = (step.stderr.truncated, step.stdout.truncated);
    match (is_blank(&err), is_blank(&out)) {
        (true, true) => rows.add("said", "nothing"),
        (true, false) => rows.quote("said", &out, out_is_cut, most),
        (false, true) => rows.quote("said", &err, err_is_cut, most),
        (false, false) => {
            rows.quote("said", &err, err_is_cut, most);
            rows.quote("on stdout", &out, out_is_cut, of_the_other);
        }
    }
}

fn changed(rows: &mut Rows, step: &Step) {
    let Some(files) = step.files_changed else {
        return;
    };
    if files == 0 {
        return rows.add("changed", "nothing");
    }
    let what = match (&step.outcome, step.rolled_back) {
        (_, true) => " (dropped, as asked)",
        (Outcome::Failed(Failure::Conflict(_)), false) => " (not part of the run's changes)",
        (Outcome::Failed(_), false) => " (kept)",
        (Outcome::Passed | Outcome::NotReached, false) => "",
    };
    let told = format!("{}{what}", count(files, "file"));
    match step.first_changed.is_empty() {
        true => rows.add("changed", &told),
        false => rows.add(
            "changed",
            &format!("{told}: {}", first(&step.first_changed, MOST_NAMES, files)),
        ),
    }
}

fn reached(rows: &mut Rows, step: &Step) {
    if step.reached.is_empty() && step.attempts > 0 {
        rows.add("reached", "no host");
    }
    for host in &step.reached {
        let mut told = format!(
            "{}: {}, {} sent, {} received",
            host.host,
            count(host.requests, "request"),
            bytes(host.bytes_in),
            bytes(host.bytes_out)
        );
        if !host.secrets.is_empty() {
            told.push_str(&format!(", with the secret {}", host.secrets.join(", ")));
        }
        rows.add_few("reached", told);
    }
    rows.end_few();
}

fn refused(rows: &mut Rows, step: &Step) {
    for one in &step.failed {
        rows.add_few("no answer", told(one));
    }
    rows.end_few();
    for one in &step.denied {
        rows.add_few("refused", told(one));
    }
    rows.end_few();
    if let Some(allow) = how_to_allow(step) {
        rows.add("to allow", &allow);
    }
}

fn told(denied: &Denied) -> String {
    let host = denied.host.as_deref().unwrap_or("(no host)");
    let times = match denied.times {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    format!("{host}: {}{times}", denied.code)
}

/// What its owner would do to allow the first of what was refused, if that is what they want.
fn how_to_allow(step: &Step) -> Option<String> {
    let first = step.denied.first()?;
    let host = first.host.as_deref().unwrap_or("HOST");
    // The step chose it, and the owner may paste what is told here into a shell.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let host = if host.bytes().all(is_plain) {
        host
    } else {
        "HOST"
    };
    let then = "then: valetkey policy approve";
    Some(match first.code {
        Code::HostNotAllowed => format!(
            "add [[allow]] host = \"{host}\" to valetkey.toml, and name it in [steps.{}] if that is there, {then}",
            step.name
        ),
        Code::PortNotAllowed
        | Code::MethodNotAllowed
        | Code::PathNotAllowed
        | Code::ConditionNotMet
        | Code::DeniedByRule
        | Code::UpgradeNotAllowed
        | Code::AddressNotAllowed => format!(
            "widen the rule that is meant (see `valetkey check --step {} 'METHOD https://{host}/PATH'`), {then}",
            step.name
        ),
        Code::BudgetExhausted | Code::RateLimited | Code::TooManyConnections => {
            format!("raise it under [budget] in valetkey.toml, {then}")
        }
        _ => return None,
    })
}

fn attempts(rows: &mut Rows, step: &Step) {
    let last = step.retried.len();
    for (number, one) in step.retried.iter().enumerate() {
        let because = match one.because.contains('-') {
            // A code says more than the outcome.
            true => format!(" ({})", one.because),
            false => String::new(),
        };
        let number = number + 1;
        let waited = match one.wait_ms {
            0 => String::new(),
            wait => format!("; waited {:.1} s", wait as f64 / 1000.0),
        };
        rows.add_few(
            "retried",
            format!(
                "attempt {number} {}{because}{waited}",
                outcome(&one.outcome)
            ),
        );
    }
    rows.end_few();
    if last > 0 {
        rows.add(
            "",
            &format!(
                "attempt {} is what is told here; hosts are those of all",
                step.attempts
            ),
        );
    }
}

fn used(rows: &mut Rows, step: &Step) {
    if step.attempts == 0 {
        return;
    }
    let mut used = vec![format!("{:.1} s", step.wall_ms as f64 / 1000.0)];
    if let Some(cpu) = step.cpu_ms {
        used.push(format!("{:.1} s of processor time", cpu as f64 / 1000.0));
    }
    if let Some(peak) = step.memory_peak {
        used.push(format!("{} of memory at most", bytes(peak)));
    }
    rows.add("used", &used.join(", "));
}

fn is_ending(step: &Step, limit: Limit) -> bool {
    match &step.outcome {
        Outcome::Failed(Failure::Limit(hit)) => hit.which == limit,
        Outcome::Failed(_) | Outcome::Passed | Outcome::NotReached => false,
    }
}

/// The first of some things, and how many more there are.
fn first(things: &[String], most: usize, of: u64) -> String {
    let shown = &things[..things.len().min(most)];
    match of.saturating_sub(shown.len() as u64) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

const MOST_NAMES: usize = 5;
/// The last lines of what a step said.
const LINES: usize = 8;
/// And of its other stream.
const LINES_OF_THE_OTHER: usize = 3;
const LINES_LONG: usize = 50;
