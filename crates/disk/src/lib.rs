//! What to do about a disk that is full or ill: which refusals pass, and room that is kept for what has to be written then.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Whether a write that failed so may succeed later: room is made, the disk is mounted anew or gets well.
pub fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull, WouldBlock};
    let is_ill = error.raw_os_error() == Some(Errno::IO.raw_os_error());
    is_ill
        || [Interrupted, OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull, WouldBlock]
            .contains(&error.kind())
}

/// Room behind the end of a file, allocated before it is needed: whatever fills the disk later, so much can still be appended.
///
/// The kernel gives the blocks to the file without making it longer, so readers see nothing of them. Not every file system can;
/// there, nothing is kept.
#[derive(Debug)]
pub struct Reserve {
    bytes: u64,
    /// How far the file may grow into blocks of its own.
    up_to: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// At least half of the reserve is there.
    Kept,
    /// The disk has no room for it.
    Short,
    /// The file system has no such call.
    Impossible,
}

impl Reserve {
    /// Of so many bytes; nothing is allocated yet.
    pub fn of_bytes(bytes: u64) -> Self {
        Self { bytes, up_to: 0, state: State::Kept }
    }

    /// Allocates the reserve behind `end`, if half of it or more is used up. What cannot be had now is asked for the next time.
    pub fn renew(&mut self, file: &File, end: u64) {
        if self.state == State::Impossible || (end + self.bytes / 2 <= self.up_to) {
            return;
        }
        let before = self.state;
        self.state = match fallocate(file, FallocateFlags::KEEP_SIZE, end, self.bytes) {
            Ok(()) => {
                self.up_to = end + self.bytes;
                State::Kept
            }
            Err(Errno::NOSPC | Errno::DQUOT) => State::Short,
            // A read-only or ill disk takes nothing anyway.
            Err(Errno::ROFS | Errno::IO | Errno::INTR) => before,
            Err(_) => State::Impossible,
        };
        match (before, self.state) {
            (State::Kept, State::Short) => tracing::warn!("the disk is full; what is left is kept for the end of pods"),
            (State::Short, State::Kept) => tracing::info!("the disk has room again"),
            _ => {}
        }
    }

    /// Whether the disk is so full that half of the reserve or more cannot be had.
    pub fn is_short(&self) -> bool {
        self.state == State::Short
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn refusals_of_a_disk_that_may_get_well_pass_and_others_do_not() {
        let passing = |errno: Errno| passes(&errno.into());
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS, Errno::INTR, Errno::NOMEM] {
            assert!(passing(errno), "{errno}");
        }
        for errno in [Errno::BADF, Errno::FBIG, Errno::INVAL, Errno::STALE] {
            assert!(!passing(errno), "{errno}");
        }
    }

    #[test]
    fn reserve_takes_blocks_and_leaves_the_length_as_it_is() {
        let file = tempfile::tempfile().expect("a file");
        let mut reserve = Reserve::of_bytes(1 << 20);
        reserve.renew(&file, 0);
        let about = file.metadata().expect("its metadata");
        if reserve.state == State::Kept {
            assert_eq!((about.len(), about.blocks() * 512 >= 1 << 20), (0, true));
        }
        assert!(!reserve.is_short());
    }
}
