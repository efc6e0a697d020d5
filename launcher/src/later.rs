//! Lets go of descriptors whose last close takes long, where nobody waits for it.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// Closes a descriptor soon, on a thread of its own; here, if there can be none.
///
/// Taking a mount namespace apart is what a sandbox's end would wait for the longest.
pub(crate) fn close(descriptor: OwnedFd) {
    static CLOSER: OnceLock<Option<Sender<OwnedFd>>> = OnceLock::new();
    let closer = CLOSER.get_or_init(|| {
        let (sender, receiver) = channel();
        std::thread::Builder::new()
            .name("closing".into())
            .spawn(move || receiver.into_iter().for_each(drop))
            .is_ok()
            .then_some(sender)
    });
    if let Some(closer) = closer {
        // What cannot be sent is closed here.
        let _ = closer.send(descriptor);
    }
}
