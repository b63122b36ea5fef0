//! Whole messages, with descriptors attached, over local `SEQPACKET` sockets.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Room for one message: commands and environments of an exec travel in one piece.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// A terminal, or three pipes.
const DESCRIPTORS_MAX: usize = 3;

/// What a look at a socket found.
#[derive(Debug)]
pub(crate) enum Received<T> {
    /// A message with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// The other end is gone.
    Closed,
}

/// Lets the largest message pass. Best effort: without the privilege only huge execs are refused.
pub(crate) fn widen(socket: impl AsFd) {
    let _ = rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, MESSAGE_BYTES_MAX);
}

/// Sends one message.
pub(crate) fn send<T: Serialize>(socket: impl AsFd, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Takes the next message if there is one; never waits.
pub(crate) fn receive<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<Received<T>> {
    let mut none = [0u8; 0];
    let peek = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let length = match rustix::net::recv(&socket, &mut none, peek) {
        Ok((_, length)) => length,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
        Err(rustix::io::Errno::CONNRESET) => return Ok(Received::Closed),
        Err(errno) => return Err(errno.into()),
    };
    if length == 0 {
        return Ok(Received::Closed);
    }
    let mut bytes = vec![0u8; length];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) || received.bytes != length {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(Received::Message(serde_json::from_slice(&bytes)?, fds))
}
