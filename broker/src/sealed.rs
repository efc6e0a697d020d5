//! What is sealed of a run, so that another process can go on with it, and the run that comes of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use policies::{Policy, StepName};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::create::tripwire;
use crate::owner::FrozenBinding;
use crate::run::CREATED;
use crate::store::StoredRun;
use crate::token::{Alias, RunToken};
use crate::{Authority, Error, Grant, NewRun, Run};

/// All of a run that cannot be made again, as it is sealed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    version: u32,
    jti: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<StepName>,
    token: Zeroizing<String>,
    alias: Zeroizing<String>,
    /// The authority's key (PKCS #8), in base64.
    ca_key: Zeroizing<String>,
    ca_pem: String,
    grants: Vec<SealedGrant>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedGrant {
    binding: FrozenBinding,
    placeholder: String,
}

/// Writes a new run down. It is as secret as what it proves itself with: to be sealed at once.
pub(crate) fn write(new: &NewRun) -> Result<Zeroizing<Vec<u8>>, Error> {
    let authority = new.run.authority();
    let key = authority.danger_expose_key()?;
    let mut ca_key = Zeroizing::new(String::with_capacity(2 * key.len()));
    STANDARD.encode_string(&key[..], &mut ca_key);
    let sealed = Sealed {
        version: VERSION,
        jti: new.run.jti.clone(),
        step: new.run.step.clone(),
        token: new.token.0.clone(),
        alias: new.alias.0.clone(),
        ca_key,
        ca_pem: authority.ca_pem().to_owned(),
        grants: new
            .run
            .grants()
            .iter()
            .map(|grant| SealedGrant {
                binding: FrozenBinding::of(grant.binding()),
                placeholder: grant.placeholder().to_owned(),
            })
            .collect(),
    };
    // Large enough for any run, because growing copies.
    let mut plain = Zeroizing::new(Vec::with_capacity(ROOM));
    serde_json::to_writer(&mut *plain, &sealed).map_err(Error::Json)?;
    Ok(plain)
}

/// The run that was written down, not active yet. Its policy is the one of the stored digest.
pub(crate) fn read(stored: &StoredRun, policy: Arc<Policy>, plain: &[u8]) -> Result<NewRun, Error> {
    let sealed: Sealed = serde_json::from_slice(plain).map_err(Error::Json)?;
    if sealed.version != VERSION || policy.digest().to_string() != stored.policy {
        return Err(Error::NotResumable);
    }
    let grants = sealed
        .grants
        .into_iter()
        .map(|grant| {
            let binding = grant.binding.thaw().ok_or(Error::NotResumable)?;
            Ok(Grant::new(Arc::new(binding), grant.placeholder))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let (token, alias) = (RunToken(sealed.token), Alias(sealed.alias));
    let tripwire = tripwire(&grants, &token, &alias)?;
    let id = stored.id.parse().map_err(|_| Error::NotResumable)?;
    let key = STANDARD.decode(&*sealed.ca_key).map(Zeroizing::new);
    let key = key.map_err(|_| Error::NotResumable)?;
    let authority = Authority::again(&id, &key, &sealed.ca_pem)?;
    let time = |at| Timestamp::from_millisecond(at).map_err(Error::Clock);
    let run = Arc::new(Run {
        id,
        policy: ArcSwap::new(policy),
        project: stored.project.clone(),
        created: time(stored.created)?,
        expires: time(stored.expires)?,
        deadline: Instant::now() + left(stored, Timestamp::now()),
        jti: sealed.jti,
        step: sealed.step,
        grants,
        authority,
        tripwire,
        state: AtomicU8::new(CREATED),
        ended: CancellationToken::new(),
    });
    Ok(NewRun { run, token, alias })
}

/// How long a run may still live: never longer than it was to live at all, also when the clock was set back.
fn left(stored: &StoredRun, now: Timestamp) -> Duration {
    let left = stored.expires.saturating_sub(now.as_millisecond());
    let whole = stored.expires.saturating_sub(stored.created);
    Duration::from_millis(u64::try_from(left.min(whole)).unwrap_or(0))
}

/// The form of what is sealed. A run of another form ends.
const VERSION: u32 = 1;

const ROOM: usize = 256 * 1024;
