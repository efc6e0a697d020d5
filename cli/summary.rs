//! What a person reads after a run.

use launcher::Finished;
use policies::NetworkMode;
use sdk::report::{Failure, Outcome, Reached, Report};

use crate::cutoff::Cutoff;
use crate::interruption;
use crate::limit;
use crate::output::{bytes, count, say};
use crate::project::Project;
use crate::run::sets_ttl;
use crate::steps;

/// Tells on standard error how the run ended, what it reached and what it was refused.
pub(crate) fn after_run(
    report: &Report,
    finished: &Finished,
    cutoff: Option<Cutoff>,
    project: &Project,
    changes: Option<&str>,
) {
    say("");
    match cutoff {
        Some(cutoff) => say(format_args!(
            "valetkey: stopped: {}",
            cutoff.reason(sets_ttl(project))
        )),
        None => {
            let told = ended(report, finished);
            say(format_args!(
                "valetkey: {}",
                steps::interrupted(report, told)
            ));
        }
    }
    for line in limits_met(report) {
        say(format_args!("  {line}"));
    }
    for line in network(report, project.policy.sandbox().network) {
        say(format_args!("  {line}"));
    }
    for line in gaps(report) {
        say(format_args!("  {line}"));
    }
    if let Some(changes) = changes {
        say(format_args!("  {changes}"));
    }
    say(format_args!(
        "  details: valetkey audit show {}",
        report.run
    ));
}

/// Tells on standard error how the steps of a run ended: all of them, and the first that failed from close by.
pub(crate) fn after_steps(
    report: &Report,
    cutoff: Option<Cutoff>,
    project: &Project,
    changes: Option<&str>,
    next: &steps::Next,
) {
    say("");
    for line in steps::ending(report, next) {
        say(line);
    }
    if let Some(cutoff) = cutoff {
        say(format_args!(
            "  stopped: {}",
            cutoff.reason(sets_ttl(project))
        ));
    }
    for line in gaps(report) {
        say(format_args!("  {line}"));
    }
    let mode = project.policy.sandbox().network;
    if steps::first_failed(report).is_some() {
        // What the others reached is a count beside each.
        if let Some(line) = without_network(mode) {
            say(format_args!("  {line}"));
        }
        return;
    }
    for line in network(report, mode) {
        say(format_args!("  {line}"));
    }
    if let Some(changes) = changes {
        say(format_args!("  {changes}"));
    }
    say(format_args!(
        "  details: valetkey report {0}, valetkey audit show {0}",
        report.run
    ));
}

/// What its sandboxes did not keep apart.
fn gaps(report: &Report) -> Vec<String> {
    if report.not_isolated.is_empty() {
        return Vec::new();
    }
    let first = "it had no namespaces, so not all was kept apart from this machine:".to_owned();
    let gaps = report.not_isolated.iter().map(|gap| format!("  {gap}"));
    [first].into_iter().chain(gaps).collect()
}

fn ended(report: &Report, finished: &Finished) -> String {
    let seconds = finished.wall.as_secs_f64();
    let mut used = format!("{seconds:.1} s");
    if let Some(peak) = finished.memory_peak {
        used.push_str(&format!(", {} of memory at most", bytes(peak)));
    }
    match &report.outcome {
        Outcome::Passed => format!("passed ({used})"),
        Outcome::NotReached => "nothing ran".to_owned(),
        Outcome::Failed(failure) => match failure {
            Failure::Exit(code) => format!("failed with exit code {code} ({used})"),
            Failure::Signal(signal) if report.interrupted == Some(*signal) => {
                format!("interrupted by {} ({used})", interruption::name(*signal))
            }
            Failure::Signal(signal) => format!("ended by signal {signal} ({used})"),
            Failure::Limit(hit) => limit::ending(hit),
            Failure::NotFound => "the command was not found in the sandbox".to_owned(),
            Failure::NotExecutable => "the command cannot be executed".to_owned(),
            Failure::SetupFailed(_) | Failure::Conflict(_) => steps::outcome(&report.outcome),
        },
    }
}

/// Limits that the run reached and that did not end it: the program saw an error of its own.
fn limits_met(report: &Report) -> Vec<String> {
    let step = report.steps.first();
    let ending = step.and_then(|step| match &step.outcome {
        Outcome::Failed(Failure::Limit(hit)) => Some(hit.which),
        Outcome::Failed(_) | Outcome::Passed | Outcome::NotReached => None,
    });
    step.map(|step| step.limits_hit.as_slice())
        .unwrap_or_default()
        .iter()
        .filter(|hit| Some(hit.which) != ending)
        .map(|hit| limit::met(hit, report.outcome == Outcome::Passed))
        .collect()
}

/// What was reached and refused, a line each.
pub(crate) fn network(report: &Report, mode: NetworkMode) -> Vec<String> {
    let mut lines = Vec::new();
    if report.reached.is_empty() {
        lines.push("reached no host".to_owned());
    } else {
        lines.push(format!(
            "reached {}",
            count(report.reached.len() as u64, "host")
        ));
        lines.extend(
            report
                .reached
                .iter()
                .map(|host| format!("  {}", reached(host))),
        );
    }
    for failed in &report.failed {
        let host = failed.host.as_deref().unwrap_or("(no host)");
        lines.push(format!(
            "failed {host}: {}, {}",
            failed.code,
            count(failed.times, "time")
        ));
    }
    let refused: u64 = report.denied.iter().map(|denied| denied.times).sum();
    if refused > 0 {
        lines.push(format!("refused {}", count(refused, "request")));
        for denied in &report.denied {
            let host = denied.host.as_deref().unwrap_or("(no host)");
            let times = if denied.times > 1 {
                format!(" ({} times)", denied.times)
            } else {
                String::new()
            };
            lines.push(format!("  {host}: {}{times}", denied.code));
        }
        lines.push("to allow a host: add an [[allow]] rule to valetkey.toml, then `valetkey policy approve`".to_owned());
    }
    lines.extend(without_network(mode));
    lines
}

fn without_network(mode: NetworkMode) -> Option<String> {
    let advice = "it had no network; to allow a host: `valetkey policy init --allow HOST`";
    match mode {
        NetworkMode::None => Some(advice.to_owned()),
        NetworkMode::ProxyOnly => None,
    }
}

fn reached(host: &Reached) -> String {
    let mut line = format!(
        "{}: {}, {} sent, {} received",
        host.host,
        count(host.requests, "request"),
        bytes(host.bytes_in),
        bytes(host.bytes_out)
    );
    if !host.secrets.is_empty() {
        line.push_str(&format!(", with the secret {}", host.secrets.join(", ")));
    }
    line
}
