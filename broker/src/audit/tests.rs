//! What the log promises, shown on a whole state folder.

use std::path::PathBuf;

use sdk::RunId;
use sdk::audit::EventKind;

use crate::store::tests::Fixture;

use super::line::Stamp;
use super::*;

struct Log {
    fixture: Fixture,
    folder: PathBuf,
}

impl Log {
    fn new() -> Self {
        let fixture = Fixture::new();
        let folder = fixture.folder().audit();
        fixture.store();
        Self { fixture, folder }
    }

    fn opening(&self) -> Opening {
        Opening {
            folder: self.folder.clone(),
            store: self.fixture.store(),
            durability: Durability::Process,
        }
    }

    fn open(&self) -> Audit {
        Audit::open(self.opening()).unwrap()
    }

    fn key(&self) -> VerificationKey {
        let text = self
            .fixture
            .folder()
            .read_small("audit-verification.key")
            .unwrap()
            .unwrap();
        VerificationKey(crate::hex::decode(std::str::from_utf8(&text).unwrap()).unwrap())
    }

    fn verify(&self) -> Verification {
        verify(&self.folder, &self.fixture.store(), Some(self.key())).unwrap()
    }

    /// A closed segment of so many events, and its file.
    async fn closed(&self, events: usize) -> PathBuf {
        let audit = self.open();
        for _ in 0..events {
            audit.append(&event()).await.unwrap();
        }
        audit.close();
        segment::path(&self.folder, audit.segment())
    }
}

fn event() -> Event {
    let mut event = Event::new(EventKind::RequestStarted);
    event.run = Some(RunId::new(1, 2));
    event
}

/// Rewrites a file line by line.
fn edit(path: &PathBuf, edit: impl FnOnce(&mut Vec<String>)) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    edit(&mut lines);
    std::fs::write(
        path,
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    )
    .unwrap();
}

async fn finding(change: impl FnOnce(&mut Vec<String>)) -> Option<(u64, Problem)> {
    let log = Log::new();
    let path = log.closed(5).await;
    edit(&path, change);
    log.verify().findings.first().map(|finding| {
        assert_eq!(finding.file, path);
        (finding.line, finding.problem)
    })
}

#[tokio::test]
async fn a_log_as_it_was_written_verifies() {
    let log = Log::new();
    log.closed(5).await;
    log.closed(3).await;
    let verification = log.verify();
    assert_eq!(verification.findings, []);
    // Each segment ends with a checkpoint.
    assert_eq!((verification.lines, verification.checkpoints), (10, 2));
}

#[tokio::test]
async fn an_edit_is_found_at_its_line() {
    let change = |lines: &mut Vec<String>| lines[2] = lines[2].replace("started", "denied");
    assert_eq!(finding(change).await, Some((3, Problem::Edited)));
}

#[tokio::test]
async fn a_missing_line_is_found() {
    let change = |lines: &mut Vec<String>| drop(lines.remove(2));
    assert_eq!(finding(change).await, Some((3, Problem::Gap)));
}

#[tokio::test]
async fn swapped_lines_are_found() {
    assert_eq!(
        finding(|lines| lines.swap(1, 2)).await,
        Some((2, Problem::Gap))
    );
}

#[tokio::test]
async fn a_line_moved_down_is_found() {
    let change = |lines: &mut Vec<String>| {
        let line = lines[0].clone();
        lines.insert(3, line);
    };
    assert_eq!(finding(change).await, Some((4, Problem::Reordered)));
}

#[tokio::test]
async fn a_cut_tail_is_found() {
    let change = |lines: &mut Vec<String>| lines.truncate(3);
    assert_eq!(finding(change).await, Some((4, Problem::Truncated)));
}

#[tokio::test]
async fn an_added_line_is_found() {
    let change = |lines: &mut Vec<String>| {
        let mut out = Vec::new();
        let last: serde_json::Value = serde_json::from_str(&lines[5]).unwrap();
        let mut chain = Chain {
            seq: 6,
            hash: crate::hex::decode(last["hash"].as_str().unwrap()).unwrap(),
        };
        let now = Stamp::new(jiff::Timestamp::now()).unwrap();
        chain.push(&Body::new(&event()).unwrap(), &now, &mut out);
        lines.push(String::from_utf8(out).unwrap().trim_end().to_owned());
    };
    assert_eq!(finding(change).await, Some((7, Problem::Extended)));
}

