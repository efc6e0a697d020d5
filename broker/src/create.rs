//! How a run begins: approved, with frozen grants, on record, and only then with a token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::{SignedDuration, Timestamp};
use policies::{Digest, Policy, StepName};
use sdk::RunId;
use sdk::audit::{Event, EventKind};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::freeze::{Bindings, Foreseen};
use crate::run::CREATED;
use crate::store::StoredRun;
use crate::token::{AUDIENCE, Alias, Claims, RunToken};
use crate::{
    Authority, Broker, Error, Grant, Run, Tripwire, approval, freeze, hex, random, resume,
};

/// What a run is created from.
pub struct CreateRunSpec {
    /// The effective policy.
    pub policy: Arc<Policy>,
    /// The project's folder; approvals are kept by it.
    pub project: PathBuf,
    /// The digest that the owner named on the command line, which approves that very policy once.
    pub approved: Option<Digest>,
    /// How long the run may live at most; the policy's own bound is never exceeded.
    pub ttl: Option<Duration>,
    /// The only step that the token is to be good for.
    pub step: Option<StepName>,
}

/// A run that was just created, with what it proves itself with.
pub struct NewRun {
    /// The run.
    pub run: Arc<Run>,
    /// Its token.
    pub token: RunToken,
    /// The short form of its token.
    pub alias: Alias,
}

/// What becomes of a run when its process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    /// It is gone as well: nothing secret of it is ever on a disk.
    InMemory,
    /// Another process can go on with it: what it needs is sealed in the store.
    Sealed,
}

/// Creates a run.
pub(crate) async fn create(
    broker: &Arc<Broker>,
    spec: CreateRunSpec,
    lasting: Lasting,
) -> Result<NewRun, Error> {
    let worker = Arc::clone(broker);
    let new = tokio::task::spawn_blocking(move || prepare(&worker, spec))
        .await
        .map_err(|error| Error::Thread(std::io::Error::other(error)))??;
    let mut finished = record(broker, &new.run).await;
    let mut new = new;
    if finished.is_ok() && lasting == Lasting::Sealed {
        (new, finished) = seal(broker, new).await?;
    }
    if let Err(error) = finished {
        // Not on record, or not sealed, so it never was: nobody has the token yet.
        broker.end_run(&new.run)?;
        return Err(error);
    }
    if new.run.activate() {
        broker.live.add(&new.run, new.alias.danger_expose());
    }
    Ok(new)
}

/// Everything that needs no other process to answer.
fn prepare(broker: &Broker, spec: CreateRunSpec) -> Result<NewRun, Error> {
    let policy = spec.policy;
    let project = approval::canonical(&spec.project)?;
    broker.check_approval(&policy, &project, spec.approved.as_ref())?;
    let grants = foresee(broker, &policy, &project)?.grants()?;
    let lifetime = lifetime(spec.ttl, policy.budget().ttl);
    // Whole milliseconds, as the store keeps them: after a restart, the same time is told.
    let created =
        Timestamp::from_millisecond(Timestamp::now().as_millisecond()).map_err(Error::Clock)?;
    let expires = SignedDuration::try_from(lifetime)
        .map_err(Error::Clock)
        .and_then(|lifetime| created.checked_add(lifetime).map_err(Error::Clock))?;
    let deadline = Instant::now() + lifetime;
    let id = RunId::new(
        u64::try_from(created.as_millisecond()).unwrap_or(0),
        random::number()?,
    );
    let jti = hex::encode(&random::bytes::<16>()?);
    let claims = Claims {
        iss: broker.keyring.issuer().to_owned(),
        aud: AUDIENCE.to_owned(),
        sub: id.to_string(),
        iat: seconds(created),
        exp: seconds(expires),
        jti: jti.clone(),
        pol: policy.digest().to_string(),
        step: spec.step.as_ref().map(ToString::to_string),
    };
    let stored = StoredRun {
        id: id.to_string(),
        policy: claims.pol.clone(),
        project: project.clone(),
        created: created.as_millisecond(),
        expires: expires.as_millisecond(),
        ended: None,
        segment: broker.audit.segment().to_owned(),
        ended_segment: None,
    };
    let token = keep(broker, &stored, &claims)?;
    let alias = Alias::new()?;
    let tripwire = tripwire(&grants, &token, &alias)?;
    let authority = Authority::new(&id, created, lifetime)?;
    let run = Arc::new(Run {
        id,
        policy: ArcSwap::new(policy),
        project,
        created,
        expires,
        deadline,
        jti,
        step: spec.step,
        grants,
        authority,
        tripwire,
        state: AtomicU8::new(CREATED),
        ended: CancellationToken::new(),
    });
    Ok(NewRun { run, token, alias })
}

