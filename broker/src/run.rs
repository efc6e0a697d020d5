//! One execution under one policy, from its creation to its end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use policies::{Policy, StepName};
use sdk::RunId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Authority, Grant, Tripwire};

/// One execution under one policy.
///
/// Created, then active, then ended; there is no way back. What it may do was fixed when it was created.
pub struct Run {
    pub(crate) id: RunId,
    pub(crate) policy: ArcSwap<Policy>,
    pub(crate) project: PathBuf,
    pub(crate) created: Timestamp,
    pub(crate) expires: Timestamp,
    /// The same moment on a clock that nobody can set back.
    pub(crate) deadline: Instant,
    pub(crate) jti: String,
    /// The only step that its token is good for.
    pub(crate) step: Option<StepName>,
    pub(crate) grants: Vec<Grant>,
    pub(crate) authority: Authority,
    pub(crate) tripwire: Tripwire,
    pub(crate) state: AtomicU8,
    pub(crate) ended: CancellationToken,
}

impl Run {
    /// The run's name.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The policy, frozen when the run was created.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// The step that the run's token was signed for, if it is for one only.
    pub fn token_step(&self) -> Option<&StepName> {
        self.step.as_ref()
    }

    /// The project's folder.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// Whether the run may still do anything.
    pub fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) == ACTIVE && !self.is_expired()
    }

    /// Whether its time is over.
    pub fn is_expired(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Resolves when the run ends: by its owner, by its deadline, or from another process.
    pub async fn ended(&self) {
        tokio::select! {
            () = self.ended.cancelled() => {}
            () = tokio::time::sleep_until(self.deadline) => {}
        }
    }

    /// When the run was created.
    pub fn created_at(&self) -> Timestamp {
        self.created
    }

    /// When the run ends at the latest.
    pub fn expires_at(&self) -> Timestamp {
        self.expires
    }

    /// What the run may use.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The right to a secret, by the owner's name for it.
    pub fn grant(&self, secret: &str) -> Option<&Grant> {
        self.grants.iter().find(|grant| grant.secret() == secret)
    }

    /// The variables that hold placeholders, with the placeholders.
    pub fn environment(&self) -> BTreeMap<String, String> {
        self.environment_of(None)
    }

    /// The same, for one step: only those of the secrets that the policy leaves to it.
    pub fn environment_of(&self, step: Option<&StepName>) -> BTreeMap<String, String> {
        let policy = self.policy().for_step(step.map(StepName::as_str));
        self.grants
            .iter()
            .filter(|grant| policy.uses(grant.secret()))
            .flat_map(|grant| {
                grant
                    .variables()
                    .iter()
                    .map(|name| (name.clone(), grant.placeholder().to_owned()))
            })
            .collect()
    }

    /// The certificate authority that signs for this run only.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Finds what must not leave.
    pub fn tripwire(&self) -> &Tripwire {
        &self.tripwire
    }

    /// Created becomes active. Whether it did: an ended run stays ended.
    pub(crate) fn activate(&self) -> bool {
        self.state
            .compare_exchange(CREATED, ACTIVE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends the run in this process. Whether it had not ended before.
    pub(crate) fn end(&self) -> bool {
        let was = self.state.swap(ENDED, Ordering::AcqRel);
        for grant in &self.grants {
            grant.forget();
        }
        self.ended.cancel();
        was != ENDED
    }
}

/// The states of a run, in the only order they can have.
pub(crate) const CREATED: u8 = 0;
const ACTIVE: u8 = 1;
const ENDED: u8 = 2;
