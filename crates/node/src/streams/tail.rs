//! Finds where the last lines of a log begin, reading backwards and no more than it must.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::cri::{HEAD_MAX, Head};

/// How much is read at a time.
const BLOCK: usize = 64 * 1024;

/// The offset at which the last `lines` lines begin, and how many there are. A line is what the container ended with a
/// line end, however many pieces it was written in; an unfinished line at the end counts as one.
pub(super) fn start(file: &File, lines: u64) -> io::Result<(u64, u64)> {
    start_in_blocks(file, lines, BLOCK)
}

fn start_in_blocks(file: &File, lines: u64, block: usize) -> io::Result<(u64, u64)> {
    let mut low = file.metadata()?.len();
    // One block, and behind it the beginning of the block after it: a head may reach across.
    let mut buffer = Vec::with_capacity(block + HEAD_MAX);
    let mut scan = Scan { lines, count: 0, end: None };
    while low > 0 {
        let length = usize::try_from(low).unwrap_or(usize::MAX).min(block);
        low -= length as u64;
        buffer.truncate(HEAD_MAX);
        let carried = buffer.len();
        buffer.resize(length + carried, 0);
        buffer.copy_within(..carried, length);
        file.read_exact_at(&mut buffer[..length], low)?;
        for index in (0..length).rev().filter(|index| buffer[*index] == b'\n').collect::<Vec<_>>() {
            if let Some(start) = scan.line_at(&buffer[index + 1..], low + index as u64 + 1) {
                return Ok((start, scan.count));
            }
        }
    }
    let start = scan.line_at(&buffer, 0).unwrap_or(0);
    Ok((start, scan.count))
}

/// The lines of a log, met from the last to the first.
struct Scan {
    lines: u64,
    count: u64,
    /// Where the line ends that is met next; `None` before the last line end of the file.
    end: Option<u64>,
}

impl Scan {
    /// Meets the line that begins at `offset` with `bytes`; returns where the tail begins, if this line is the
    /// first that does not belong to it.
    fn line_at(&mut self, bytes: &[u8], offset: u64) -> Option<u64> {
        let newest = self.count == 0;
        let Some(end) = self.end.replace(offset) else {
            // Behind the last line end there is at most a line that is just being written.
            return (self.lines == 0).then_some(offset);
        };
        let head = &bytes[..bytes.len().min(HEAD_MAX)];
        if newest || Head::parse(head).is_none_or(|head| head.full) {
            if self.count == self.lines {
                return Some(end);
            }
            self.count += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;

    use super::*;

    fn file(text: &str) -> File {
        let fd = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn line(tag: char, text: &str) -> String {
        format!("2026-08-01T12:00:01.000000000Z stdout {tag} {text}\n")
    }

    /// The plain way, to compare with.
    fn expected(lines: &[String], tail: u64) -> u64 {
        let mut starts = vec![];
        let (mut offset, mut fresh) = (0, true);
        for line in lines {
            if fresh {
                starts.push(offset);
            }
            fresh = line.contains(" F ");
            offset += line.len() as u64;
        }
        match usize::try_from(tail).unwrap() {
            0 => offset,
            tail => starts[starts.len().saturating_sub(tail)..].first().copied().unwrap_or(0),
        }
    }

    #[test]
    fn the_tail_begins_where_counting_from_the_front_says() {
        let log: Vec<_> =
            (0..40).map(|index| line(if index % 3 == 1 { 'P' } else { 'F' }, &"x".repeat(index * 7 % 50))).collect();
        for last_is_partial in [false, true] {
            let mut log = log.clone();
            if last_is_partial {
                log.push(line('P', "not yet done"));
            }
            let file = file(&log.concat());
            for tail in 0..60 {
                for block in [1, 2, 13, 64, 1000, BLOCK] {
                    let (start, count) = start_in_blocks(&file, tail, block).unwrap();
                    assert!(count == tail || start == 0, "{count} of {tail}");
                    assert_eq!(start, expected(&log, tail), "tail {tail}, block {block}, {last_is_partial}");
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_just_being_written_does_not_count() {
        let whole = line('F', "one") + &line('F', "two");
        let file = file(&(whole.clone() + "2026-08-01T12:00:01.0"));
        assert_eq!(start(&file, 0).unwrap(), (whole.len() as u64, 0));
        assert_eq!(start(&file, 1).unwrap(), (line('F', "one").len() as u64, 1));
        assert_eq!(start(&file, 2).unwrap(), (0, 2));
    }

    #[test]
    fn an_empty_log_has_an_empty_tail() {
        assert_eq!(start(&file(""), 0).unwrap(), (0, 0));
        assert_eq!(start(&file(""), 10).unwrap(), (0, 0));
    }
}
