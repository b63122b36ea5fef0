//! Giving back what a process at rest does not need.
//!
//! Of the program's own pages only the page tables are given up: they stay in the kernel's cache, shared by all, and come
//! back by themselves when the code is next run.
#![allow(
    unsafe_code,
    reason = "madvise has no safe wrapper, as it can discard data; what is read-only has none to lose"
)]

/// The parts of this process that hold the program's code and constants.
#[derive(Debug)]
pub(crate) struct ProgramPages {
    ranges: Vec<(usize, usize)>,
}

impl ProgramPages {
    /// Reads where the kernel has mapped them.
    pub(crate) fn find() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self { ranges: maps.lines().filter_map(range).collect() }
    }

    /// Gives up the pages, and what the allocator keeps of freed memory.
    pub(crate) fn give_back(&self) {
        for (start, length) in &self.ranges {
            let start = std::ptr::with_exposed_provenance_mut(*start);
            // SAFETY: mapped from a file and never written: the kernel reads the same bytes again.
            unsafe { libc::madvise(start, *length, libc::MADV_DONTNEED) };
        }
        #[cfg(target_env = "gnu")]
        // SAFETY: touches free memory only.
        unsafe {
            libc::malloc_trim(0)
        };
    }
}

/// Keeps the allocator from keeping much: few heaps however many threads there are, and large pieces that go back to the system
/// when they are freed, whatever was freed before. To be called before there are threads.
pub(crate) fn keep_heaps_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets two numbers of the allocator's.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS_MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

#[cfg(target_env = "gnu")]
const HEAPS_MAX: i32 = 4;
#[cfg(target_env = "gnu")]
const LARGE_BYTES: i32 = 128 * 1024;

/// A line of `maps` that is code, or the constants at the start of a file. Other read-only parts were written to by the
/// loader before they became so, and what it wrote is nowhere else.
fn range(line: &str) -> Option<(usize, usize)> {
    // START-END MODE OFFSET DEVICE INODE PATH
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (mode, offset, inode) = (fields.next()?, fields.next()?, fields.nth(1)?);
    let from_file = inode != "0";
    let is_code = mode == "r-xp";
    let is_constants = mode == "r--p" && offset.bytes().all(|digit| digit == b'0');
    let parse = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (parse(start)?, parse(end)?);
    (from_file && (is_code || is_constants)).then_some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_pages_never_written_to_are_released() {
        assert_eq!(range("00200000-00791000 r--p 00000000 fe:00 53 /adieu"), Some((0x20_0000, 0x59_1000)));
        assert_eq!(range("00791000-00792000 r-xp 00590000 fe:00 53 /adieu"), Some((0x79_1000, 0x1000)));
        assert_eq!(range("01dd2000-01dda000 r--p 01bd0000 fe:00 53 /adieu"), None, "relocated, then made read-only");
        assert_eq!(range("01dda000-01de2000 rw-p 01bd7000 fe:00 53 /adieu"), None);
        assert_eq!(range("7f6ba9343000-7f6ba9345000 r-xp 00000000 00:00 0 [vdso]"), None);
    }

    #[test]
    fn process_is_unchanged_after_releasing_pages() {
        let pages = ProgramPages::find();
        assert!(!pages.ranges.is_empty());
        let before: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        pages.give_back();
        assert_eq!(before.len(), 1000);
        assert_eq!(before[999], "999");
    }
}
