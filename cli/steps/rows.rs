//! Rows for people: each begins with what it is about, and is folded to the width of a terminal.

use crate::output::{count, sanitised};

/// Rows, one below the other.
#[derive(Debug, Default)]
pub(super) struct Rows {
    lines: Vec<String>,
    few: Vec<(String, String)>,
}

impl Rows {
    /// The lines, as they are to be printed.
    pub(super) fn into_lines(self) -> Vec<String> {
        self.lines
    }

    /// A command to be typed, which is not folded, and what it is for.
    pub(super) fn command(&mut self, label: &str, command: &str, what_for: &str) {
        let whole = format!("{label:LABEL$}{command:COMMAND$}  # {what_for}");
        self.lines.push(match whole.chars().count() > SENTENCE {
            true => format!("{label:LABEL$}{command}"),
            false => whole,
        });
    }

    /// One row.
    pub(super) fn add(&mut self, label: &str, text: &str) {
        for (number, line) in folded(&sanitised(text), WIDTH).into_iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            let line = format!("{label:LABEL$}{line}");
            self.lines.push(line.trim_end().to_owned());
        }
    }

    /// One of several under the same label, of which only some are told.
    pub(super) fn add_few(&mut self, label: &str, text: String) {
        self.few.push((label.to_owned(), text));
    }

    /// Ends those.
    pub(super) fn end_few(&mut self) {
        let few = std::mem::take(&mut self.few);
        let more = few.len().saturating_sub(MOST_ROWS);
        for (number, (label, text)) in few.iter().take(MOST_ROWS).enumerate() {
            self.add(if number == 0 { label } else { "" }, text);
        }
        if more > 0 {
            self.add("", &format!("and {more} more"));
        }
    }

    /// The last `most` of some lines; `is_cut` if more came before all of them.
    pub(super) fn quote(&mut self, label: &str, lines: &[String], is_cut: bool, most: usize) {
        // Blank lines at its end say nothing.
        let end = lines.iter().rposition(|line| !line.is_empty());
        let lines = &lines[..end.map_or(0, |end| end + 1)];
        let left_out = lines.len().saturating_sub(most);
        let mut label = label;
        if left_out > 0 || is_cut {
            let before = match (left_out, is_cut) {
                (0, _) => "…".to_owned(),
                (left_out, false) => format!("… {} before", count(left_out as u64, "line")),
                (left_out, true) => {
                    format!("… more than {} before", count(left_out as u64, "line"))
                }
            };
            self.lines.push(format!("{label:LABEL$}{before}"));
            label = "";
        }
        for line in &lines[left_out..] {
            let all: Vec<char> = line.chars().collect();
            // An empty line is a line, too.
            let mut parts = all.chunks(QUOTED).collect::<Vec<_>>();
            parts.resize(parts.len().max(1), &[]);
            let is_cropped = parts.len() > MOST_PARTS;
            parts.truncate(MOST_PARTS);
            let last = parts.len() - 1;
            for (number, part) in parts.into_iter().enumerate() {
                let mark = if number == 0 { "|" } else { " " };
                let end = if is_cropped && number == last {
                    "…"
                } else {
                    ""
                };
                let text: String = part.iter().collect();
                let line = format!("{label:LABEL$}{mark} {text}{end}");
                self.lines.push(line.trim_end().to_owned());
                label = "";
            }
        }
    }
}

/// A sentence of its own, in lines of a terminal's width.
pub(super) fn sentence(text: &str) -> Vec<String> {
    folded(&sanitised(text), SENTENCE)
}

/// Text in lines of at most so many characters, as far as its words allow it.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else {
            continue;
        };
        let is_full = line.chars().count() + 1 + word.chars().count() > width;
        match (line.is_empty(), is_full) {
            (true, _) => line.push_str(word),
            (false, false) => {
                line.push(' ');
                line.push_str(word);
            }
            (false, true) => lines.push(word.to_owned()),
        }
    }
    lines
}

/// What labels take of a line.
const LABEL: usize = 13;
/// What is left of the 80 columns of a terminal, with two of margin.
const WIDTH: usize = 80 - 2 - LABEL - 1;
const SENTENCE: usize = 79;
/// What a quoted line has of it, and how many of those it may take.
const QUOTED: usize = WIDTH - 3;
const MOST_PARTS: usize = 4;
/// Commands with the name of a run are about so long.
const COMMAND: usize = 47;
const MOST_ROWS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_folded_behind_its_label() {
        let mut rows = Rows::default();
        rows.add("changed", &["some-path"; 8].join(", "));
        let lines = rows.into_lines();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0].starts_with("changed      some-path, "),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("             some-path"), "{lines:?}");
        assert!(lines.iter().all(|line| line.len() <= 78), "{lines:?}");
    }

    #[test]
    fn of_many_only_some_are_told_and_how_many_more_there_are() {
        let mut rows = Rows::default();
        (0..9).for_each(|number| rows.add_few("host", number.to_string()));
        rows.end_few();
        let lines = rows.into_lines();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[4].trim(), "and 5 more");
    }

    #[test]
    fn the_last_lines_are_quoted_and_a_long_one_is_cropped() {
        let mut rows = Rows::default();
        let lines = ["a", "b", "", "c", ""].map(str::to_owned);
        rows.quote("said", &lines, false, 2);
        let long = ["x".repeat(10_000)];
        rows.quote("said", &long, true, 2);
        let told = rows.into_lines();
        assert_eq!(
            told[..3],
            [
                "said         … 2 lines before",
                "             |",
                "             | c"
            ]
        );
        assert_eq!(told.len(), 3 + 1 + MOST_PARTS);
        assert!(told.last().unwrap().ends_with("x…"));
    }
}
