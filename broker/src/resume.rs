//! How runs go on after the process that served them is gone.
//!
//! A run that was created to survive is sealed in the store once it is on record. The next process that serves takes it
//! over, if its time is not over and nobody has ended it: token, placeholders, grants and authority are what they were.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use jiff::Timestamp;
use policies::{Policy, Recipe};
use sdk::audit::{Event, EventKind};

use crate::store::{SealedRun, StoredRun};
use crate::{Broker, Error, NewRun, audit, sealed};

/// Seals a run that is on record and whose token nobody has yet.
pub(crate) fn seal(broker: &Broker, new: &NewRun) -> Result<(), Error> {
    let policy = new.run.policy();
    broker.store.seal_run(
        new.run.id(),
        &policy.digest().to_string(),
        &sealed::write(new)?,
        || serde_json::to_vec(policy.recipe()).map_err(Error::Json),
        broker.audit.segment(),
    )
}

/// Takes over every run whose process is gone. One that cannot go on ends, and the log says so.
pub(crate) async fn resume(broker: &Arc<Broker>) -> Result<Vec<NewRun>, Error> {
    let worker = Arc::clone(broker);
    let found = tokio::task::spawn_blocking(move || find(&worker))
        .await
        .map_err(|error| Error::Thread(std::io::Error::other(error)))??;
    let mut resumed = Vec::new();
    for (stored, opened) in found.runs {
        match opened {
            Ok(new) => {
                let mut event = Event::new(EventKind::RunResumed);
                event.run = Some(new.run.id().clone());
                event.policy = Some(stored.policy.into());
                event.detail = Some(format!("token {} until {}", new.run.jti, new.run.expires));
                // On record before anything of it is answered.
                broker.audit.append(&event).await?;
                let segment = broker.audit.segment();
                if broker.store.adopt_run(new.run.id(), segment)? && new.run.activate() {
                    broker.live.add(&new.run, new.alias.danger_expose());
                    // Whoever ended it before it was there to be seen ended it all the same.
                    let kept = broker.store.run(new.run.id())?;
                    if kept.is_some_and(|run| run.ended.is_none()) {
                        resumed.push(new);
                    } else {
                        broker.live.end(&new.run);
                    }
                }
            }
            Err(error) => end(broker, &stored, &error)?,
        }
    }
    Ok(resumed)
}

/// What may go on, kept from all others meanwhile: two that serve must not take the same run over.
struct Found {
    runs: Vec<(StoredRun, Result<NewRun, Error>)>,
    _lock: File,
}

fn find(broker: &Broker) -> Result<Found, Error> {
    let lock = broker.folder.lock()?;
    let mut policies = HashMap::new();
    let mut runs = Vec::new();
    for SealedRun { run, holder } in broker
        .store
        .sealed_runs(Timestamp::now().as_millisecond())?
    {
        if audit::is_abandoned(&broker.folder.audit(), &holder)? {
            let opened = open(broker, &run, &mut policies);
            runs.push((run, opened));
        }
    }
    Ok(Found { runs, _lock: lock })
}

fn open(
    broker: &Broker,
    stored: &StoredRun,
    policies: &mut HashMap<String, Arc<Policy>>,
) -> Result<NewRun, Error> {
    let plain = broker.store.open_run(&stored.id)?;
    let plain = plain.ok_or(Error::NotResumable)?;
    let policy = match policies.get(&stored.policy) {
        Some(policy) => Arc::clone(policy),
        None => {
            let text = broker.store.open_policy(&stored.policy)?;
            let text = text.ok_or(Error::NotResumable)?;
            let recipe: Recipe = serde_json::from_slice(&text).map_err(Error::Json)?;
            let policy = Arc::new(recipe.read().map_err(|_| Error::NotResumable)?);
            policies.insert(stored.policy.clone(), Arc::clone(&policy));
            policy
        }
    };
    sealed::read(stored, policy, &plain)
}

fn end(broker: &Broker, stored: &StoredRun, error: &Error) -> Result<(), Error> {
    tracing::warn!(run = %stored.id, %error, "a run cannot go on");
    let Ok(id) = stored.id.parse() else {
        return Ok(());
    };
    let now = Timestamp::now().as_millisecond();
    if broker.store.end_run(&id, now, broker.audit.segment())? {
        let mut event = Event::new(EventKind::RunEnded);
        event.run = Some(id);
        event.policy = Some(stored.policy.as_str().into());
        event.detail = Some(format!("it cannot go on: {error}"));
        broker.audit.note(&event);
    }
    Ok(())
}
