//! How long nothing can happen: the nearer a limit, the sooner it is worth looking again.

use std::time::Duration;

/// Until this much memory can be filled by as many processors.
pub(crate) fn memory(left: u64, processors: u64) -> Duration {
    written(left, processors).clamp(Duration::from_millis(5), MOST)
}

/// Until this much can be written.
pub(crate) fn disk(left: u64, processors: u64) -> Duration {
    // Into the kernel's memory; no disk takes half of it.
    (written(left, processors) * 2).clamp(Duration::from_millis(2), MOST)
}

/// Until this much processor time can be used.
pub(crate) fn cpu(left: Duration, processors: u64) -> Duration {
    let shortest = Duration::from_millis(5);
    left.div_f64(processors.max(1) as f64).max(shortest)
}

/// No processor fills pages faster than this.
const BYTES_PER_SECOND: u64 = 4 << 30;
const MOST: Duration = Duration::from_millis(250);

fn written(bytes: u64, processors: u64) -> Duration {
    let rate = BYTES_PER_SECOND.saturating_mul(processors.max(1));
    Duration::from_secs_f64(bytes as f64 / rate as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_far_from_its_limits_is_left_alone() {
        assert_eq!(memory(8 << 30, 2), MOST);
        assert_eq!(disk(1 << 30, 1), MOST);
        let a_minute = Duration::from_secs(60);
        assert_eq!(cpu(a_minute, 2), Duration::from_secs(30));
    }

    #[test]
    fn a_command_near_its_limits_is_looked_at_often() {
        assert_eq!(memory(1 << 20, 2), Duration::from_millis(5));
        assert_eq!(disk(0, 2), Duration::from_millis(2));
        assert_eq!(cpu(Duration::ZERO, 2), Duration::from_millis(5));
    }

    #[test]
    fn what_cannot_be_reached_in_time_is_not_looked_for() {
        // 400 MiB by two processors take 50 milliseconds.
        let time = memory(400 << 20, 2);
        assert!(time > Duration::from_millis(40) && time < Duration::from_millis(60));
    }
}
