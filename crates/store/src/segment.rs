//! One file of the log, being written: frames at its end, each made durable before the next.
//!
//! Room behind its end is allocated beforehand, so that objects can be marked and removed on a disk that others have filled.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use disk::Reserve;

use crate::frame::Chain;

/// How much room is kept: for the last statuses, marks and removals of some hundred pods.
pub(crate) const RESERVE: u64 = 8 << 20;

/// The file that takes writes.
#[derive(Debug)]
pub(crate) struct Segment {
    file: File,
    /// Everything before is durable and was acknowledged.
    end: u64,
    chain: Chain,
    /// A write failed, so what is behind `end` is not known.
    is_soiled: bool,
    reserve: Reserve,
}

impl Segment {
    /// Continues a file whose first `end` bytes are sound and durable. Whoever writes to it renews its reserve first.
    pub(crate) fn new(file: File, end: u64, chain: Chain) -> Self {
        Self { file, end, chain, is_soiled: false, reserve: Reserve::of_bytes(RESERVE) }
    }

    /// How long it is.
    pub(crate) fn len(&self) -> u64 {
        self.end
    }

    /// Whether nothing is behind what was acknowledged.
    pub(crate) fn is_clean(&self) -> bool {
        !self.is_soiled
    }

    /// Whether the disk is so full that little more than the reserve is left.
    pub(crate) fn is_short(&self) -> bool {
        self.reserve.is_short()
    }

    /// Whether so little of the reserve is left that another segment is worth a risk.
    pub(crate) fn is_at_its_last(&self) -> bool {
        self.reserve.left(self.end) < RESERVE / 4
    }

    /// Whether the disk has room for another segment beside this one.
    pub(crate) fn has_room_for_another(&self) -> bool {
        disk::has_room_for(&self.file, 2 * RESERVE)
    }

    /// Looks for room for the reserve, if that is not whole.
    pub(crate) fn renew_reserve(&mut self) {
        self.reserve.renew(&self.file, self.end);
    }

    /// Gives back the room behind the end: nothing more is written here.
    pub(crate) fn close(self) {
        // What cannot be given back now goes with the file.
        let _ = self.file.set_len(self.end);
    }

    /// Makes one frame durable, all of it or nothing. `frame` has room for its header in front.
    pub(crate) fn append(&mut self, frame: &mut [u8]) -> io::Result<()> {
        if self.is_soiled {
            // Whatever a failed write left must be gone before anything is written behind it: its writers were told
            // that it did not happen.
            if self.file.metadata()?.len() > self.end && drop_end(&self.file, self.end)? {
                self.reserve = Reserve::of_bytes(RESERVE);
                self.renew_reserve();
            }
            self.file.sync_all()?;
            self.is_soiled = false;
            tracing::info!("the store takes writes again");
        }
        let chain = self.chain.seal(frame);
        self.is_soiled = true;
        self.file.write_all_at(frame, self.end)?;
        self.file.sync_data()?;
        self.is_soiled = false;
        self.end += frame.len() as u64;
        self.chain = chain;
        self.renew_reserve();
        Ok(())
    }
}

/// Makes sure that nothing is behind `end`. Cuts it off, and the reserve with it, if another can be had; else leaves zeros, which
/// count as nothing. Tells whether it was cut.
pub(crate) fn drop_end(file: &File, end: u64) -> io::Result<bool> {
    if disk::has_room_for(file, 2 * RESERVE) {
        file.set_len(end)?;
        return Ok(true);
    }
    disk::blot_out(file, end)?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Read as _;

    use super::*;
    use crate::frame::{Frames, HEADER};

    fn frame(payload: &[u8]) -> Vec<u8> {
        [&[0; HEADER][..], payload].concat()
    }

    #[test]
    fn failed_write_is_truncated_before_the_next_append() {
        let mut segment = Segment::new(tempfile::tempfile().unwrap(), 0, Chain::default());
        segment.append(&mut frame(b"one")).unwrap();
        // The write arrives, but its answer does not: what a sync that fails at the very end looks like.
        let (end, chain) = (segment.end, segment.chain);
        segment.append(&mut frame(b"a longer one that was refused")).unwrap();
        (segment.end, segment.chain, segment.is_soiled) = (end, chain, true);
        segment.append(&mut frame(b"two")).unwrap();
        assert!(segment.is_clean());
        let mut bytes = Vec::new();
        // The file was never read, so it is read from its beginning.
        segment.file.read_to_end(&mut bytes).unwrap();
        let mut frames = Frames::new(&bytes);
        assert_eq!(frames.next(), Ok(Some(&b"one"[..])));
        assert_eq!(frames.next(), Ok(Some(&b"two"[..])));
        assert_eq!(frames.next(), Ok(None));
    }

    #[test]
    fn a_file_that_takes_no_writes_says_so_and_stays_as_it_is() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut segment = Segment::new(File::open(path.path()).unwrap(), 0, Chain::default());
        for _ in 0..2 {
            segment.append(&mut frame(b"one")).unwrap_err();
            assert!(!segment.is_clean());
            assert_eq!(segment.len(), 0);
        }
    }
}
