//! How amounts with units are written.

use std::time::Duration;

/// Reads a time such as `15m`, `90s`, `250ms`, `1h30m` or `2d`.
pub fn parse_duration(_text: &str) -> Option<Duration> {
    None
}

/// Reads bytes such as `512MiB`, `20MB` or `4096B`.
pub fn parse_bytes(_text: &str) -> Option<u64> {
    None
}
