//! How messages and descriptors go between the supervisor and the sandbox's first processes.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::message::{LENGTH, Report};

/// How many descriptors one message can carry (`SCM_MAX_FD`, unix(7)).
pub(crate) const MOST: usize = 253;

/// Sends one message with descriptors.
pub(crate) fn send_with(
    channel: impl std::os::fd::AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS);
    }
    let parts = [IoSlice::new(bytes)];
    loop {
        match sendmsg(&channel, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// One message and the descriptors that came along: how long it is, at most as long as `bytes`. `None` if the other
/// side is gone.
pub(crate) fn receive_bytes(
    channel: impl std::os::fd::AsFd,
    bytes: &mut [u8],
) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut parts = [std::io::IoSliceMut::new(bytes)];
        match recvmsg(
            &channel,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(message) => break message.bytes,
            // Told once where the other side went without having read everything: what it said comes after.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(_) => return None,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    (length > 0).then_some((length, descriptors))
}

/// One report, with the descriptors that came along. `None` if the other side is gone.
pub(crate) fn receive(control: &OwnedFd) -> Option<(Report, Vec<OwnedFd>)> {
    let mut bytes = [0_u8; LENGTH];
    let (length, descriptors) = receive_bytes(control, &mut bytes)?;
    Report::decode(bytes.get(..length)?).map(|report| (report, descriptors))
}

/// Whether a message or the end of the channel is there.
pub(crate) fn has_word(control: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(control, PollFlags::IN)];
    let now = rustix::event::Timespec::default();
    poll(&mut waiting, Some(&now)).is_ok_and(|ready| ready > 0)
}
