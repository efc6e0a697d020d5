//! `valetkey report`: what became of a run, or of one of its steps, as it was written down.

use broker::Broker;
use launcher::changes::Record;
use policies::NetworkMode;
use sdk::api::RunInfo;
use sdk::report::{Report, Step};

use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, data};
use crate::{args, engine, steps, summary};

/// Prints the report that is meant, or one step of it.
pub(crate) fn report(asked: &args::Report, folders: &Folders, json: bool) -> Result<u8, Failure> {
    let broker = engine::open_broker(folders)?;
    let report = find(&broker, &asked.run)?;
    let Some(wanted) = &asked.step else {
        match json {
            true => output::json(&report),
            false => told(&report, folders).into_iter().for_each(data),
        }
        return Ok(0);
    };
    let step = step(&report, wanted)?;
    match json {
        true => output::json(step),
        false => steps::of_step(&report, step).into_iter().for_each(data),
    }
    Ok(0)
}

/// What became of a run, for people.
pub(crate) fn told(report: &Report, folders: &Folders) -> Vec<String> {
    let mut lines = Vec::new();
    if report.state == "active" {
        let what = "not all was written down: the run goes on, or its process was ended";
        lines.push(what.to_owned());
    }
    let next = steps::Next {
        resume: None,
        has_changes: Record::load(&folders.run(&report.run)).is_ok(),
    };
    lines.extend(steps::ending(report, &next));
    if steps::first_failed(report).is_none() {
        // The mode only adds advice for the policy.
        let network = summary::network(report, NetworkMode::ProxyOnly);
        lines.extend(network.into_iter().map(|line| format!("  {line}")));
    }
    lines
}

/// The report of the run that is meant: by its name, by the beginning of it, or the last one of this project.
pub(crate) fn find(broker: &Broker, asked: &str) -> Result<Report, Failure> {
    if let Ok(run) = asked.parse() {
        let report = broker.report(&run).map_err(engine::broker_failure)?;
        return report.ok_or_else(|| match broker.run_info(&run) {
            Ok(Some(_)) => no_report(asked),
            Ok(None) | Err(_) => no_run(asked),
        });
    }
    // The newest come first.
    let all = broker.runs().map_err(engine::broker_failure)?;
    if asked == "last" {
        return last(broker, &all);
    }
    let begins = |info: &&RunInfo| {
        let name = info.run.as_str();
        // The part behind `run_` is what people tell apart.
        name.starts_with(asked)
            || name
                .strip_prefix("run_")
                .is_some_and(|rest| rest.starts_with(asked))
    };
    let found: Vec<&RunInfo> = match asked.is_empty() {
        true => Vec::new(),
        false => all.iter().filter(begins).collect(),
    };
    match found.as_slice() {
        [one] => {
            let report = broker.report(&one.run).map_err(engine::broker_failure)?;
            report.ok_or_else(|| no_report(one.run.as_str()))
        }
        [] => Err(no_run(asked)),
        several => {
            let names: Vec<&str> = several
                .iter()
                .take(MOST)
                .map(|info| info.run.as_str())
                .collect();
            Err(
                Failure::negative(format!("`{asked}` may be any of {} runs", several.len()))
                    .hint(format!("write more of the name: {}", names.join(", "))),
            )
        }
    }
}

fn last(broker: &Broker, all: &[RunInfo]) -> Result<Report, Failure> {
    let here = std::env::current_dir()
        .and_then(|here| here.canonicalize())
        .map_err(|error| Failure::ours("cannot tell which folder this is").because(error))?;
    for info in all.iter().filter(|info| here.starts_with(&info.project)) {
        if let Some(report) = broker.report(&info.run).map_err(engine::broker_failure)? {
            return Ok(report);
        }
    }
    Err(Failure::negative("no run of this folder has a report")
        .hint("`valetkey runs list` lists the runs of all projects"))
}

/// The step of this name, or else of this number.
fn step<'a>(report: &'a Report, wanted: &str) -> Result<&'a Step, Failure> {
    let by_name = report.steps.iter().find(|step| step.name == wanted);
    let by_number = || {
        let number: u32 = wanted.parse().ok()?;
        report.steps.iter().find(|step| step.index == number)
    };
    by_name.or_else(by_number).ok_or_else(|| {
        let names: Vec<&str> = report.steps.iter().map(|step| step.name.as_str()).collect();
        Failure::negative(format!("the run has no step `{wanted}`"))
            .hint(format!("its steps are: {}", names.join(", ")))
    })
}

fn no_run(asked: &str) -> Failure {
    Failure::negative(format!("there is no run `{asked}`"))
        .hint("`valetkey runs list` lists the runs")
}

fn no_report(run: &str) -> Failure {
    Failure::negative(format!("the run `{run}` has no report"))
        .hint(format!(
            "no step of it was run here; `valetkey audit show {run}` says what it reached"
        ))
        .named("no-report")
}

/// So many names are told.
const MOST: usize = 5;
