//! What a run did, as the log has it.

use std::path::Path;

use sdk::RunId;
use sdk::audit::Event;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::store::Store;

use super::read::{Lines, Next};
use super::segment;

/// One line of the log about a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The line's number within its segment.
    pub seq: u64,
    /// When it was written (RFC 3339).
    pub time: String,
    /// What happened.
    pub event: Event,
}

#[derive(Deserialize)]
struct Head {
    seq: u64,
    time: String,
}

/// Every event of a run, oldest first; none if there is no such run.
///
/// A line that cannot be read is skipped here; finding those is what [`verify`](super::verify()) is for.
///
/// # Errors
/// If the state or a segment cannot be read.
pub(crate) fn show(
    folder: &Path,
    store: &Store,
    run: &RunId,
) -> Result<Option<Vec<Record>>, Error> {
    let Some(stored) = store.run(run)? else {
        return Ok(None);
    };
    let mut records = Vec::new();
    for name in store.segments_of(&stored)? {
        let file = match segment::open_to_read(&segment::path(folder, &name)) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::AuditSegment(error)),
        };
        let mut lines = Lines::new(file);
        while let Next::Line(line) = lines.next().map_err(Error::AuditSegment)? {
            // Most lines of a shared segment are about other runs: look before parsing.
            if memchr::memmem::find(line, run.as_str().as_bytes()).is_some() {
                records.extend(read(line).filter(|record| record.event.run.as_ref() == Some(run)));
            }
        }
    }
    records.sort_by(|one, other| one.time.cmp(&other.time));
    Ok(Some(records))
}

fn read(line: &[u8]) -> Option<Record> {
    let head: Head = serde_json::from_slice(line).ok()?;
    let event = serde_json::from_slice(line).ok()?;
    Some(Record {
        seq: head.seq,
        time: head.time,
        event,
    })
}
