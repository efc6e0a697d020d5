//! What is left of the log when the power fails, and when the disk is full.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::MutexGuard;

use sdk::RunId;
use sdk::audit::EventKind;

use crate::store::tests::Fixture;

use super::medium::{Laying, Medium};
use super::*;

/// A disk with a cache in front of it. What was not synced is in the cache only.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Device>>);

#[derive(Default)]
struct Device {
    /// None once the power is off.
    file: Option<File>,
    cached: Vec<Change>,
    /// How many bytes there is room for; none if there is enough.
    room: Option<usize>,
    refuses_to_sync: bool,
}

enum Change {
    Append(Vec<u8>),
    Cut(u64),
}

impl Disk {
    fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap()
    }

    fn laying(&self) -> Laying {
        let disk = self.clone();
        Box::new(move |file| {
            disk.device().file = Some(file);
            Box::new(disk.clone())
        })
    }

    /// Takes the power away. Of what was not synced, the disk has written so many bytes by then.
    fn fails(&self, written: usize) {
        let mut device = self.device();
        let mut file = device.file.take().unwrap();
        let mut left = written;
        for change in std::mem::take(&mut device.cached) {
            if let Change::Append(bytes) = change {
                let part = bytes.len().min(left);
                file.append(&bytes[..part]).unwrap();
                left -= part;
            }
        }
    }
}

impl Medium for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut device = self.device();
        let part = device
            .room
            .map_or(bytes.len(), |room| room.min(bytes.len()));
        device.room = device.room.map(|room| room - part);
        device.cached.push(Change::Append(bytes[..part].to_vec()));
        if part < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.device().cached.push(Change::Cut(length));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut device = self.device();
        if device.refuses_to_sync {
            return Err(io::Error::other("the disk is broken"));
        }
        let cached = std::mem::take(&mut device.cached);
        let Some(file) = &mut device.file else {
            return Err(io::Error::other("the power is off"));
        };
        for change in cached {
            match change {
                Change::Append(bytes) => file.append(&bytes)?,
                Change::Cut(length) => file.cut(length)?,
            }
        }
        Ok(())
    }
}

struct Log {
    fixture: Fixture,
    disk: Disk,
    audit: Audit,
}

impl Log {
    fn new(durability: Durability) -> Self {
        let (fixture, disk) = (Fixture::new(), Disk::default());
        let opening = Opening {
            folder: fixture.folder().audit(),
            store: fixture.store(),
            durability,
        };
        let audit = Audit::open_with(opening, CAPACITY, PATIENCE, disk.laying()).unwrap();
        Self {
            fixture,
            disk,
            audit,
        }
    }

    /// How many events the disk has, of lines that are whole. A checkpoint may stand between them at any time.
    fn events(&self) -> usize {
        let path: PathBuf = segment::path(&self.fixture.folder().audit(), self.audit.segment());
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        text.matches("request.started").count()
    }

    /// What the next process finds after the power failed. Nothing of this one runs on.
    fn after_power_failed(self, written: usize) -> (usize, Verification) {
        self.disk.fails(written);
        let (folder, store) = (self.fixture.folder().audit(), self.fixture.store());
        repair(&folder, &store).unwrap();
        let events = self.events();
        std::mem::forget(self.audit);
        (events, verify(&folder, &store, None).unwrap())
    }
}

fn event() -> Event {
    let mut event = Event::new(EventKind::RequestStarted);
    event.run = Some(RunId::new(1, 2));
    event
}

#[tokio::test]
async fn with_disk_durability_no_line_that_was_answered_for_is_lost_when_the_power_fails() {
    // What was not answered for may be on the disk in part.
    for written in [0, 1, 40, 100_000] {
        let log = Log::new(Durability::Disk);
        for events in 1..=5 {
            log.audit.append(&event()).await.unwrap();
            assert_eq!(log.events(), events);
        }
        log.disk.device().refuses_to_sync = true;
        assert_eq!(log.audit.append(&event()).await, Err(AuditUnavailable));
        let (events, found) = log.after_power_failed(written);
        assert_eq!(found.findings, []);
        assert!(found.torn.is_empty());
        assert_eq!(events, if written == 100_000 { 6 } else { 5 });
    }
}

#[tokio::test]
async fn with_process_durability_what_the_power_took_is_told() {
    let log = Log::new(Durability::Process);
    log.audit.append(&event()).await.unwrap();
    log.audit.flush().await.unwrap();
    // The layer does drop what was not synced.
    assert_eq!(log.events(), 0);
    let (_, found) = log.after_power_failed(0);
    let problems: Vec<_> = found.findings.iter().map(|found| found.problem).collect();
    assert_eq!(problems, [Problem::Truncated]);
}

#[tokio::test]
async fn after_a_sync_that_failed_nothing_more_is_promised() {
    let log = Log::new(Durability::Disk);
    log.audit.append(&event()).await.unwrap();
    log.disk.device().refuses_to_sync = true;
    assert_eq!(log.audit.append(&event()).await, Err(AuditUnavailable));
    // What the kernel had dropped by then is not written when it says that all is well again.
    log.disk.device().refuses_to_sync = false;
    assert_eq!(log.audit.append(&event()).await, Err(AuditUnavailable));
}

#[tokio::test]
async fn a_disk_that_fills_up_in_the_middle_of_a_line_leaves_whole_lines_and_goes_on_with_room() {
    for room in [0, 1, 40, 200] {
        let log = Log::new(Durability::Disk);
        log.audit.append(&event()).await.unwrap();
        log.disk.device().room = Some(room);
        log.audit.note(&event());
        for _ in 0..3 {
            assert_eq!(log.audit.append(&event()).await, Err(AuditUnavailable));
        }
        assert_eq!(log.events(), 1);
        log.disk.device().room = None;
        log.audit.append(&event()).await.unwrap();
        // The note was kept meanwhile; what was answered with an error is not there.
        assert_eq!(log.events(), 3);
        log.audit.close();
        let folder = log.fixture.folder().audit();
        let found = verify(&folder, &log.fixture.store(), None).unwrap();
        assert_eq!(found.findings, []);
        assert!(found.checkpoints > 0);
    }
}
