//! Tidies up after writers that were killed: cuts off a torn last line, and closes their segments.

use std::path::Path;

use crate::Error;
use crate::store::{Store, StoredSegment};

use super::line::Chain;
use super::read::{Lines, Next};
use super::segment;

/// What was found of one writer that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repaired {
    /// Its segment.
    pub(crate) segment: String,
    /// How many bytes of a torn last line were cut off.
    pub(crate) cut: u64,
}

/// Repairs every open segment whose writer is gone. A segment that does not follow is left as it is, to be found by
/// `verify`: repairing must not hide what somebody did.
pub(crate) fn repair(folder: &Path, store: &Store) -> Result<Vec<Repaired>, Error> {
    let mut repaired = Vec::new();
    for stored in store.open_segments()? {
        match repair_one(folder, store, &stored) {
            Ok(Some(one)) => repaired.push(one),
            Ok(None) => {}
            Err(error) => {
                // The other segments, and this process's own, are not worse for it.
                tracing::warn!(segment = %stored.name, %error, "an audit segment cannot be repaired");
            }
        }
    }
    Ok(repaired)
}

fn repair_one(
    folder: &Path,
    store: &Store,
    stored: &StoredSegment,
) -> Result<Option<Repaired>, Error> {
    let file = match segment::open_abandoned(folder, &stored.name) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Its writer may be about to make the file. If lines were recorded, `verify` says that it is missing.
            return Ok(None);
        }
        Err(error) => return Err(Error::AuditSegment(error)),
    };
    let cutter = file.try_clone().map_err(Error::AuditSegment)?;
    let mut lines = Lines::new(file);
    let mut chain = Chain::start(&stored.name);
    let mut cut = 0;
    loop {
        match lines.next().map_err(Error::AuditSegment)? {
            Next::Line(line) => {
                if chain.follow(line).is_err() {
                    return Ok(Some(Repaired {
                        segment: stored.name.clone(),
                        cut: 0,
                    }));
                }
            }
            Next::Torn => {
                let length = cutter.metadata().map_err(Error::AuditSegment)?.len();
                cut = length.saturating_sub(lines.start());
                cutter
                    .set_len(lines.start())
                    .and_then(|()| cutter.sync_all())
                    .map_err(Error::AuditSegment)?;
                break;
            }
            Next::End => break,
        }
    }
    // Fewer lines than were recorded: the store keeps its head, and `verify` tells of the difference.
    if chain.seq >= stored.head.seq {
        store.close_segment(&stored.name, &chain)?;
    }
    Ok(Some(Repaired {
        segment: stored.name.clone(),
        cut,
    }))
}
