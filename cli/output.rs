//! Printing: data to standard output, words for people to standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;
use crate::problem::chain;

/// Prints a line of data. A reader that went away is no error of ours.
pub(crate) fn data(line: impl fmt::Display) {
    let mut out = io::stdout().lock();
    let _ = if out.is_terminal() {
        writeln!(out, "{}", sanitised_lines(&line.to_string()))
    } else {
        writeln!(out, "{line}")
    };
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => data(text),
        Err(error) => say(format_args!("error: {error}")),
    }
}

/// Tells people something.
pub(crate) fn say(line: impl fmt::Display) {
    let mut err = io::stderr().lock();
    // A path or a host in it may be the agent's.
    let _ = writeln!(err, "{}", sanitised_lines(&line.to_string()));
}

/// Tells what went wrong: people on standard error, programs by a line of JSON on standard output.
pub(crate) fn failure(failure: &Failure, as_json: bool) {
    if as_json {
        json(&failure.to_json());
        return;
    }
    for problem in failure.problems() {
        say(problem);
    }
    say(format_args!("error: {}", chain(failure)));
    if let Some(advice) = failure.advice() {
        say(format_args!("hint: {advice}"));
    }
}

/// Whether a person can be asked something.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Text as it may be shown on a terminal: control characters, which could move the cursor or hide words, made visible.
pub(crate) fn sanitised(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() || is_bidi(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// The same for text of more than one line.
fn sanitised_lines(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            let cells: Vec<String> = line.split('\t').map(sanitised).collect();
            cells.join("\t")
        })
        .collect();
    lines.join("\n")
}

// Characters that turn the reading direction round, so that text reads otherwise than it runs (CVE-2021-42574).
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// A count of bytes in the largest binary unit that keeps it short.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{count} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// "1 host", "2 hosts".
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 {
        format!("1 {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_keeps_its_lines_and_commands_no_terminal() {
        assert_eq!(
            sanitised_lines("a\tb\nc\x1b[2J\u{9b}\r"),
            "a\tb\nc\u{fffd}[2J\u{fffd}\u{fffd}"
        );
    }
}
