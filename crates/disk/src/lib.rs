//! What to do about a disk that is full or ill: which refusals pass, and room that is kept for what has to be written then.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;

/// Whether a write that failed so may succeed later: room is made, the disk is mounted anew or gets well.
pub fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull, WouldBlock};
    let is_ill = error.raw_os_error() == Some(Errno::IO.raw_os_error());
    is_ill
        || [Interrupted, OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull, WouldBlock]
            .contains(&error.kind())
}

/// Whether the disk of a file has room for so many bytes more; yes if it does not say.
pub fn has_room_for(file: &File, bytes: u64) -> bool {
    fstatvfs(file).map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes)
}

/// Writes zeros over what follows `end` in a file, and keeps its room. Answers when that is durable.
///
/// On a full disk, cutting the file would give the room behind its end to others.
pub fn blot_out(file: &File, end: u64) -> io::Result<()> {
    let zeros = [0; 64 << 10];
    let mut left = file.metadata()?.len().saturating_sub(end);
    let mut at = end;
    while left > 0 {
        let length = usize::try_from(left).map_or(zeros.len(), |left| left.min(zeros.len()));
        file.write_all_at(&zeros[..length], at)?;
        at += length as u64;
        left -= length as u64;
    }
    file.sync_data()
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
        if self.up_to == 0 {
            // An earlier process may have left some, which a full disk would not give again.
            self.up_to = file.metadata().map_or(0, |about| about.blocks().saturating_mul(512));
        }
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

    /// How much of it is left behind `end`.
    pub fn left(&self, end: u64) -> u64 {
        self.up_to.saturating_sub(end)
    }

    /// Whether the disk is so full that half of the reserve or more cannot be had.
    pub fn is_short(&self) -> bool {
        self.state == State::Short
    }
}

#[cfg(test)]
mod tests {
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
    fn blotted_out_end_is_zeros_and_keeps_its_blocks() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&vec![7; 200_000], 0).expect("written");
        let blocks = file.metadata().expect("its metadata").blocks();
        blot_out(&file, 3).expect("blotted out");
        let mut bytes = vec![1; 200_000];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!((&bytes[..3], bytes[3..].iter().any(|byte| *byte != 0)), (&[7; 3][..], false));
        assert_eq!(file.metadata().expect("its metadata").blocks(), blocks);
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

    /// Whoever opens the file again knows what is allocated behind its end, and asks for no more while half of it is left.
    #[test]
    fn reserve_of_an_earlier_process_is_found_again() {
        let file = tempfile::tempfile().expect("a file");
        Reserve::of_bytes(1 << 20).renew(&file, 0);
        let blocks = || file.metadata().expect("its metadata").blocks();
        let before = blocks();
        let mut again = Reserve::of_bytes(1 << 20);
        again.renew(&file, 300 << 10);
        if again.state == State::Kept {
            assert_eq!((blocks(), again.left(300 << 10)), (before, (1 << 20) - (300 << 10)));
        }
    }
}
