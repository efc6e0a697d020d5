//! Releases a secret for one request: checks again, reads at most once at a time, and writes down that it was read.

use std::sync::Arc;
use std::time::Duration;

use policies::{Host, Scheme};
use sdk::audit::{Event, EventKind};
use tokio::time::Instant;

use crate::store::Store;
use crate::{Audit, Credential, CredentialError, Grant, Run};

/// The value of a grant's secret for a destination.
///
/// The caller was checked before, and is checked again here: this is the only way to a value.
pub(crate) async fn release(
    store: &Arc<Store>,
    audit: &Audit,
    run: &Run,
    grant: &Grant,
    destination: (Scheme, &Host, u16),
) -> Result<Arc<Credential>, CredentialError> {
    check(run, grant, destination)?;
    if let Some(value) = current(grant) {
        return Ok(value);
    }
    // On the heap: this is rare, and sources such as commands need much room.
    Box::pin(read(store, audit, run, grant)).await
}

/// Reads a value from its source, one reader at a time.
async fn read(
    store: &Arc<Store>,
    audit: &Audit,
    run: &Run,
    grant: &Grant,
) -> Result<Arc<Credential>, CredentialError> {
    let _reading = grant.value.reading.lock().await;
    // Whoever held the lock may have read it.
    if let Some(value) = current(grant) {
        return Ok(value);
    }
    let mut event = Event::new(EventKind::SecretUsed);
    event.run = Some(run.id().clone());
    event.policy = Some(run.policy().digest().to_string().into());
    event.secret = Some(Arc::clone(grant.secret_name()));
    event.detail = Some(format!(
        "read from its source: {}",
        grant.binding().source.kind()
    ));
    audit
        .append(&event)
        .await
        .map_err(|_| CredentialError::AuditUnavailable)?;
    // Read once that is on record: a source may leave traces elsewhere that must have their line here.
    let value = Arc::new(grant.binding().source.read(store).await?);
    let until = Instant::now() + LIFETIME;
    grant
        .value
        .current
        .store(Some(Arc::new((Arc::clone(&value), until))));
    if !run.is_active() {
        // It ended while its secret was being read, and what was just kept would outlive it.
        grant.forget();
        return Err(CredentialError::RunEnded);
    }
    Ok(value)
}

fn check(
    run: &Run,
    grant: &Grant,
    (scheme, host, port): (Scheme, &Host, u16),
) -> Result<(), CredentialError> {
    if !run.is_active() {
        return Err(CredentialError::RunEnded);
    }
    // The very grant, not one that looks like it.
    if !run.grants().iter().any(|own| std::ptr::eq(own, grant)) {
        return Err(CredentialError::NotGranted(grant.secret().to_owned()));
    }
    if !grant.covers(scheme, host, port) {
        return Err(CredentialError::OutsideBinding {
            secret: grant.secret().to_owned(),
            destination: format!("{scheme}://{}:{port}", host.uri()),
        });
    }
    Ok(())
}

fn current(grant: &Grant) -> Option<Arc<Credential>> {
    let kept = grant.value.current.load();
    let (value, until) = kept.as_deref()?;
    (Instant::now() < *until).then(|| Arc::clone(value))
}

/// How long a value is good after it was read. A rotated secret is picked up after this time.
const LIFETIME: Duration = Duration::from_secs(60);
