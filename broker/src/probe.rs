//! The run that asks for a refused host, to see that it is refused.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use policies::Policy;
use sdk::RunId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::run::CREATED;
use crate::{Authority, Error, Run, Tripwire, random};

/// A run that may do nothing, for as long as this value lives.
///
/// Its policy is the one without a rule, and nobody can give it another one. It has no token, so nobody can be it; no
/// grant, so nothing is released to it; and no authority, so no certificate is ever signed for it. It is not kept: no
/// list of runs shows it. The log does, through the events that name it.
pub struct Probe {
    run: Arc<Run>,
}

impl Probe {
    /// Makes a probe. Nothing is read, written or generated but its name.
    pub(crate) fn new() -> Result<Self, Error> {
        let created = Timestamp::now();
        let id = RunId::new(
            u64::try_from(created.as_millisecond()).unwrap_or(0),
            random::number()?,
        );
        let run = Run {
            id,
            policy: ArcSwap::from_pointee(Policy::default_for_no_file()),
            project: "/".into(),
            created,
            expires: created.saturating_add(LIFETIME).map_err(Error::Clock)?,
            deadline: Instant::now() + LIFETIME.unsigned_abs(),
            jti: String::new(),
            step: None,
            grants: Vec::new(),
            authority: Authority::of_nothing(),
            tripwire: Tripwire::new(std::iter::empty(), &[])?,
            state: AtomicU8::new(CREATED),
            ended: CancellationToken::new(),
        };
        run.activate();
        Ok(Self { run: Arc::new(run) })
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.run.end();
    }
}

/// A probe that is not answered by then is not refused.
const LIFETIME: SignedDuration = SignedDuration::from_secs(60);

#[cfg(test)]
mod tests {
    use policies::Host;

    use crate::tests::World;

    use super::*;

    #[tokio::test]
    async fn a_probe_is_a_run_that_is_on_no_list() {
        let world = World::new();
        let broker = world.broker();
        let probe = broker.probe().unwrap();
        assert!(probe.run().is_active());
        assert!(broker.runs().unwrap().is_empty());
        assert!(broker.run_info(probe.run().id()).unwrap().is_none());
        assert!(broker.run(probe.run().id()).is_none());
        // The twin: a run of somebody's is.
        let new = world.run(&broker).await.unwrap();
        let listed = broker.runs().unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(&listed[0].run, new.run.id());
    }

    #[tokio::test]
    async fn a_probe_may_reach_nothing_and_is_given_nothing() {
        let probe = World::new().broker().probe().unwrap();
        let run = probe.run();
        assert_eq!(run.policy().rules().count(), 0);
        assert!(run.grants().is_empty() && run.environment().is_empty());
        assert_eq!(run.authority().ca_pem(), "");
        let key = rcgen::KeyPair::generate().unwrap();
        let host = Host::parse("api.example.com").unwrap();
        let signed = run.authority().issue(&host, &key, Timestamp::now());
        assert!(matches!(signed, Err(Error::NoAuthority)));
    }

    #[tokio::test]
    async fn a_probe_ends_with_the_value_that_holds_it() {
        let probe = World::new().broker().probe().unwrap();
        let run = Arc::clone(probe.run());
        drop(probe);
        run.ended().await;
        assert!(!run.is_active());
    }
}
