//! Waits for a file to grow or to appear, told by the kernel rather than by a clock.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::fd::registered;

/// Watches one file.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: AsyncFd<OwnedFd>,
    /// For the file to appear, rather than to grow.
    for_appearance: bool,
}

impl Watch {
    /// Watches a file that exists for being written to, or set aside.
    pub(super) fn growth(file: &Path) -> io::Result<Self> {
        let watch = Self::new(false)?;
        let flags = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::MOVE_SELF;
        inotify::add_watch(watch.inotify.get_ref(), file, flags)?;
        Ok(watch)
    }

    /// Watches for a file that does not exist: the nearest directory above it that does. Look again after every
    /// change, with a new watch, and once more after making one.
    pub(super) fn appearance(file: &Path) -> io::Result<Self> {
        let watch = Self::new(true)?;
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        for directory in file.ancestors().skip(1) {
            match inotify::add_watch(watch.inotify.get_ref(), directory, flags) {
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                other => return other.map(|_| watch).map_err(Into::into),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn new(for_appearance: bool) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { inotify: registered(inotify, Interest::READABLE)?, for_appearance })
    }

    /// Whether it is of no more use once the file is there.
    pub(super) fn is_for_appearance(&self) -> bool {
        self.for_appearance
    }

    /// Waits for a change. All changes since the last call count as one.
    pub(super) async fn changed(&self) -> io::Result<()> {
        let take_all = |inotify: &OwnedFd| {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = Reader::new(inotify, &mut buffer);
            let mut any = false;
            loop {
                match reader.next() {
                    Ok(_) => any = true,
                    Err(Errno::WOULDBLOCK) if any => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        self.inotify.async_io(Interest::READABLE, take_all).await
    }
}
