//! The output of several steps on one terminal: line by line, each with the name of its step.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use launcher::Stream;

use super::{Ended, Sink, StepSpec};
use crate::failure::Failure;
use crate::output::say;
use crate::sequences::Allowed;
use crate::terminal::{self, Shown};

/// Passes output on with a label before each line.
pub(crate) struct Labelled {
    state: Mutex<State>,
    json: bool,
    quiet: bool,
    width: usize,
    /// Whether labels on standard output and on standard error have colours.
    colours: [bool; 2],
}

struct State {
    out: Shown<io::Stdout>,
    err: Shown<io::Stderr>,
    // What was written of a line that has no end yet.
    begun: HashMap<(u32, bool), Vec<u8>>,
    noted: Vec<String>,
}

impl Labelled {
    /// Labels as wide as the longest of `names`. All output goes to standard error where standard output is for `json`.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>, json: bool, quiet: bool) -> Self {
        Self {
            state: Mutex::new(State {
                out: Shown::allowing(io::stdout(), Allowed::Labelled),
                err: Shown::allowing(io::stderr(), Allowed::Labelled),
                begun: HashMap::new(),
                noted: Vec::new(),
            }),
            json,
            quiet,
            width: names.map(str::len).max().unwrap_or(0),
            colours: [
                terminal::has_colours(io::stdout()),
                terminal::has_colours(io::stderr()),
            ],
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, state: &mut State, step: &StepSpec, is_out: bool, line: &[u8]) {
        let is_out = is_out && !self.json;
        let name = format!("{:width$}", step.name, width = self.width);
        let label = match self.colours[usize::from(!is_out)] {
            true => {
                let colour = COLOURS[step.index as usize % COLOURS.len()];
                // All that the label changes ends before the step's own words begin.
                format!("\x1b[{colour}m{name}\x1b[0m | ")
            }
            false => format!("{name} | "),
        };
        // A carriage return would write over the label, so what follows it is a line of its own.
        let mut parts: Vec<&[u8]> = line.split(|byte| *byte == b'\r').collect();
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            parts.push(b"");
        }
        for part in parts {
            let text = [label.as_bytes(), part].concat();
            // A reader that went away is no error of ours.
            let _ = match is_out {
                true => write_line(&mut state.out, &text),
                false => write_line(&mut state.err, &text),
            };
        }
    }
}

/// Colours that a line left on end with it.
fn write_line<W: Write>(to: &mut Shown<W>, text: &[u8]) -> io::Result<()> {
    to.pass(text)?;
    to.end()?;
    to.pass(b"\n")
}

impl Sink for Labelled {
    fn started(&self, step: &StepSpec, attempt: u32) {
        if !self.quiet && attempt > 1 {
            say(format_args!("note: `{}`: attempt {attempt}", step.name));
        }
    }

    fn output(&self, step: &StepSpec, stream: Stream, bytes: &[u8]) {
        let mut state = self.state();
        let is_out = stream == Stream::Stdout;
        let mut begun = state
            .begun
            .remove(&(step.index, is_out))
            .unwrap_or_default();
        for byte in bytes {
            match byte {
                b'\n' => {
                    self.line(&mut state, step, is_out, &begun);
                    begun.clear();
                }
                _ => begun.push(*byte),
            }
            if begun.len() == LONGEST_LINE {
                self.line(&mut state, step, is_out, &begun);
                begun.clear();
            }
        }
        state.begun.insert((step.index, is_out), begun);
    }

    fn ended(&self, step: &StepSpec, _: u32, _: Result<&Ended, &Failure>) {
        let mut state = self.state();
        for is_out in [true, false] {
            if let Some(begun) = state.begun.remove(&(step.index, is_out))
                && !begun.is_empty()
            {
                self.line(&mut state, step, is_out, &begun);
            }
        }
    }

    fn note(&self, step: &StepSpec, text: &str) {
        if self.quiet {
            return;
        }
        let mut state = self.state();
        // What is true of the machine is true for each step.
        if !state.noted.iter().any(|noted| noted == text) {
            state.noted.push(text.to_owned());
            say(format_args!("note: `{}`: {text}", step.name));
        }
    }
}

/// Cyan, green, magenta, blue, yellow: not red, which looks like an error, and none that a light or dark background hides.
const COLOURS: [u8; 5] = [36, 32, 35, 34, 33];
const LONGEST_LINE: usize = 8 << 10;
