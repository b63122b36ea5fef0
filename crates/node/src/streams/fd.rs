//! The two ends of a running program: non-blocking reads and writes on whatever descriptor the runtime handed out,
//! be it a pipe, a socket or the master of a terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The end we read a program's output from.
#[derive(Debug)]
pub(super) struct Output(AsyncFd<OwnedFd>);

/// The end we write a program's input to.
#[derive(Debug)]
pub(super) struct Input(AsyncFd<OwnedFd>);

impl Output {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(registered(non_blocking(fd)?, Interest::READABLE)?))
    }

    /// Reads what there is; 0 means that nobody holds the other end any more.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut *buffer)?);
        match self.0.async_io(Interest::READABLE, read).await {
            // The master of a terminal answers so once the last process has closed the other side.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Ok(0),
            other => other,
        }
    }
}

impl Input {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(registered(non_blocking(fd)?, Interest::WRITABLE)?))
    }

    /// Writes as much as fits.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?)).await
    }
}

/// Has the reactor watch a descriptor, which must not block.
pub(super) fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is `unsafe` for types that lie about their descriptor; `OwnedFd` cannot"
    )]
    AsyncFd::with_interest(fd, interest)
}

fn non_blocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    let flags = fcntl_getfl(fd.as_fd())?;
    fcntl_setfl(fd.as_fd(), flags | OFlags::NONBLOCK)?;
    Ok(fd)
}
