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
        self.0.async_io(Interest::READABLE, |fd| read(fd, buffer)).await
    }

    /// Reads what there is this very moment, whatever the reactor has heard; `None` if that is nothing.
    pub(super) fn read_now(&self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        match read(self.0.get_ref(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            other => Some(other),
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
pub(crate) fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its successor is `unsafe` for types that lie about their descriptor; `OwnedFd` cannot"
    )]
    AsyncFd::with_interest(fd, interest)
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    match rustix::io::read(fd, buffer) {
        // The master of a terminal answers so once the last process has closed the other side.
        Err(Errno::IO) => Ok(0),
        other => Ok(other?),
    }
}

fn non_blocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    let flags = fcntl_getfl(fd.as_fd())?;
    fcntl_setfl(fd.as_fd(), flags | OFlags::NONBLOCK)?;
    Ok(fd)
}
