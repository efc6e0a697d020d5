//! How a limit that was reached is told.

use sdk::report::{Limit, LimitHit};

use crate::output::bytes;

/// Of the limit that ended a command.
pub(crate) fn ending(hit: &LimitHit) -> String {
    format!("stopped: {}; {}", reached(hit), advice(hit))
}

/// Of a limit that did not end the command: the program saw an error of its own, and may have failed because of it.
pub(crate) fn met(hit: &LimitHit, passed: bool) -> String {
    if passed {
        format!("{}, and went on", reached(hit))
    } else {
        format!(
            "{}, which may be why it failed; {}",
            reached(hit),
            advice(hit)
        )
    }
}

/// "it reached its memory limit of 512.0 MiB (used: 512.0 MiB)"
pub(crate) fn reached(hit: &LimitHit) -> String {
    let amount = |value: u64| match hit.which {
        Limit::Memory | Limit::Disk | Limit::FileSize | Limit::Output => bytes(value),
        Limit::Wall | Limit::CpuTime => format!("{:.1} s", value as f64 / 1000.0),
        Limit::Cpus | Limit::Processes | Limit::OpenFiles => value.to_string(),
    };
    let used = hit
        .used
        .map_or_else(String::new, |used| format!(" (used: {})", amount(used)));
    format!(
        "it reached its {} limit of {}{used}",
        hit.which.as_str(),
        amount(hit.value)
    )
}

fn advice(hit: &LimitHit) -> String {
    let name = hit.which.as_str();
    format!("raise `limits.{name}` in valetkey.toml if it needs more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit() -> LimitHit {
        LimitHit {
            which: Limit::Processes,
            value: 8,
            used: Some(8),
        }
    }

    #[test]
    fn a_limit_that_made_a_program_fail_is_told_with_what_to_do() {
        assert_eq!(
            met(&hit(), false),
            "it reached its processes limit of 8 (used: 8), which may be why it failed; raise `limits.processes` in \
             valetkey.toml if it needs more"
        );
    }

    #[test]
    fn a_limit_that_a_program_survived_is_told_without_alarm() {
        assert_eq!(
            met(&hit(), true),
            "it reached its processes limit of 8 (used: 8), and went on"
        );
    }
}