#[tokio::test]
async fn a_chain_made_anew_without_the_keys_is_found() {
    let log = Log::new();
    let path = log.closed(2).await;
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = std::fs::read_to_string(&path).unwrap();
    let checkpoint: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let (mut out, mut chain) = (Vec::new(), Chain::start(&name));
    let now = Stamp::new(jiff::Timestamp::now()).unwrap();
    let created = Body::new(&Event::new(EventKind::RunCreated)).unwrap();
    chain.push(&created, &now, &mut out);
    chain.push(&Body::new(&event()).unwrap(), &now, &mut out);
    let copied = checkpoint::Checkpoint {
        event: "log.checkpoint".to_owned(),
        kid: checkpoint["kid"].as_str().unwrap().to_owned(),
        epoch: 0,
        mac: checkpoint["mac"].as_str().unwrap().to_owned(),
        signature: checkpoint["signature"].as_str().unwrap().to_owned(),
    };
    chain.push(&Body::new(&copied).unwrap(), &now, &mut out);
    std::fs::write(&path, out).unwrap();
    let finding = log.verify().findings.remove(0);
    assert_eq!((finding.line, finding.problem), (3, Problem::Signature));
}

#[tokio::test]
async fn a_whole_segment_that_is_gone_is_found() {
    let log = Log::new();
    let path = log.closed(1).await;
    std::fs::remove_file(path).unwrap();
    assert_eq!(log.verify().findings[0].problem, Problem::Missing);
}

#[tokio::test]
async fn a_file_that_nobody_wrote_is_found() {
    let log = Log::new();
    let path = log.closed(1).await;
    std::fs::copy(&path, path.with_file_name("copy.jsonl")).unwrap();
    assert_eq!(log.verify().findings[0].problem, Problem::Unknown);
}

#[tokio::test]
async fn a_line_stands_in_the_file_when_its_append_returns() {
    let log = Log::new();
    let audit = log.open();
    audit.append(&event()).await.unwrap();
    let text = std::fs::read_to_string(segment::path(&log.folder, audit.segment())).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains("request.started"));
}

#[tokio::test]
async fn a_note_stands_in_the_file_after_a_flush() {
    let log = Log::new();
    let audit = log.open();
    audit.note(&event());
    audit.flush().await.unwrap();
    assert_eq!(log.verify().lines, 2);
}

#[tokio::test]
async fn a_log_that_cannot_be_written_says_so_and_loses_no_note() {
    let log = Log::new();
    let hidden = log.folder.with_file_name("hidden");
    let audit = log.open();
    std::fs::rename(&log.folder, &hidden).unwrap();
    audit.note(&event());
    assert_eq!(audit.append(&event()).await, Err(AuditUnavailable));
    std::fs::rename(&hidden, &log.folder).unwrap();
    audit.append(&event()).await.unwrap();
    audit.close();
    let text = std::fs::read_to_string(segment::path(&log.folder, audit.segment())).unwrap();
    // The note was kept; the event that was answered with an error is not there.
    assert_eq!(text.matches("request.started").count(), 2);
}

#[tokio::test]
async fn many_writers_at_once_leave_whole_segments() {
    let log = Log::new();
    let audit = Arc::new(log.open());
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let audit = Arc::clone(&audit);
            tokio::spawn(async move {
                for _ in 0..20 {
                    audit.append(&event()).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    audit.close();
    let verification = log.verify();
    assert_eq!(verification.findings, []);
    assert!(verification.lines >= 64 * 20);
}

#[tokio::test]
async fn a_torn_last_line_is_no_fault_and_is_cut_off() {
    use std::io::Write;
    let log = Log::new();
    let audit = log.open();
    audit.append(&event()).await.unwrap();
    audit.flush().await.unwrap();
    let path = segment::path(&log.folder, audit.segment());
    // As if its process had been killed: nobody closes the segment, and the lock goes.
    let copy = std::fs::read(&path).unwrap();
    let name = audit.segment().to_owned();
    std::fs::remove_file(&path).unwrap();
    let mut file = std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.write_all(&copy).unwrap();
    file.write_all(b"{\"v\":1,\"se").unwrap();
    drop(file);
    assert_eq!(log.verify().torn.first(), Some(&path));
    let repaired = repair(&log.folder, &log.fixture.store()).unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(
        (repaired[0].segment.as_str(), repaired[0].cut),
        (name.as_str(), 10)
    );
    assert_eq!(std::fs::read(&path).unwrap(), copy);
    assert_eq!(log.verify().findings, []);
}

#[tokio::test]
async fn the_segment_of_a_living_process_is_left_alone() {
    let log = Log::new();
    let audit = log.open();
    audit.append(&event()).await.unwrap();
    assert_eq!(repair(&log.folder, &log.fixture.store()).unwrap(), []);
    audit.append(&event()).await.unwrap();
}

#[tokio::test]
async fn the_macs_need_the_verification_key_of_this_installation() {
    let log = Log::new();
    log.closed(1).await;
    let other = VerificationKey([9; 32]);
    let verification = verify(&log.folder, &log.fixture.store(), Some(other)).unwrap();
    assert_eq!(verification.findings[0].problem, Problem::Signature);
    let verification = verify(&log.folder, &log.fixture.store(), None).unwrap();
    assert_eq!(verification.findings, []);
    assert!(!verification.has_verification_key);
}
