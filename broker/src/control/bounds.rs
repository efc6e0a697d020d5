//! How much of what the steps of a run wrote is kept: of a run of many steps, less of the older ones.

use sdk::api::StepInfo;
use sdk::report::{Step, Tail};

/// Shortens what the oldest steps wrote until all together is within bounds. The newest step's is left as it is.
pub(super) fn shorten_oldest(infos: &mut [StepInfo]) {
    let mut all: usize = steps(infos).map(length).sum();
    let Some((_, older)) = infos.split_last_mut() else {
        return;
    };
    for step in steps(older) {
        if all <= MOST {
            return;
        }
        let before = length(step);
        shorten(step);
        all -= before - length(step);
    }
}

/// The same step with only the ends of what it wrote, for those who followed it and have read the rest.
pub(super) fn in_short(step: &Step) -> Step {
    let mut step = step.clone();
    shorten(&mut step);
    step
}

fn steps(infos: &mut [StepInfo]) -> impl Iterator<Item = &mut Step> {
    infos.iter_mut().filter_map(|info| info.report.as_mut())
}

fn tails(step: &mut Step) -> impl Iterator<Item = &mut Tail> {
    let retried = step.retried.iter_mut().map(|one| &mut one.stderr);
    [&mut step.stdout, &mut step.stderr]
        .into_iter()
        .chain(retried)
}

fn length(step: &mut Step) -> usize {
    tails(step).map(|tail| tail.text.len()).sum()
}

fn shorten(step: &mut Step) {
    for tail in [&mut step.stdout, &mut step.stderr] {
        tail.shorten(SHORT);
    }
    for attempt in &mut step.retried {
        attempt.stderr.shorten(SHORTEST);
    }
}

/// Six times as much as JSON is still an answer that clients take.
const MOST: usize = 2 * 1024 * 1024;
/// Bytes of each stream.
const SHORT: usize = 2 * 1024;
/// Bytes of an attempt that was followed by another: a step has up to 20 of them.
const SHORTEST: usize = 128;

#[cfg(test)]
mod tests {
    use sdk::report::{Outcome, Retried};

    use super::*;

    fn info(text: &str) -> StepInfo {
        let tail = serde_json::json!({"text": text, "truncated": false, "bytes": text.len()});
        serde_json::from_value(serde_json::json!({
            "name": "one", "index": 1, "state": "ended",
            "report": {
                "name": "one", "index": 1, "outcome": "passed", "limits_hit": [], "attempts": 1, "wall_ms": 1,
                "stdout": tail, "stderr": tail, "reached": [],
            },
        }))
        .unwrap()
    }

    #[test]
    fn of_many_steps_the_oldest_are_shortened_and_the_newest_is_whole() {
        let text = "ä".repeat(30_000);
        let mut infos: Vec<StepInfo> = (0..100).map(|_| info(&text)).collect();
        shorten_oldest(&mut infos);
        let all: usize = steps(&mut infos).map(length).sum();
        assert!(all <= MOST, "{all}");
        let tail = |place: usize| &infos[place].report.as_ref().unwrap().stdout;
        assert_eq!(tail(99).text, text);
        assert!(!tail(99).truncated);
        assert_eq!(tail(0).text.len(), SHORT);
        assert!(tail(0).truncated);
        assert_eq!(tail(0).bytes, 60_000);
    }

    #[test]
    fn of_a_run_whose_every_step_is_tried_again_and_again_little_is_kept() {
        let mut info = info(&"\u{1}".repeat(64 << 10));
        let report = info.report.as_mut().unwrap();
        let attempt = Retried {
            outcome: Outcome::Passed,
            because: "exit".to_owned(),
            wall_ms: 1,
            wait_ms: 0,
            stderr: report.stderr.clone(),
        };
        report.retried = vec![attempt; 20];
        let told = serde_json::to_string(&in_short(report)).unwrap();
        assert!(told.len() < 64 << 10, "{}", told.len());
        let mut infos = vec![info; 500];
        shorten_oldest(&mut infos);
        let kept = serde_json::to_string(&infos).unwrap();
        assert!(kept.len() < 32 << 20, "{}", kept.len());
    }

    #[test]
    fn of_few_steps_nothing_is_shortened() {
        let mut infos = vec![info("hello"), info("you")];
        shorten_oldest(&mut infos);
        assert_eq!(infos, [info("hello"), info("you")]);
    }
}
