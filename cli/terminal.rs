//! What of a run's output a terminal gets: text and colours, and nothing that commands the terminal.
//!
//! Escape sequences can fill the clipboard, answer into the shell's input, or paint over what we tell. Files and pipes get
//! the output as it is.

use std::io::{self, IsTerminal, Write};

/// One stream of ours that a run's output goes to.
pub(crate) struct Shown<W: Write> {
    to: W,
    filter: Option<Filter>,
}

impl<W: Write + IsTerminal> Shown<W> {
    /// Filters if it is a terminal.
    pub(crate) fn new(to: W) -> Self {
        let filter = to.is_terminal().then(Filter::default);
        Self { to, filter }
    }
}

impl<W: Write> Shown<W> {
    /// Passes output on at once.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => self.to.write_all(&filter.clean(bytes))?,
            None => self.to.write_all(bytes)?,
        }
        self.to.flush()
    }

    /// Ends the output: what follows is ours, in our colours.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => self.to.write_all(&filter.end())?,
            None => return Ok(()),
        }
        self.to.flush()
    }
}

#[derive(Default)]
struct Filter {
    // The beginning of what may become a colour or a control character.
    begun: Vec<u8>,
    coloured: bool,
}

impl Filter {
    fn clean(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.take(*byte, &mut out);
        }
        out
    }

    fn take(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.begun.as_slice(), byte) {
            ([], ESCAPE | C1_LEAD) | ([ESCAPE], b'[') => self.begun.push(byte),
            ([], b'\t' | b'\n' | b'\r' | BACKSPACE) => out.push(byte),
            ([], 0..=0x1f | 0x7f) => out.extend(REPLACEMENT),
            ([], _) => out.push(byte),
            // Colours, and erasing within the line, as progress bars do.
            ([ESCAPE, b'[', ..], b'm' | b'K') => {
                self.coloured |= byte == b'm';
                out.append(&mut self.begun);
                out.push(byte);
            }
            ([ESCAPE, b'[', ..], b'0'..=b'9' | b';' | b':') if self.begun.len() < LONGEST => {
                self.begun.push(byte);
            }
            // U+0080 to U+009F in UTF-8: they mean what an escape and a letter mean.
            ([C1_LEAD], 0x80..=0x9f) => {
                self.begun.clear();
                out.extend(REPLACEMENT);
            }
            _ => {
                self.give_up(out);
                self.take(byte, out);
            }
        }
    }

    /// It did not become anything that may pass: its first character is made harmless, the rest is text.
    fn give_up(&mut self, out: &mut Vec<u8>) {
        match self.begun.as_slice() {
            [ESCAPE, rest @ ..] => {
                out.extend(REPLACEMENT);
                out.extend(rest);
            }
            other => out.extend(other),
        }
        self.begun.clear();
    }

    fn end(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.give_up(&mut out);
        if std::mem::take(&mut self.coloured) {
            out.extend(b"\x1b[0m");
        }
        out
    }
}

const ESCAPE: u8 = 0x1b;
const BACKSPACE: u8 = 0x08;
/// The first byte of U+0080 to U+00BF.
const C1_LEAD: u8 = 0xc2;
const LONGEST: usize = 32;
/// U+FFFD.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

#[cfg(test)]
mod tests {
    use super::*;

    /// Cleans a text in one piece and byte by byte, which must be the same.
    fn shown(text: &str) -> String {
        let mut whole = Filter::default();
        let mut bytes = whole.clean(text.as_bytes());
        bytes.extend(whole.end());
        let mut pieces = Filter::default();
        let mut piecemeal: Vec<u8> = text
            .bytes()
            .flat_map(|byte| pieces.clean(&[byte]))
            .collect();
        piecemeal.extend(pieces.end());
        assert_eq!(bytes, piecemeal);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_and_colours_pass() {
        for text in ["plain\ttext\r\n", "größe ° 日本", "50%\r\x1b[K51%\n"] {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("\x1b[1;38:5:1mred"), "\x1b[1;38:5:1mred\x1b[0m");
    }

    #[test]
    fn what_commands_the_terminal_does_not() {
        for text in [
            "\x1b]52;c;aGk=\x07",     // fills the clipboard
            "\x1b]0;title\x1b\\",     // names the window
            "\x1b[6n",                // answers into the input
            "\x1b[2J\x1b[1;1H\x1b[A", // paints over what was told
            "\x1bP+q544e\x1b\\",      // asks for the terminal's settings
            "\u{9b}6n\u{9d}52;c;x\u{9c}",
            "\x1b\x1b[6n",
            "\x1b[?1049h",
        ] {
            let shown = shown(text);
            assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
        }
    }

    #[test]
    fn a_sequence_without_end_is_not_kept() {
        let mut filter = Filter::default();
        let text = format!("\x1b[{}", "1".repeat(1 << 20));
        assert!(filter.clean(text.as_bytes()).len() > 1 << 20);
        assert!(filter.begun.len() <= LONGEST);
    }
}
