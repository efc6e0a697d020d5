//! What a step does, as events for those who follow its run.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use super::feed::Feed;
use super::steps::StepListener;

/// Passes on what one step does.
pub(super) struct Hearing<'h> {
    step: &'h str,
    index: u32,
    feed: &'h Arc<Feed>,
    /// Bytes of a character that has not come as a whole yet, of standard output and standard error.
    begun: Mutex<[Vec<u8>; 2]>,
}

impl<'h> Hearing<'h> {
    pub(super) fn new(step: &'h str, index: u32, feed: &'h Arc<Feed>) -> Self {
        Self {
            step,
            index,
            feed,
            begun: Mutex::default(),
        }
    }

    /// Passes on what is left of both streams.
    pub(super) fn end(&self) {
        for stream in [STDOUT, STDERR] {
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = std::mem::take(&mut begun[place(stream)]);
            drop(begun);
            if !rest.is_empty() {
                self.pass(stream, &String::from_utf8_lossy(&rest));
            }
        }
    }

    fn pass(&self, stream: &str, text: &str) {
        let told = json!({"step": self.step, "index": self.index, "stream": stream, "text": text});
        self.feed.flow("output", told.to_string());
    }
}

impl StepListener for Hearing<'_> {
    fn started(&self) {
        let told = json!({"step": self.step, "index": self.index});
        self.feed.milestone("started", told.to_string());
    }

    fn output(&self, stream: &'static str, bytes: &[u8]) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = std::mem::take(&mut begun[place(stream)]);
        all.extend_from_slice(bytes);
        begun[place(stream)] = all.split_off(whole(&all));
        drop(begun);
        if !all.is_empty() {
            self.pass(stream, &String::from_utf8_lossy(&all));
        }
    }

    fn note(&self, text: &str) {
        let told = json!({"step": self.step, "index": self.index, "text": text});
        self.feed.flow("note", told.to_string());
    }
}

/// How many of the bytes are whole characters, or none of UTF-8 at all.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // Only an end that may go on is kept back: three bytes at most.
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Err(_) => {
            let tail = bytes.len().saturating_sub(3);
            let begins = bytes[tail..].iter().rposition(|byte| *byte >= 0xC0);
            match begins.map(|at| tail + at) {
                Some(at)
                    if std::str::from_utf8(&bytes[at..])
                        .is_err_and(|error| error.error_len().is_none()) =>
                {
                    at
                }
                Some(_) | None => bytes.len(),
            }
        }
    }
}

fn place(stream: &str) -> usize {
    usize::from(stream == STDERR)
}

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

#[cfg(test)]
mod tests {
    use super::super::feed::News;
    use super::*;

    #[tokio::test]
    async fn a_character_that_comes_in_pieces_is_told_as_one() {
        let feed = Feed::new();
        let hearing = Hearing::new("s", 1, &feed);
        hearing.output("stdout", b"\xff a\xe2\x82");
        hearing.output("stderr", b"e");
        hearing.output("stdout", b"\xac\xf0");
        hearing.end();
        feed.end();
        let mut reader = feed.reader(None);
        let (mut out, mut err) = (String::new(), String::new());
        while let News::Event(entry) = reader.next().await {
            let told: serde_json::Value = serde_json::from_str(&entry.data).unwrap();
            let text = told["text"].as_str().unwrap();
            match told["stream"].as_str() {
                Some("stdout") => out.push_str(text),
                _ => err.push_str(text),
            }
        }
        assert_eq!((out.as_str(), err.as_str()), ("\u{fffd} a€\u{fffd}", "e"));
    }
}
