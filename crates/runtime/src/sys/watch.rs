//! Descriptors the async runtime waits on.
#![allow(unsafe_code, reason = "registration relies on the descriptor staying open, which only its owner can promise")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Lets the async runtime wait on a descriptor it then owns.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open for as long as it exists, is always the same number, and is given away here.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
