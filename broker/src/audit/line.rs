//! What a line of the log looks like, and how each line is tied to the one before it.
//!
//! A line is one JSON object. Its last member is `hash`: SHA-256 over the exact bytes of the line without that member.
//! The member before it is `prev`: the hash of the line before, or for the first line a value made from the segment's
//! name, so that neither a line nor a whole segment can be put in another's place.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use ring::digest::{SHA256, digest};
use sdk::audit::Event;
use serde::{Deserialize, Serialize};

use crate::hex;

/// A hash that ties a line to all lines before it.
pub(crate) type Hash = [u8; 32];

/// Where a chain of lines has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The number of lines so far; the last line's `seq`.
    pub(crate) seq: u64,
    /// The last line's hash.
    pub(crate) hash: Hash,
}

impl Chain {
    /// The chain of a segment that has no line yet.
    pub(crate) fn start(segment: &str) -> Self {
        let text = format!("valetkey audit v1 segment {segment}");
        Self {
            seq: 0,
            hash: sha256(text.as_bytes()),
        }
    }

    /// Writes the next line at the end of a buffer.
    pub(crate) fn push(&mut self, body: &Body, time: &Stamp, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(b"{\"v\":1,\"seq\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.seq + 1).as_bytes());
        out.extend_from_slice(b",\"time\":\"");
        out.extend_from_slice(time.0.as_bytes());
        out.extend_from_slice(b"\",");
        out.extend_from_slice(body.members());
        out.extend_from_slice(b",\"prev\":\"");
        hex::push(out, &self.hash);
        out.extend_from_slice(b"\"}");
        let hash = sha256(&out[start..]);
        out.pop();
        out.extend_from_slice(b",\"hash\":\"");
        hex::push(out, &hash);
        out.extend_from_slice(b"\"}\n");
        self.seq += 1;
        self.hash = hash;
    }

    /// Checks that a line, without its line end, is the next one, and moves on to it.
    pub(crate) fn follow(&mut self, line: &[u8]) -> Result<(), Broken> {
        let (hash, prev, seq) = Frame::read(line).ok_or(Broken::Edited)?;
        if seq > self.seq + 1 {
            return Err(Broken::Gap);
        }
        if seq < self.seq + 1 {
            return Err(Broken::Reordered);
        }
        if prev != self.hash {
            return Err(Broken::Edited);
        }
        *self = Self { seq, hash };
        Ok(())
    }
}

/// What a line says of itself, written out: a JSON object.
pub(crate) struct Body(Vec<u8>);

impl Body {
    /// Writes out a struct with at least one member; anything else is an error.
    pub(crate) fn new<T: Serialize>(body: &T) -> Result<Self, serde_json::Error> {
        let mut out = Vec::with_capacity(USUAL_BODY);
        serde_json::to_writer(&mut out, body)?;
        if out.starts_with(b"{") && out.len() > 2 {
            Ok(Self(out))
        } else {
            Err(serde::ser::Error::custom("a line's body must be an object"))
        }
    }

    /// Writes out an event.
    pub(crate) fn of(event: &Event) -> Result<Self, serde_json::Error> {
        let mut out = Vec::with_capacity(USUAL_BODY);
        super::event::write(event, &mut out)?;
        Ok(Self(out))
    }

    /// Without its braces: it continues the object that the line began.
    fn members(&self) -> &[u8] {
        &self.0[1..self.0.len() - 1]
    }
}

/// When a line was written, as text: microseconds, always six digits, so that times sort as text.
pub(crate) struct Stamp(String);

impl Stamp {
    pub(crate) fn new(time: Timestamp) -> Result<Self, jiff::Error> {
        let mut text = String::with_capacity(32);
        DateTimePrinter::new()
            .precision(Some(6))
            .print_timestamp(&time, &mut text)?;
        Ok(Self(text))
    }
}

/// How a line fails to follow from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Its bytes are not those that were written, or the line before was replaced.
    Edited,
    /// Lines are missing before it.
    Gap,
    /// It stands after a line that was written later.
    Reordered,
}

/// The members of a line that the chain is made of.
#[derive(Deserialize)]
struct Frame<'a> {
    v: u32,
    seq: u64,
    prev: &'a str,
    hash: &'a str,
}

impl Frame<'_> {
    /// The hash, `prev` and `seq` of a line whose hash is right.
    fn read(line: &[u8]) -> Option<(Hash, Hash, u64)> {
        let frame: Frame<'_> = serde_json::from_slice(line).ok()?;
        let hash = hex::decode(frame.hash)?;
        let without = line.len().checked_sub(HASH_MEMBER)?;
        let (front, member) = line.split_at(without);
        let is_last = member.starts_with(b",\"hash\":\"") && member.ends_with(b"\"}");
        let mut hashed = Vec::with_capacity(front.len() + 1);
        hashed.extend_from_slice(front);
        hashed.push(b'}');
        let is_right = is_last && frame.v == sdk::audit::VERSION && sha256(&hashed) == hash;
        if is_right {
            Some((hash, hex::decode(frame.prev)?, frame.seq))
        } else {
            None
        }
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Room for a request's event.
const USUAL_BODY: usize = 640;

/// `,"hash":"` + 64 digits + `"}`.
const HASH_MEMBER: usize = 9 + 64 + 2;

#[cfg(test)]
mod tests {
    use sdk::audit::EventKind;

    use super::*;

    fn lines(count: usize) -> Vec<Vec<u8>> {
        let mut chain = Chain::start("seg");
        (0..count)
            .map(|_| {
                let mut out = Vec::new();
                let event = Body::new(&Event::new(EventKind::RunCreated)).unwrap();
                let time = Stamp::new(Timestamp::UNIX_EPOCH).unwrap();
                chain.push(&event, &time, &mut out);
                assert_eq!(out.pop(), Some(b'\n'));
                out
            })
            .collect()
    }

    #[test]
    fn a_line_is_one_json_object_with_the_members_of_the_contract() {
        let line = lines(1).remove(0);
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["v"], 1);
        assert_eq!(value["seq"], 1);
        assert_eq!(value["time"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(value["event"], "run.created");
    }

    #[test]
    fn lines_in_order_follow_each_other() {
        let mut chain = Chain::start("seg");
        for line in lines(3) {
            chain.follow(&line).unwrap();
        }
        assert_eq!(chain.seq, 3);
    }

    #[test]
    fn an_edited_line_is_found() {
        let mut line = lines(1).remove(0);
        let at = line.iter().position(|byte| *byte == b'9').unwrap();
        line[at] = b'8';
        assert_eq!(Chain::start("seg").follow(&line), Err(Broken::Edited));
    }

    #[test]
    fn a_missing_line_is_a_gap() {
        let lines = lines(3);
        let mut chain = Chain::start("seg");
        chain.follow(&lines[0]).unwrap();
        assert_eq!(chain.follow(&lines[2]), Err(Broken::Gap));
    }

    #[test]
    fn a_line_of_another_segment_does_not_follow() {
        let line = lines(1).remove(0);
        assert_eq!(Chain::start("other").follow(&line), Err(Broken::Edited));
    }

    #[test]
    fn a_member_after_the_hash_is_an_edit() {
        let mut line = lines(1).remove(0);
        line.pop();
        line.extend_from_slice(b",\"x\":1}");
        assert_eq!(Chain::start("seg").follow(&line), Err(Broken::Edited));
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        assert!(Body::new(&7).is_err());
        assert!(Body::new(&serde_json::json!({})).is_err());
        assert!(Body::new(&serde_json::json!({"event": "x"})).is_ok());
    }
}
