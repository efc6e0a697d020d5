//! Whether the log is what was written: finds edits, gaps, reorderings and truncations, and says where.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::store::{Store, StoredSegment};

use super::checkpoint::{Checkpoint, EVENT, VerificationKey};
use super::line::{Broken, Chain};
use super::read::{Lines, Next};
use super::segment;

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// How many segments were read.
    pub segments: usize,
    /// How many lines follow.
    pub lines: u64,
    /// How many checkpoints are signed by this installation.
    pub checkpoints: u64,
    /// Whether the verification key was there, so that the MACs were checked too.
    pub has_verification_key: bool,
    /// Segments of killed processes with a torn last line that was not cut off yet; no fault.
    pub torn: Vec<PathBuf>,
    /// What is wrong. Empty if the log is what was written.
    pub findings: Vec<Finding>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; 0 for the file as a whole.
    pub line: u64,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a line or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The line, or the one before it, is not what was written.
    Edited,
    /// Lines are missing before it.
    Gap,
    /// It stands after a line that was written later.
    Reordered,
    /// Lines are missing at the end.
    Truncated,
    /// Lines were added to a segment that was closed.
    Extended,
    /// A checkpoint is not signed by this installation, or not for this chain.
    Signature,
    /// The file of a segment is not there.
    Missing,
    /// A file is there that this installation did not write.
    Unknown,
    /// The file cannot be read.
    Unreadable,
}

impl Problem {
    /// The problem as a word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Edited => "edited",
            Self::Gap => "gap",
            Self::Reordered => "reordered",
            Self::Truncated => "truncated",
            Self::Extended => "extended",
            Self::Signature => "signature",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Unreadable => "unreadable",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}",
            self.file.display(),
            self.line,
            self.problem.as_str()
        )
    }
}

/// Reads every segment of a state folder and checks it. Processes may go on writing meanwhile.
pub(crate) fn verify(
    folder: &Path,
    store: &Store,
    key: Option<VerificationKey>,
) -> Result<Verification, Error> {
    // The files first: a segment is in the store before its file is made, so a file without a segment is foreign. The
    // heads before the lines: what is written meanwhile only makes a segment longer than its head.
    let mut files = files(folder)?;
    let mut all = Verification {
        segments: 0,
        lines: 0,
        checkpoints: 0,
        has_verification_key: key.is_some(),
        torn: Vec::new(),
        findings: Vec::new(),
    };
    let mut key = key.map(|key| (0, key));
    for stored in store.segments()? {
        if let Some((position, key)) = &mut key {
            while *position < stored.position {
                key.evolve();
                *position += 1;
            }
        }
        let path = segment::path(folder, &stored.name);
        files.remove(&path);
        let mut reading = Reading {
            store,
            stored: &stored,
            path,
            all: &mut all,
            key: key.as_ref().map(|(_, key)| key.segment()),
            epoch: 0,
        };
        if let Err((line, problem)) = reading.read() {
            let file = reading.path;
            all.findings.push(Finding {
                file,
                line,
                problem,
            });
        }
    }
    all.findings.extend(files.into_iter().map(|file| Finding {
        file,
        line: 0,
        problem: Problem::Unknown,
    }));
    Ok(all)
}

/// One segment being read.
struct Reading<'v> {
    store: &'v Store,
    stored: &'v StoredSegment,
    path: PathBuf,
    all: &'v mut Verification,
    key: Option<super::EpochKey>,
    epoch: u64,
}

impl Reading<'_> {
    fn read(&mut self) -> Result<(), (u64, Problem)> {
        let head = self.stored.head;
        let file = match segment::open_to_read(&self.path) {
            Ok(file) => file,
            // It was begun, and its writer was killed before the first line, or is about to write it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && head.seq == 0 => {
                return Ok(());
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err((0, Problem::Missing));
            }
            Err(_) => return Err((0, Problem::Unreadable)),
        };
        self.all.segments += 1;
        let mut lines = Lines::new(file);
        let mut chain = Chain::start(&self.stored.name);
        let mut number = 0;
        loop {
            let before = chain;
            match lines.next().map_err(|_| (number, Problem::Unreadable))? {
                Next::Line(line) => {
                    number += 1;
                    chain
                        .follow(line)
                        .map_err(|broken| (number, problem(broken)))?;
                    self.check(line, &before)
                        .map_err(|problem| (number, problem))?;
                    self.all.lines += 1;
                }
                Next::Torn if self.stored.is_closed => return Err((number + 1, Problem::Extended)),
                Next::Torn => {
                    self.all.torn.push(self.path.clone());
                    break;
                }
                Next::End => break,
            }
            if chain.seq == head.seq && chain.hash != head.hash {
                return Err((number, Problem::Edited));
            }
            if self.stored.is_closed && chain.seq > head.seq {
                return Err((number, Problem::Extended));
            }
        }
        if chain.seq < head.seq {
            return Err((number + 1, Problem::Truncated));
        }
        Ok(())
    }

    /// Checks a line that may be a checkpoint of the chain before it.
    fn check(&mut self, line: &[u8], before: &Chain) -> Result<(), Problem> {
        if memchr::memmem::find(line, EVENT.as_bytes()).is_none() {
            return Ok(());
        }
        let Ok(checkpoint) = serde_json::from_slice::<Checkpoint>(line) else {
            // Some other line that holds the word.
            return Ok(());
        };
        let public = self
            .store
            .audit_public_key(&checkpoint.kid)
            .map_err(|_| Problem::Unreadable)?
            .ok_or(Problem::Signature)?;
        // Every checkpoint takes one epoch; some epochs have none, because their line could not be written.
        let is_in_order =
            checkpoint.epoch >= self.epoch && checkpoint.epoch <= before.seq + MOST_SKIPPED;
        if !is_in_order || !checkpoint.is_signed(&self.stored.name, before, &public) {
            return Err(Problem::Signature);
        }
        if let Some(key) = &mut self.key {
            while self.epoch < checkpoint.epoch {
                key.evolve();
                self.epoch += 1;
            }
            if !checkpoint.is_tagged(&self.stored.name, before, key) {
                return Err(Problem::Signature);
            }
            key.evolve();
        }
        self.epoch = checkpoint.epoch + 1;
        self.all.checkpoints += 1;
        Ok(())
    }
}

fn problem(broken: Broken) -> Problem {
    match broken {
        Broken::Edited => Problem::Edited,
        Broken::Gap => Problem::Gap,
        Broken::Reordered => Problem::Reordered,
    }
}

fn files(folder: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let entries = std::fs::read_dir(folder).map_err(Error::AuditSegment)?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(Error::AuditSegment))
        .collect()
}

/// A disk that stays full for weeks uses up no more epochs than this.
const MOST_SKIPPED: u64 = 1 << 24;
