//! All steps of a report, a short line each.

use sdk::report::{Denied, Outcome, Report, Step};

use super::shown::{briefly, is_failed};
use crate::output::count;

/// A line for each step; of a long run, one for many that ended alike.
pub(crate) fn table(report: &Report) -> Vec<String> {
    let steps = &report.steps;
    let widest = |text: &dyn Fn(&Step) -> String| {
        let widths = steps.iter().map(|step| text(step).chars().count());
        widths.max().unwrap_or(0)
    };
    let names = widest(&|step| step.name.clone()).min(WIDEST_NAME);
    let endings = widest(&|step| briefly(&step.outcome));
    let mut lines = Vec::new();
    for alike in steps.chunk_by(|one, next| !is_failed(one) && one.outcome == next.outcome) {
        match alike {
            [first, .., last] if steps.len() > MOST_LINES && alike.len() > 2 => {
                lines.push(format!(
                    "   {} to {}  {}",
                    first.index,
                    last.index,
                    briefly(&first.outcome)
                ));
            }
            _ => lines.extend(alike.iter().map(|step| {
                let mark = if is_failed(step) { '>' } else { ' ' };
                let line = format!(
                    "{mark} {:>2}  {:names$}  {:endings$}  {}",
                    step.index,
                    step.name,
                    briefly(&step.outcome),
                    remarks(step)
                );
                line.trim_end().to_owned()
            })),
        }
    }
    lines
}

/// "0.3 s, attempt 2, 2 files, 4 requests, 1 refused, 2 failed"
fn remarks(step: &Step) -> String {
    if step.outcome == Outcome::NotReached {
        return String::new();
    }
    let mut remarks = vec![format!("{:.1} s", step.wall_ms as f64 / 1000.0)];
    if !step.retried.is_empty() {
        remarks.push(format!("attempt {}", step.attempts));
    }
    if let Some(files) = step.files_changed.filter(|files| *files > 0) {
        let dropped = if step.rolled_back { " dropped" } else { "" };
        remarks.push(format!("{}{dropped}", count(files, "file")));
    }
    let requests: u64 = step.reached.iter().map(|host| host.requests).sum();
    if requests > 0 {
        remarks.push(count(requests, "request"));
    }
    let times = |all: &[Denied]| -> u64 { all.iter().map(|one| one.times).sum() };
    let (refused, failed) = (times(&step.denied), times(&step.failed));
    if refused > 0 {
        remarks.push(format!("{refused} refused"));
    }
    if failed > 0 {
        remarks.push(format!("{failed} failed"));
    }
    remarks.join(", ")
}

const WIDEST_NAME: usize = 24;
/// Of a run with more steps, those that ended alike are told together.
const MOST_LINES: usize = 12;
