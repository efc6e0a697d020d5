//! The open connections of one run to its upstreams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use hyper::client::conn::http1;
use policies::Digest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::connection::{Sender, Via};
use super::shared::{InFlight, Shared};
use crate::authz::{Grants, Permit};
use crate::body::Upload;
use crate::destination::Destination;

/// The open connections of one run.
///
/// A connection that carried one credential never carries another, and none outlives the policy it was opened under.
/// Each connection leads to the address that was checked when it was dialled, for as long as it is open.
///
/// All that a run may keep open without using it have a common bound, so that a run with many hosts (a rule for `*.`
/// has as many as it likes) does not take the descriptors of the others.
pub(crate) struct Pool {
    origins: DashMap<Key, Arc<Origin>>,
    /// One for each connection that is kept.
    places: Arc<Semaphore>,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    destination: Arc<Destination>,
    grants: Grants,
    policy: [u8; 32],
}

/// The connections to one upstream.
pub(crate) struct Origin {
    idle: Mutex<VecDeque<Idle>>,
    shared: Mutex<Vec<Kept>>,
    places: Arc<Semaphore>,
    /// Whether it is known to speak HTTP/1.1 only, so that many may dial it at once.
    is_http1: AtomicBool,
    /// Held by the one who dials an upstream that may let all share one connection.
    pub(crate) dialling: tokio::sync::Mutex<()>,
}

struct Idle {
    sender: http1::SendRequest<Upload>,
    via: Arc<Via>,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

/// A shared connection.
struct Kept {
    connection: Shared,
    via: Arc<Via>,
    /// When a request was last put on it.
    last: Instant,
    _place: OwnedSemaphorePermit,
}

/// A connection in use by one request.
pub(crate) struct Lease {
    origin: Arc<Origin>,
    sender: Sender,
    via: Arc<Via>,
    _in_flight: Option<InFlight>,
}

/// A lease, and how long the connection had been idle before.
pub(crate) struct Checkout {
    pub(crate) lease: Lease,
    pub(crate) idle_for: Duration,
}

impl Pool {
    /// The connections for a permit.
    pub(crate) fn origin(&self, permit: &Permit, policy: &Digest) -> Arc<Origin> {
        let key = Key {
            destination: Arc::clone(permit.destination()),
            grants: permit.grants().clone(),
            policy: *policy.as_bytes(),
        };
        if let Some(origin) = self.origins.get(&key) {
            return Arc::clone(&origin);
        }
        let origin = self.origins.entry(key);
        Arc::clone(&origin.or_insert_with(|| Arc::new(Origin::new(&self.places))))
    }

    /// Closes all that are not in use.
    pub(crate) fn clear(&self) {
        self.origins.clear();
    }

    /// Closes what was not used for a while, and forgets upstreams that nothing leads to any more.
    pub(crate) fn sweep(&self) {
        // Nobody gets at an origin but through the map, which is locked meanwhile.
        self.origins
            .retain(|_, origin| !origin.sweep() || Arc::strong_count(origin) > 1);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            origins: DashMap::new(),
            places: Arc::new(Semaphore::new(MOST_KEPT)),
        }
    }
}

impl Origin {
    fn new(places: &Arc<Semaphore>) -> Self {
        Self {
            idle: Mutex::default(),
            shared: Mutex::default(),
            places: Arc::clone(places),
            is_http1: AtomicBool::new(false),
            dialling: tokio::sync::Mutex::default(),
        }
    }

    /// Closes what was not used for a while. Whether nothing is left.
    fn sweep(&self) -> bool {
        let now = Instant::now();
        let (mut idle, mut shared) = (lock(&self.idle), lock(&self.shared));
        idle.retain(|idle| !idle.sender.is_closed() && now - idle.since <= KEEP);
        shared.retain(|kept| {
            !kept.connection.is_closed() && (kept.connection.load() > 0 || now - kept.last <= KEEP)
        });
        idle.is_empty() && shared.is_empty()
    }

    /// An open connection: the one used last, because it is the most likely to live.
    pub(crate) fn checkout(self: &Arc<Self>) -> Option<Checkout> {
        if self.is_http1.load(Ordering::Relaxed) {
            self.checkout_one()
        } else {
            self.checkout_shared(false)
        }
    }

