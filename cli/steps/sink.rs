//! Whom a step tells what happens, while it happens.

use std::io;
use std::sync::{Mutex, PoisonError};

use launcher::Stream;
use sdk::report::Retried;

use super::{Attempted, Ended, StepSpec};
use crate::console::Console;
use crate::failure::Failure;
use crate::output::say;
use crate::terminal::Shown;

/// Hears of each step of a run. Steps may run at the same time.
pub(crate) trait Sink: Send + Sync {
    /// A step's sandbox is about to be built, for the first time or once more (attempts count from 1).
    fn started(&self, step: &StepSpec, attempt: u32);

    /// What a step wrote, as it comes.
    fn output(&self, step: &StepSpec, stream: Stream, bytes: &[u8]);

    /// An attempt of a step ended, or nothing of it ran.
    fn ended(&self, step: &StepSpec, attempt: u32, ended: Result<&Ended, &Failure>);

    /// Something that the owner should know, such as a limit that is kept less strictly here.
    fn note(&self, step: &StepSpec, text: &str);

    /// An attempt failed, and another follows.
    fn retried(&self, _: &StepSpec, _attempt: u32, _: &Retried) {}

    /// A step has ended for good, with this outcome.
    fn settled(&self, _: &StepSpec, _: &Attempted) {}
}

/// Two that hear the same, one after the other.
pub(crate) struct Both(pub(crate) Box<dyn Sink>, pub(crate) Box<dyn Sink>);

impl Sink for Both {
    fn started(&self, step: &StepSpec, attempt: u32) {
        self.0.started(step, attempt);
        self.1.started(step, attempt);
    }

    fn output(&self, step: &StepSpec, stream: Stream, bytes: &[u8]) {
        self.0.output(step, stream, bytes);
        self.1.output(step, stream, bytes);
    }

    fn ended(&self, step: &StepSpec, attempt: u32, ended: Result<&Ended, &Failure>) {
        self.0.ended(step, attempt, ended);
        self.1.ended(step, attempt, ended);
    }

    fn note(&self, step: &StepSpec, text: &str) {
        self.0.note(step, text);
        self.1.note(step, text);
    }

    fn retried(&self, step: &StepSpec, attempt: u32, retried: &Retried) {
        self.0.retried(step, attempt, retried);
        self.1.retried(step, attempt, retried);
    }

    fn settled(&self, step: &StepSpec, attempted: &Attempted) {
        self.0.settled(step, attempted);
        self.1.settled(step, attempted);
    }
}

/// Passes the output of a single command on to this process's own.
pub(crate) struct Plain {
    streams: Mutex<(Shown<io::Stdout>, Shown<io::Stderr>)>,
    // With --json the report has standard output for itself.
    json: bool,
    quiet: bool,
}

impl Plain {
    /// All output goes to standard error where standard output is for `json`; nothing is noted where it is `quiet`.
    pub(crate) fn new(json: bool, quiet: bool, console: Console) -> Self {
        let allowed = console.allowed();
        Self {
            streams: Mutex::new((
                Shown::allowing(io::stdout(), allowed),
                Shown::allowing(io::stderr(), allowed),
            )),
            json,
            quiet,
        }
    }
}

impl Sink for Plain {
    fn started(&self, _: &StepSpec, _: u32) {}

    fn output(&self, _: &StepSpec, stream: Stream, bytes: &[u8]) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // A reader that went away is no error of ours.
        let _ = match stream {
            Stream::Stdout if !self.json => streams.0.pass(bytes),
            Stream::Stdout | Stream::Stderr => streams.1.pass(bytes),
        };
    }

    fn ended(&self, _: &StepSpec, _: u32, _: Result<&Ended, &Failure>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let (out, err) = &mut *streams;
        let _ = out.end().and_then(|()| err.end());
    }

    fn note(&self, _: &StepSpec, text: &str) {
        if !self.quiet {
            say(format_args!("note: {text}"));
        }
    }
}
