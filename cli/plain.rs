//! What a program wrote as the lines that a terminal would be left with: no colours, nothing that was written over.

use vte::{Params, Parser, Perform};

use crate::output::sanitised;

/// The lines. Progress that was written over in its line is told by what stood there last.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let mut written = Written::default();
    <Parser>::default().advance(&mut written, text.as_bytes());
    if !written.line.is_empty() {
        written.end_line();
    }
    written.lines
}

#[derive(Default)]
struct Written {
    lines: Vec<String>,
    line: String,
    /// What comes next is written over the line.
    is_at_start: bool,
}

impl Written {
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        self.lines.push(sanitised(line.trim_end()));
        self.is_at_start = false;
    }

    fn put(&mut self, c: char) {
        if std::mem::take(&mut self.is_at_start) {
            self.line.clear();
        }
        self.line.push(c);
    }
}

impl Perform for Written {
    fn print(&mut self, c: char) {
        self.put(c);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => self.end_line(),
            b'\r' => self.is_at_start = true,
            b'\t' => {
                // As far as the next of the places that terminals have for it.
                let width = self.line.chars().count();
                for _ in width % TAB..TAB {
                    self.put(' ');
                }
            }
            BACKSPACE => {
                self.line.pop();
            }
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, _: &Params, _: &[u8], _: bool, _: char) {}
}

const TAB: usize = 8;
const BACKSPACE: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_what_was_written_over_are_left_out() {
        assert_eq!(
            lines("\x1b[31mred\x1b[0m\r\n 10%\r 20%\r100%\ndone\x1b]0;title\x07"),
            ["red", "100%", "done"]
        );
    }

    #[test]
    fn an_empty_line_is_a_line_and_a_missing_end_is_none() {
        assert_eq!(lines("a\n\n\tb"), ["a", "", "        b"]);
        assert!(lines("").is_empty());
    }

    #[test]
    fn what_turns_the_reading_direction_round_is_made_visible() {
        assert_eq!(lines("a\u{202e}b"), ["a\u{fffd}b"]);
        // What some terminals take for the beginning of a command is left out, so none is begun.
        assert_eq!(lines("b\u{9b}2J"), ["b2J"]);
    }
}
