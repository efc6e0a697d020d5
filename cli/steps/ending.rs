//! The end of a run of steps, as its owner reads it: all steps, what failed from close by, and what to do next.

use sdk::report::{Report, Step};

use super::close::{Much, advice, close};
use super::rows::{Rows, sentence};
use super::shown::{first_failed, headline, interrupted, is_failed, which_failed};
use super::table::table;

/// What an owner can do with what a run left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Next {
    /// What they would type to go on from the step that failed.
    pub(crate) resume: Option<String>,
    /// Whether there are changes to look at.
    pub(crate) has_changes: bool,
}

/// All steps, and the first that failed from close by.
pub(crate) fn ending(report: &Report, next: &Next) -> Vec<String> {
    let mut lines = table(report);
    lines.push(String::new());
    let indented = |line: String| format!("  {line}").trim_end().to_owned();
    let Some(failed) = first_failed(report) else {
        lines.push(format!("valetkey: {}", headline(report)));
        if let Some(resume) = &next.resume {
            let mut rows = Rows::default();
            rows.command("next", resume, "go on from there");
            lines.extend(rows.into_lines().into_iter().map(indented));
        }
        return lines;
    };
    let told = interrupted(report, which_failed(report));
    lines.extend(sentence(&format!("valetkey: {told}")));
    lines.extend(close(report, failed, Much::Short).into_iter().map(indented));
    let run = &report.run;
    let mut rows = Rows::default();
    let also = report.steps.iter().filter(|step| is_failed(step)).skip(1);
    for step in also {
        rows.add_few(
            "also failed",
            format!("step {} (`{}`)", step.index, step.name),
        );
    }
    rows.end_few();
    let mut label = "next";
    if let Some(advice) = advice(failed) {
        rows.add(label, &advice);
        label = "";
    }
    rows.command(
        label,
        &format!("valetkey report {run} --step {}", failed.index),
        "all output",
    );
    if next.has_changes {
        rows.command("", &format!("valetkey changes show {run}"), "what is left");
    }
    if !report.reached.is_empty() || !report.denied.is_empty() {
        rows.command("", &format!("valetkey audit show {run}"), "each request");
    }
    if let Some(resume) = &next.resume {
        rows.command("", resume, "go on from there");
    }
    lines.extend(rows.into_lines().into_iter().map(indented));
    lines
}

/// One step from close by.
pub(crate) fn of_step(report: &Report, step: &Step) -> Vec<String> {
    let mut lines = sentence(&format!(
        "step {} of {} (`{}`): {}",
        step.index,
        report.steps.len(),
        step.name,
        super::outcome(&step.outcome)
    ));
    let mut rows = close(report, step, Much::Long);
    if let Some(advice) = advice(step) {
        let mut next = Rows::default();
        next.add("next", &advice);
        rows.extend(next.into_lines());
    }
    lines.extend(
        rows.into_iter()
            .map(|line| format!("  {line}").trim_end().to_owned()),
    );
    lines
}
