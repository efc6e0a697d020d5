//! What happens in a step as events that programs read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use launcher::Stream;
use sdk::happening::{self, Happening};
use sdk::pieces::{Piece, Pieces};
use sdk::report::Retried;

use super::report::of_attempted;
use super::{Attempted, Ended, Sink, StepSpec};
use crate::failure::Failure;

/// Tells everything to `tell`, from one thread for each step that runs.
pub(crate) struct Telling<T> {
    tell: T,
    with_end: bool,
    streams: Mutex<HashMap<(u32, &'static str), Pieces>>,
}

impl<T: Fn(Happening) + Send + Sync> Telling<T> {
    pub(crate) fn new(tell: T) -> Self {
        Self {
            tell,
            with_end: true,
            streams: Mutex::default(),
        }
    }

    /// Leaves it to somebody else to tell how a step ended.
    pub(crate) fn but_its_end(self) -> Self {
        Self {
            with_end: false,
            ..self
        }
    }

    // Not held while something is told, which may take as long as a reader likes.
    fn streams(&self) -> MutexGuard<'_, HashMap<(u32, &'static str), Pieces>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn written(&self, step: &StepSpec, stream: &'static str, piece: Piece) {
        (self.tell)(Happening::Output(happening::Output {
            step: step.name.clone(),
            index: step.index,
            stream: stream.to_owned(),
            text: piece.text,
            base64: piece.base64,
        }));
    }
}

impl<T: Fn(Happening) + Send + Sync> Sink for Telling<T> {
    fn started(&self, step: &StepSpec, attempt: u32) {
        (self.tell)(Happening::Started(happening::Started {
            step: step.name.clone(),
            index: step.index,
            attempt,
        }));
    }

    fn output(&self, step: &StepSpec, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => STDOUT,
            Stream::Stderr => STDERR,
        };
        let mut streams = self.streams();
        let pieces = streams.entry((step.index, stream)).or_default().add(bytes);
        drop(streams);
        for piece in pieces {
            self.written(step, stream, piece);
        }
    }

    fn ended(&self, step: &StepSpec, attempt: u32, ended: Result<&Ended, &Failure>) {
        for stream in [STDOUT, STDERR] {
            let rest = self.streams().remove(&(step.index, stream));
            if let Some(piece) = rest.and_then(|mut pieces| pieces.end()) {
                self.written(step, stream, piece);
            }
        }
        let Ok(Ended { finished, .. }) = ended else {
            return;
        };
        for limit in &finished.limits_hit {
            (self.tell)(Happening::Limit(happening::Limited {
                step: step.name.clone(),
                index: step.index,
                attempt,
                limit: limit.clone(),
                outcome: finished.outcome.clone(),
            }));
        }
    }

    fn note(&self, step: &StepSpec, text: &str) {
        (self.tell)(Happening::Note(happening::Note {
            step: step.name.clone(),
            index: step.index,
            text: text.to_owned(),
        }));
    }

    fn retried(&self, step: &StepSpec, attempt: u32, failed: &Retried) {
        (self.tell)(Happening::Retry(happening::Retry {
            step: step.name.clone(),
            index: step.index,
            attempt,
            failed: failed.clone(),
        }));
    }

    fn settled(&self, step: &StepSpec, attempted: &Attempted) {
        if self.with_end {
            (self.tell)(Happening::Ended(Box::new(happening::Ended {
                step: Some(step.name.clone()),
                index: step.index,
                report: Some(of_attempted(step, attempted)),
                refused: None,
            })));
        }
    }
}

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";