/// What the owner's side says to a run under this policy.
pub(crate) fn foresee(broker: &Broker, policy: &Policy, project: &Path) -> Result<Foreseen, Error> {
    let names_secrets = policy.rules().any(|rule| rule.secret().is_some());
    let bindings = if names_secrets {
        broker.secrets.bindings()?
    } else {
        // A mistake in `secrets.toml` does not stop a run that uses none.
        Bindings::new()
    };
    Ok(freeze::foresee(policy, &bindings, project))
}

/// What finds a run's token and placeholders.
pub(crate) fn tripwire(
    grants: &[Grant],
    token: &RunToken,
    alias: &Alias,
) -> Result<Tripwire, Error> {
    let placeholders = grants
        .iter()
        .map(|grant| (grant.secret(), grant.placeholder()));
    // The last part of the token is enough, and is all that another run's token does not share.
    let signature = token.danger_expose().rsplit('.').next().unwrap_or_default();
    Tripwire::new(placeholders, &[signature, alias.danger_expose()])
}

/// Signs the token and keeps the run, with the key that signed for as long as the token may live.
fn keep(broker: &Broker, stored: &StoredRun, claims: &Claims) -> Result<RunToken, Error> {
    let (token, kid) = broker.keyring.sign(claims)?;
    match broker.store.add_run(stored, &kid) {
        Ok(()) => Ok(token),
        Err(Error::KeyRetired) => {
            // Another process has rotated the keys since this one read them.
            broker.keyring.reload()?;
            let (token, kid) = broker.keyring.sign(claims)?;
            broker.store.add_run(stored, &kid)?;
            Ok(token)
        }
        Err(error) => Err(error),
    }
}

/// Seals a run away from the threads that carry requests, and gives it back.
async fn seal(broker: &Arc<Broker>, new: NewRun) -> Result<(NewRun, Result<(), Error>), Error> {
    let worker = Arc::clone(broker);
    tokio::task::spawn_blocking(move || {
        let sealed = resume::seal(&worker, &new);
        (new, sealed)
    })
    .await
    .map_err(|error| Error::Thread(std::io::Error::other(error)))
}

async fn record(broker: &Broker, run: &Run) -> Result<(), Error> {
    let mut event = Event::new(EventKind::RunCreated);
    event.run = Some(run.id.clone());
    event.policy = Some(run.policy().digest().to_string().into());
    let mut minted = event.clone();
    minted.event = EventKind::TokenMinted;
    minted.detail = Some(format!("token {} until {}", run.jti, run.expires));
    minted.step = run.step.as_ref().map(|step| Arc::clone(step.shared()));
    // Queued in this order, and written at once.
    tokio::try_join!(broker.audit.append(&event), broker.audit.append(&minted))?;
    Ok(())
}

/// How long a run lives: the shortest of what was asked for and what the policy says, within bounds of our own.
pub fn lifetime(asked: Option<Duration>, policy: Option<Duration>) -> Duration {
    let least = [asked, policy].into_iter().flatten().min();
    least.unwrap_or(DEFAULT).clamp(SHORTEST, LONGEST)
}

fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_second()).unwrap_or(0)
}

/// How long a run lives if nobody says.
const DEFAULT: Duration = Duration::from_secs(60 * 60);

/// Times in a token are whole seconds.
const SHORTEST: Duration = Duration::from_secs(1);

/// A token that outlives its purpose for longer helps nobody.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_time_counts() {
        let (short, long) = (Duration::from_secs(60), Duration::from_secs(600));
        assert_eq!(lifetime(Some(long), Some(short)), short);
        assert_eq!(lifetime(Some(short), Some(long)), short);
        assert_eq!(lifetime(None, Some(short)), short);
        assert_eq!(lifetime(None, None), DEFAULT);
        assert_eq!(lifetime(Some(Duration::ZERO), None), SHORTEST);
        assert_eq!(lifetime(Some(Duration::MAX), None), LONGEST);
    }
}