    /// A shared connection, even one with as many requests on it as it takes at once, if there are enough of them.
    pub(crate) fn checkout_shared(self: &Arc<Self>, is_patient: bool) -> Option<Checkout> {
        let mut shared = lock(&self.shared);
        shared.retain(|kept| !kept.connection.is_closed());
        let may_wait = is_patient && shared.len() >= MOST_SHARED;
        let Kept {
            connection,
            via,
            last,
            ..
        } = shared
            .iter_mut()
            .filter(|kept| may_wait || kept.connection.has_room())
            .min_by_key(|kept| kept.connection.load())?;
        *last = Instant::now();
        Some(Checkout {
            lease: Lease {
                origin: Arc::clone(self),
                _in_flight: Some(connection.enter()),
                sender: Sender::Many(connection.clone()),
                via: Arc::clone(via),
            },
            idle_for: Duration::ZERO,
        })
    }

    fn checkout_one(self: &Arc<Self>) -> Option<Checkout> {
        let mut idle = lock(&self.idle);
        let mut place = idle.len();
        while place > 0 {
            place -= 1;
            let found = idle.get(place)?;
            let idle_for = found.since.elapsed();
            if found.sender.is_closed() || idle_for > KEEP {
                idle.remove(place);
            } else if found.sender.is_ready() {
                let Idle { sender, via, .. } = idle.remove(place)?;
                return Some(Checkout {
                    lease: Lease {
                        origin: Arc::clone(self),
                        sender: Sender::One(sender),
                        via,
                        _in_flight: None,
                    },
                    idle_for,
                });
            }
            // Otherwise the end of its last exchange has not reached it yet.
        }
        None
    }

    pub(crate) fn is_http1(&self) -> bool {
        self.is_http1.load(Ordering::Relaxed)
    }

    /// Takes a new connection in.
    pub(crate) fn adopt(self: &Arc<Self>, sender: Sender, via: Arc<Via>) -> Lease {
        let in_flight = match &sender {
            Sender::One(_) => {
                self.is_http1.store(true, Ordering::Relaxed);
                None
            }
            Sender::Many(shared) => {
                self.is_http1.store(false, Ordering::Relaxed);
                if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                    lock(&self.shared).push(Kept {
                        connection: shared.clone(),
                        via: Arc::clone(&via),
                        last: Instant::now(),
                        _place: place,
                    });
                }
                Some(shared.enter())
            }
        };
        Lease {
            origin: Arc::clone(self),
            sender,
            via,
            _in_flight: in_flight,
        }
    }
}

impl Lease {
    pub(crate) fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    pub(crate) fn via(&self) -> &Via {
        &self.via
    }

    /// The exchange is over: the next may use the connection.
    pub(crate) fn give_back(self) {
        let Sender::One(sender) = self.sender else {
            return;
        };
        if sender.is_closed() {
            return;
        }
        let mut idle = lock(&self.origin.idle);
        let now = Instant::now();
        while idle.front().is_some_and(|oldest| now - oldest.since > KEEP) {
            idle.pop_front();
        }
        // Where all places are taken it is closed.
        if let Ok(place) = Arc::clone(&self.origin.places).try_acquire_owned() {
            idle.push_back(Idle {
                sender,
                via: self.via,
                since: now,
                _place: place,
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const MOST_SHARED: usize = 8;
const MOST_KEPT: usize = 512;
// Below what common servers keep.
const KEEP: Duration = Duration::from_secs(55);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::vet;
    use hyper_util::rt::TokioIo;

    /// A connection that was used, and its other end.
    async fn lease(origin: &Arc<Origin>) -> (Lease, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (sender, connection) = http1::handshake(TokioIo::new(ours)).await.unwrap();
        tokio::spawn(connection);
        let address = vet(
            "127.0.0.1:1".parse().unwrap(),
            &["127.0.0.0/8".parse().unwrap()],
            &[],
        );
        let via = Arc::new(Via {
            address: address.unwrap(),
            tls: None,
        });
        (origin.adopt(Sender::One(sender), via), theirs)
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_used_for_a_while_is_closed() {
        let places = Arc::new(Semaphore::new(2));
        let origin = Arc::new(Origin::new(&places));
        let (used, _upstream) = lease(&origin).await;
        used.give_back();
        assert!(!origin.sweep());
        tokio::time::advance(KEEP + Duration::from_secs(1)).await;
        assert!(origin.sweep());
        assert_eq!(places.available_permits(), 2);
    }

    #[tokio::test]
    async fn all_upstreams_together_keep_no_more_than_there_are_places() {
        let places = Arc::new(Semaphore::new(2));
        let mut open = Vec::new();
        for _ in 0..3 {
            let origin = Arc::new(Origin::new(&places));
            let (used, upstream) = lease(&origin).await;
            used.give_back();
            open.push((origin, upstream));
        }
        let kept: Vec<bool> = open.iter().map(|(origin, _)| !origin.sweep()).collect();
        assert_eq!(kept, [true, true, false]);
    }
}
