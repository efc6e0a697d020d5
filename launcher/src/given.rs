//! How a sandbox's first process gets a part of its plan, and the descriptors that belong to it.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::channel::{MOST, receive_bytes, send_with};

/// How many host trees one sandbox can show: as many as go along in one message with everything else.
pub(crate) const MAX_SOURCES: usize = MOST - 5;

/// Sends a part of a plan to the one at the other end of `channel`.
pub(crate) fn hand_over(
    channel: &OwnedFd,
    part: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = postcard::to_stdvec(part).map_err(std::io::Error::other)?;
    // A message has a bound; a file has none.
    let mut text = File::from(memfd_create(c"plan", MemfdFlags::CLOEXEC)?);
    text.write_all(&bytes)?;
    text.rewind()?;
    let all: Vec<BorrowedFd<'_>> = [text.as_fd()]
        .into_iter()
        .chain(descriptors.iter().copied())
        .collect();
    Ok(send_with(channel, &[1], &all)?)
}

/// Waits for a part of the plan. None comes if the other side is gone.
pub(crate) fn take_over<T: DeserializeOwned>(
    channel: BorrowedFd<'_>,
) -> Result<Option<(T, std::vec::IntoIter<OwnedFd>)>, Errno> {
    let Some((_, descriptors)) = receive_bytes(channel, &mut [0]) else {
        return Ok(None);
    };
    let mut descriptors = descriptors.into_iter();
    let mut text = File::from(descriptors.next().ok_or(Errno::BADMSG)?);
    let mut bytes = Vec::new();
    text.read_to_end(&mut bytes).map_err(|_| Errno::IO)?;
    let part = postcard::from_bytes(&bytes).map_err(|_| Errno::BADMSG)?;
    Ok(Some((part, descriptors)))
}
