//! Room at the end of a file, allocated before it is needed: whatever fills the disk later, so much can still be appended.
//!
//! The kernel gives the blocks to the file without making it longer, so readers see nothing of them. Not every file system can;
//! there, a full disk is only waited for.

use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// How much is kept: the ends of some thousand pods.
const RESERVE: u64 = 1 << 20;

/// How far the file may grow into blocks of its own.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    up_to: u64,
    /// The file system has no such call.
    is_impossible: bool,
}

impl Reserve {
    /// Allocates what was used up of the reserve behind `end`, if half of it was. What cannot be had now is asked for the next time.
    pub(crate) fn renew(&mut self, file: &File, end: usize) {
        let end = end as u64;
        if self.is_impossible || end + RESERVE / 2 <= self.up_to {
            return;
        }
        match fallocate(file, FallocateFlags::KEEP_SIZE, end, RESERVE) {
            Ok(()) => self.up_to = end + RESERVE,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.is_impossible = true,
            Err(error) => tracing::debug!(%error, "no room for the journal's reserve"),
        }
    }
}
