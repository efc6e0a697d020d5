//! Which control sequences of a run's output reach the owner's terminal.
//!
//! Output is taken apart and written anew, so that a terminal reads it as we did, also where a sequence comes in pieces.
//! Whatever is not listed here does not pass: filling the clipboard, naming or resizing the window, printing, asking for
//! the title or for settings (the answer would be typed into the owner's shell, with the run's words in it), pictures.

use std::collections::BTreeSet;

use vte::{Params, Parser, Perform};

/// How much a run's output may do to the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Colours, and erasing within the line, as progress bars do. What else it tries is shown as U+FFFD.
    Lines,
    /// The same behind a label of ours, which must not be written over: nothing goes back in the line.
    Labelled,
    /// What a program needs that has the whole screen for itself: moving, erasing, the alternate screen, keys, the mouse.
    Screen,
}

/// Takes output apart and gives back what may be shown.
pub(crate) struct Filter {
    // Without its `std` feature the parser keeps no more than a kilobyte, however long a sequence is.
    parser: Parser,
    shown: Screen,
}

impl Filter {
    pub(crate) fn new(allowed: Allowed) -> Self {
        Self {
            parser: Parser::default(),
            shown: Screen {
                allowed,
                out: Vec::new(),
                left: BTreeSet::new(),
            },
        }
    }

    /// What of `bytes` may be shown. The beginning of a sequence is kept until its end comes.
    pub(crate) fn clean(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.parser.advance(&mut self.shown, bytes);
        std::mem::take(&mut self.shown.out)
    }

    /// What would put the terminal back as it was now.
    pub(crate) fn undoing(&self) -> Vec<u8> {
        let left = self.shown.left.iter().copied();
        left.flat_map(Left::undone).collect()
    }

    /// What puts the terminal back as it was: what follows is ours.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        self.parser = Parser::default();
        let left = std::mem::take(&mut self.shown.left);
        left.into_iter().flat_map(Left::undone).collect()
    }
}

struct Screen {
    allowed: Allowed,
    out: Vec<u8>,
    left: BTreeSet<Left>,
}

/// Something that was changed and is to be changed back, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Colours,
    ScrollRegion,
    Charset,
    Keypad,
    Insert,
    CursorStyle,
    /// A mode that is set and is usually not.
    Set(u16),
    /// A mode that is usually set and is not.
    Reset(u16),
}

impl Left {
    fn undone(self) -> Vec<u8> {
        match self {
            Self::Colours => b"\x1b[0m".to_vec(),
            // Setting it moves the cursor.
            Self::ScrollRegion => b"\x1b7\x1b[r\x1b8".to_vec(),
            Self::Charset => b"\x1b(B\x0f".to_vec(),
            Self::Keypad => b"\x1b>".to_vec(),
            Self::Insert => b"\x1b[4l".to_vec(),
            Self::CursorStyle => b"\x1b[0 q".to_vec(),
            Self::Set(mode) => format!("\x1b[?{mode}l").into_bytes(),
            Self::Reset(mode) => format!("\x1b[?{mode}h").into_bytes(),
        }
    }
}

impl Screen {
    fn refuse(&mut self) {
        if self.allowed != Allowed::Screen {
            self.out.extend(REPLACEMENT);
        }
    }

    fn remember(&mut self, what: Left, is_left: bool) {
        match is_left {
            true => self.left.insert(what),
            false => self.left.remove(&what),
        };
    }

    fn write(&mut self, marker: &str, numbers: &str, end: &str) {
        self.out
            .extend(format!("\x1b[{marker}{numbers}{end}").bytes());
    }

    /// `CSI ? … h` and `l`: of the modes, those that are listed.
    fn modes(&mut self, params: &Params, action: char) {
        let is_set = action == 'h';
        for mode in params.iter().filter_map(|param| param.first().copied()) {
            if USUALLY_RESET.contains(&mode) {
                self.remember(Left::Set(mode), is_set);
            } else if USUALLY_SET.contains(&mode) {
                self.remember(Left::Reset(mode), !is_set);
            } else {
                continue;
            }
            self.write("?", &mode.to_string(), &action.to_string());
        }
    }
}

