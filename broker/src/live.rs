//! Who is asking: the runs of this process, by what they prove themselves with.

use std::sync::Arc;

use dashmap::DashMap;
use ring::digest::{SHA256, digest};
use sdk::RunId;
use tokio::time::Instant;

use crate::Run;
use crate::token::{MAX_TOKEN, TokenError};

/// The runs of this process.
///
/// Tokens are kept as their hashes: whoever reads this memory cannot use them.
#[derive(Default)]
pub(crate) struct Live {
    by_token: DashMap<Hash, Entry>,
    runs: DashMap<RunId, Arc<Run>>,
}

type Hash = [u8; 32];

/// What is known of a token that was verified.
enum Entry {
    /// Its run, which may have ended meanwhile.
    Of(Arc<Run>),
    /// Its run has ended; forgotten once it would have expired anyway.
    Ended(Instant),
}

impl Live {
    /// Adds a run with its alias. Its token is verified when it is presented.
    pub(crate) fn add(&self, run: &Arc<Run>, alias: &str) {
        self.runs.insert(run.id().clone(), Arc::clone(run));
        self.remember(alias.as_bytes(), run);
    }

    /// Remembers that a token was verified to be a run's.
    pub(crate) fn remember(&self, token: &[u8], run: &Arc<Run>) {
        self.by_token
            .insert(hash(token), Entry::Of(Arc::clone(run)));
    }

    /// The run of a token that is known; none if the token has to be verified.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Result<Arc<Run>, TokenError>> {
        if token.len() > MAX_TOKEN {
            return Some(Err(TokenError::Invalid));
        }
        Some(match self.by_token.get(&hash(token))?.value() {
            Entry::Of(run) => usable(run),
            Entry::Ended(_) => Err(TokenError::Ended),
        })
    }

    /// A run by its name.
    pub(crate) fn run(&self, id: &RunId) -> Option<Arc<Run>> {
        self.runs.get(id).map(|entry| Arc::clone(entry.value()))
    }

    /// Every run.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        self.runs
            .iter()
            .map(|entry| Arc::clone(entry.value()))
            .collect()
    }

    /// Ends a run in this process: from here on nothing is released to it. Whether it had not ended before.
    pub(crate) fn end(&self, run: &Run) -> bool {
        let is_first = run.end();
        self.runs.remove(run.id());
        for mut entry in self.by_token.iter_mut() {
            let is_its = matches!(entry.value(), Entry::Of(other) if other.id() == run.id());
            if is_its {
                *entry.value_mut() = Entry::Ended(run.deadline);
            }
        }
        is_first
    }

    /// Forgets tokens that would have expired by now.
    pub(crate) fn forget(&self, now: Instant) {
        self.by_token.retain(|_, entry| match entry {
            Entry::Of(_) => true,
            Entry::Ended(until) => *until > now,
        });
    }
}

/// A run, if it may still do anything.
pub(crate) fn usable(run: &Arc<Run>) -> Result<Arc<Run>, TokenError> {
    if run.is_active() {
        Ok(Arc::clone(run))
    } else if Instant::now() >= run.deadline {
        Err(TokenError::Expired)
    } else {
        Err(TokenError::Ended)
    }
}

fn hash(token: &[u8]) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}
