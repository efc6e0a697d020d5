//! Lets go of what takes the kernel long to take apart, where nobody waits for it.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// What is held of a sandbox that has ended.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its mount namespace: taking it apart is what a sandbox's end would wait for the longest. It holds what was
    /// written to memory, so it is let go of as soon as that can be done beside other work.
    _mounts: OwnedFd,
    /// Its network namespace, in which nothing is any more. While the kernel takes one apart, a new one has to wait for
    /// it; many are taken apart in little more time than one.
    network: Option<OwnedFd>,
}

impl Held {
    pub(crate) fn new(mounts: OwnedFd, network: Option<OwnedFd>) -> Self {
        Self {
            _mounts: mounts,
            network,
        }
    }
}

/// Lets go of what is held, on a thread of its own; here, if there can be none.
pub(crate) fn let_go(held: Held) {
    static CLOSER: OnceLock<Option<Sender<Held>>> = OnceLock::new();
    let closer = CLOSER.get_or_init(|| {
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("closing".into())
            .spawn(move || close(&receiver))
            .is_ok()
            .then_some(sender)
    });
    if let Some(closer) = closer {
        // What cannot be sent is closed here.
        let _ = closer.send(held);
    }
}

fn close(receiver: &Receiver<Held>) {
    let mut networks = Vec::new();
    loop {
        let next = match networks.is_empty() {
            true => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => receiver.recv_timeout(QUIET),
        };
        match next {
            Ok(held) => networks.extend(held.network),
            Err(RecvTimeoutError::Timeout) => networks.clear(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if networks.len() >= MOST {
            networks.clear();
        }
    }
}

/// How long no sandbox may have ended before the networks of the last ones are taken apart.
const QUIET: Duration = Duration::from_millis(50);
/// How many networks of ended sandboxes there may be.
const MOST: usize = 32;