impl Perform for Screen {
    fn print(&mut self, c: char) {
        if c.is_control() {
            self.refuse();
        } else {
            let mut bytes = [0; 4];
            self.out.extend(c.encode_utf8(&mut bytes).bytes());
        }
    }

    fn execute(&mut self, byte: u8) {
        match (self.allowed, byte) {
            (_, b'\t' | b'\n') => self.out.push(byte),
            (Allowed::Lines | Allowed::Screen, b'\r' | BACKSPACE) => self.out.push(byte),
            (Allowed::Screen, BELL | VERTICAL_TAB | FORM_FEED | SHIFT_IN) => self.out.push(byte),
            (Allowed::Screen, SHIFT_OUT) => {
                self.remember(Left::Charset, true);
                self.out.push(byte);
            }
            (Allowed::Lines | Allowed::Labelled | Allowed::Screen, _) => self.refuse(),
        }
    }

    fn csi_dispatch(&mut self, params: &Params, marks: &[u8], ignored: bool, action: char) {
        let numbers = numbers(params);
        let first = params.iter().next().and_then(|param| param.first());
        let first = first.copied().unwrap_or(0);
        let is_bare = numbers.is_empty();
        if ignored {
            return self.refuse();
        }
        if let (b"", 'm') = (marks, action) {
            self.remember(Left::Colours, !is_bare);
            return self.write("", &numbers, "m");
        }
        // To the end of the line; otherwise the label would be erased.
        let is_behind = self.allowed != Allowed::Labelled || is_bare;
        if let (b"", 'K', true) = (marks, action, is_behind) {
            return self.write("", &numbers, "K");
        }
        if self.allowed != Allowed::Screen {
            return self.refuse();
        }
        let end = action.to_string();
        match (marks, action) {
            // Moving the cursor; erasing, inserting and repeating characters; tabulators.
            (b"", 'A'..='I' | 'L' | 'M' | 'P' | 'X' | 'Z' | '@' | '`' | 'a' | 'b' | 'd'..='g') => {
                self.write("", &numbers, &end);
            }
            // Not 3: what was there before the run stays in the history.
            (b"", 'J') if first < 3 => self.write("", &numbers, &end),
            (b"", 'S' | 'T') if params.len() == 1 => self.write("", &numbers, &end),
            (b"", 's' | 'u') if is_bare => self.write("", "", &end),
            (b"", 'r') => {
                self.remember(Left::ScrollRegion, !is_bare);
                self.write("", &numbers, &end);
            }
            (b"", 'h' | 'l') if numbers == "4" => {
                self.remember(Left::Insert, action == 'h');
                self.write("", &numbers, &end);
            }
            // Where is the cursor, what kind of terminal is this: the answers hold numbers of the terminal's own.
            (b"", 'n') if numbers == "5" || numbers == "6" => self.write("", &numbers, &end),
            (b"", 'c') if is_bare => self.write("", "", &end),
            (b">", 'c') if is_bare => self.write(">", "", &end),
            (b"?", 'h' | 'l') => self.modes(params, action),
            (b" ", 'q') if params.len() == 1 => {
                self.remember(Left::CursorStyle, first != 0);
                self.write("", &numbers, " q");
            }
            (b"!", 'p') if is_bare => self.write("", "", "!p"),
            _ => self.refuse(),
        }
    }

    fn esc_dispatch(&mut self, marks: &[u8], ignored: bool, byte: u8) {
        if ignored || self.allowed != Allowed::Screen {
            return match (marks, byte) {
                // The end of a string that was refused already.
                (b"", b'\\') => {}
                _ => self.refuse(),
            };
        }
        match (marks, byte) {
            // Saving and restoring the cursor, lines up and down, a tabulator.
            (b"", b'7' | b'8' | b'D' | b'E' | b'H' | b'M') => {}
            (b"", b'=' | b'>') => self.remember(Left::Keypad, byte == b'='),
            // Which characters there are: lines for drawing, British, American.
            (b"(" | b")", b'0' | b'A' | b'B') => self.remember(Left::Charset, byte != b'B'),
            _ => return,
        }
        self.out.push(ESCAPE);
        self.out.extend(marks);
        self.out.push(byte);
    }

