//! The standard streams, written without the locks of `std`: whoever else holds one of those cannot hold us up.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// One of the two.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Self::Out => rustix::stdio::stdout(),
            Self::Err => rustix::stdio::stderr(),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let descriptor = self.descriptor();
        loop {
            match rustix::io::write(descriptor, bytes) {
                // Somebody who shares the stream made it non-blocking.
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&descriptor, PollFlags::OUT)], None)?;
                }
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
