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
    let mut message = postcard::to_extend(part, vec![INLINE]).map_err(std::io::Error::other)?;
    if message.len() <= LARGEST {
        return Ok(send_with(channel, &message, descriptors)?);
    }
    // A message has a bound; a file has none.
    let mut text = File::from(memfd_create(c"plan", MemfdFlags::CLOEXEC)?);
    text.write_all(&message[1..])?;
    text.rewind()?;
    message.truncate(1);
    message[0] = IN_A_FILE;
    let all: Vec<BorrowedFd<'_>> = [text.as_fd()]
        .into_iter()
        .chain(descriptors.iter().copied())
        .collect();
    Ok(send_with(channel, &message, &all)?)
}

/// Waits for a part of the plan. None comes if the other side is gone, or says something else.
pub(crate) fn take_over<T: DeserializeOwned>(
    channel: BorrowedFd<'_>,
) -> Result<Option<(T, std::vec::IntoIter<OwnedFd>)>, Errno> {
    let mut message = [0; LARGEST];
    let Some((length, descriptors)) = receive_bytes(channel, &mut message) else {
        return Ok(None);
    };
    let mut descriptors = descriptors.into_iter();
    let part = match message.get(..length) {
        Some([INLINE, bytes @ ..]) => postcard::from_bytes(bytes),
        Some([IN_A_FILE]) => {
            let mut text = File::from(descriptors.next().ok_or(Errno::BADMSG)?);
            let mut bytes = Vec::new();
            text.read_to_end(&mut bytes).map_err(|_| Errno::IO)?;
            postcard::from_bytes(&bytes)
        }
        _ => return Ok(None),
    };
    Ok(Some((part.map_err(|_| Errno::BADMSG)?, descriptors)))
}

/// The first byte of a part that follows in the message. No word is more than a signal's number.
const INLINE: u8 = 0xf0;
/// The first byte of a part that is in the first descriptor.
const IN_A_FILE: u8 = 0xf1;
/// The longest message; the kernel takes several times as much.
const LARGEST: usize = 32 << 10;