    fn osc_dispatch(&mut self, _params: &[&[u8]], _by_bell: bool) {
        self.refuse();
    }

    fn unhook(&mut self) {
        self.refuse();
    }
}

/// Parameters as they stand in a sequence; nothing for a single 0, which is what leaving it out means.
fn numbers(params: &Params) -> String {
    let all: Vec<String> = params
        .iter()
        .map(|param| {
            let parts: Vec<String> = param.iter().map(ToString::to_string).collect();
            parts.join(":")
        })
        .collect();
    match all.join(";") {
        zero if zero == "0" => String::new(),
        text => text,
    }
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const VERTICAL_TAB: u8 = 0x0b;
const FORM_FEED: u8 = 0x0c;
const SHIFT_OUT: u8 = 0x0e;
const SHIFT_IN: u8 = 0x0f;
/// U+FFFD.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Keys of the cursor, reverse video, origin, a blinking cursor, the alternate screen (47, 1047 to 1049), the mouse (1000 to
/// 1006), being told of the focus, the meta key, pasting in brackets, drawing at once.
const USUALLY_RESET: &[u16] = &[
    1, 5, 6, 12, 47, 1000, 1002, 1003, 1004, 1006, 1047, 1048, 1049, 2004, 2026,
];
/// Going on in the next line, showing the cursor, the meta key.
const USUALLY_SET: &[u16] = &[7, 25, 1034];

#[cfg(test)]
mod tests {
    use super::*;

    /// Cleans a text in one piece and byte by byte, which must be the same.
    fn shown(allowed: Allowed, text: &str) -> String {
        let mut whole = Filter::new(allowed);
        let mut bytes = whole.clean(text.as_bytes());
        bytes.extend(whole.end());
        let mut pieces = Filter::new(allowed);
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
        for allowed in [Allowed::Lines, Allowed::Screen] {
            for text in ["plain\ttext\r\n", "größe ° 日本", "50%\r\x1b[K51%\n"] {
                assert_eq!(shown(allowed, text), text);
            }
            assert_eq!(
                shown(allowed, "\x1b[1;38:5:1mred"),
                "\x1b[1;38:5:1mred\x1b[0m"
            );
            assert_eq!(shown(allowed, "\x1b[31mred\x1b[0m"), "\x1b[31mred\x1b[m");
        }
    }

    #[test]
    fn behind_a_label_nothing_goes_back_in_the_line() {
        let behind = |text: &str| shown(Allowed::Labelled, text);
        assert_eq!(
            behind("\x1b[31mred\t\x1b[K\n"),
            "\x1b[31mred\t\x1b[K\n\x1b[0m"
        );
        for back in ["\x1b[2K", "\x1b[1K", "\x08", "\r", "\x1b[1G", "\x1b[9D"] {
            let text = format!("{back}deploy | done");
            assert_eq!(behind(&text), "\u{fffd}deploy | done", "{back:?}");
        }
        // A line that is the program's own may be written over.
        assert_eq!(shown(Allowed::Lines, "50%\x08\x1b[2K"), "50%\x08\x1b[2K");
    }

    /// What commands the terminal to do what neither a text nor a screen needs.
    const COMMANDS: &[&str] = &[
        "\x1b]52;c;aGk=\x07",              // fills the clipboard
        "\x1b]52;c;?\x07",                 // asks for it
        "\x1b]0;title\x1b\\",              // names the window
        "\x1b]8;;http://evil.example\x07", // a link that says something else
        "\x1b]11;?\x07",                   // asks for a colour
        "\x1b]1337;File=:aGk=\x07",        // stores a file
        "\x1b[21t",                        // asks for the title
        "\x1b[8;1;1t",                     // resizes the window
        "\x1b[5i",                         // prints
        "\x1b[?5i",                        // prints
        "\x1bP+q544e\x1b\\",               // asks for the terminal's settings
        "\x1bP$qm\x1b\\",                  // the same
        "\x1bPq#0;2;0;0;0#0~~\x1b\\",      // a picture
        "\x1b_Gi=1;AAAA\x1b\\",            // a picture
        "\x1b^message\x1b\\",              // a private message
        "\x1bXstring\x1b\\",               // a string
        "\x1b[>4;2m",                      // reports keys in another way
        "\x1b[=1u",                        // the same
        "\x1b[?6n",                        // asks
        "\x1b[=c",                         // asks for the unit's name
        "\x05",                            // asks for the answerback
        "\x1b[3J",                         // forgets what was there before
        "\x1b[?3h",                        // resizes to 132 columns
        "\x1b[?9001h",                     // passes raw keys
        "\x1b[20h",                        // ends lines in another way
        "\x1bc",                           // resets it
        "\x1b#8",                          // fills the screen
        "\x1b%@",                          // leaves UTF-8
        "\u{9b}21t",
        "\u{9d}52;c;x\u{9c}",
        "\x1b\x1b[21t",
        "\x1b[1\x1b[21t",
    ];

    #[test]
    fn what_commands_the_terminal_does_not_pass() {
        for allowed in [Allowed::Lines, Allowed::Screen] {
            for text in COMMANDS {
                let shown = shown(allowed, text);
                assert!(!shown.contains(char::is_control), "{text:?}: {shown:?}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_command_nothing() {
        for allowed in [Allowed::Lines, Allowed::Screen] {
            // The one-byte forms of `ESC [` and `ESC ]`.
            let out = Filter::new(allowed).clean(b"\x9b21t\x9d0;x\x07\xff\xc2");
            assert!(!out.contains(&0x9b) && !out.contains(&0x9d), "{out:?}");
        }
    }

    /// What a program with the whole screen does.
    const FULL_SCREEN: &[&str] = &[
        "\x1b[2J\x1b[1;1H\x1b[A\x1b[10;5f\x1b[3d\x1b[7G",
        "\x1b7\x1b[5L\x1b[2M\x1b[4P\x1b[3@\x1b[9X\x1b8\x1bM",
        "\x1b[s\x1b[u\x1b[2S\x1b[2T\x1b[5b",
        "\x1b[6n\x1b[c\x1b[>c",
        "\x07\x0b\x0c",
    ];

    #[test]
    fn a_program_can_use_the_whole_screen_if_it_has_a_terminal_and_else_not() {
        for text in FULL_SCREEN {
            assert_eq!(shown(Allowed::Screen, text), *text);
            let lines = shown(Allowed::Lines, text);
            assert!(!lines.contains(char::is_control), "{lines:?}");
        }
    }

    #[test]
    fn a_program_that_leaves_the_screen_changed_leaves_it_as_it_was() {
        assert_eq!(
            shown(
                Allowed::Screen,
                "\x1b[?1049h\x1b[?25l\x1b[?1h\x1b=\x1b[2;9r"
            ),
            "\x1b[?1049h\x1b[?25l\x1b[?1h\x1b=\x1b[2;9r\x1b7\x1b[r\x1b8\x1b>\x1b[?1l\x1b[?1049l\x1b[?25h"
        );
        // One that tidies up itself gets nothing more.
        let tidy = "\x1b[?1049h\x1b[?25l\x1b(0\x1b(B\x1b[4h\x1b[4l\x1b[?25h\x1b[?1049l";
        assert_eq!(shown(Allowed::Screen, tidy), tidy);
    }

    #[test]
    fn of_several_modes_the_listed_ones_pass() {
        assert_eq!(
            shown(Allowed::Screen, "\x1b[?25;3;9001l"),
            "\x1b[?25l\x1b[?25h"
        );
    }

    #[test]
    fn a_sequence_without_end_takes_no_memory() {
        for begin in ["\x1b[", "\x1b]0;", "\x1bP", "\x1b_"] {
            let mut filter = Filter::new(Allowed::Screen);
            let text = format!("{begin}{}", "1".repeat(1 << 20));
            assert!(filter.clean(text.as_bytes()).is_empty());
            assert!(size_of_val(&filter.parser) < 4096);
            // And it does not swallow what is ours.
            assert!(filter.end().is_empty());
            assert_eq!(filter.clean(b"ours"), b"ours");
        }
    }
}
