//! Container output as log lines: `2006-01-02T15:04:05.999999999Z stdout F line`.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::contract::{LogLimits, log_generations as generations, numbered_log as numbered};

/// A longer line is split: all its parts but the last are marked `P`.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// As much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// The kernel keeps at most 64 KiB of a terminal's output, and gives it by the buffer, hundreds of bytes at the least.
const TERMINAL_READS_MAX: usize = 1024;

/// What stands before the text of a line.
const LINE_HEADER_BYTES_MAX: u64 = 64;
/// Lines are handed to the log by so much. Time stamps make much of empty lines: what was read cannot be the measure.
const BATCH_BYTES: usize = 64 * 1024;

/// A run's log: the file being written, and full ones set aside under growing numbers (`0.log.1`, `0.log.2`).
///
/// A line that is written in parts stays in one file if the file can hold it: a file is set aside between lines once it
/// is full, and in the middle of one when it is half as large again. So all files together never take twice what
/// [`LogLimits`] allow, whatever the container writes, and whether or not it ever ends a line.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    limits: LogLimits,
    /// Streams that are in the middle of a line that is written in parts.
    unfinished: BTreeSet<&'static str>,
}

impl Log {
    /// Opens a log to be appended to.
    pub(crate) fn open(path: &Path, limits: LogLimits) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            super::records::make_dir(directory)?;
        }
        let file = create(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, limits, unfinished: BTreeSet::new() })
    }

    /// Appends whole lines. A full disk costs log lines, never the container.
    fn append(&mut self, lines: &[u8], stream: &'static str, finished: bool) {
        let after = self.bytes.saturating_add(lines.len() as u64);
        let full = self.bytes >= self.limits.file_bytes_max && self.unfinished.is_empty();
        if self.bytes > 0 && (full || after > self.file_bytes_limit()) && self.set_aside().is_err() {
            // What cannot be set aside is written on, as far as there is room for it.
            if after > self.file_bytes_limit() {
                return;
            }
        }
        match self.file.write_all(lines) {
            Ok(()) => self.bytes += lines.len() as u64,
            // Half a line would run into the next one. What cannot be taken back counts.
            Err(_) => {
                let _ = self.file.set_len(self.bytes);
                self.bytes = self.file.metadata().map_or(self.bytes, |file| file.len());
            }
        }
        if finished {
            self.unfinished.remove(stream);
        } else {
            self.unfinished.insert(stream);
        }
    }

    /// No file is larger, unless one line alone is.
    fn file_bytes_limit(&self) -> u64 {
        let line = LINE_BYTES_MAX as u64 + LINE_HEADER_BYTES_MAX;
        (self.limits.file_bytes_max.saturating_mul(3) / 2).max(2 * line)
    }

    /// How much may be appended at once: as little as one line, so that the limits are met to the line.
    fn batch_bytes(&self) -> usize {
        let left = self.limits.file_bytes_max.saturating_sub(self.bytes);
        usize::try_from(left).unwrap_or(BATCH_BYTES).min(BATCH_BYTES)
    }

    /// Begins another file. Readers find out by its name having another file behind it; nothing more is written to the
    /// one they have. The oldest go first: while they cannot, no file is added to them.
    fn set_aside(&mut self) -> io::Result<()> {
        let numbers = generations(&self.path);
        let next = numbers.last().map_or(1, |last| last + 1);
        let too_many = (numbers.len() + 2).saturating_sub(self.limits.files_max.max(1));
        for number in &numbers[..too_many.min(numbers.len())] {
            fs::remove_file(numbered(&self.path, *number))?;
        }
        let aside = numbered(&self.path, next);
        fs::rename(&self.path, &aside)?;
        // Without another file this one stays the one that is written.
        self.file = create(&self.path).inspect_err(|_| {
            let _ = fs::rename(&aside, &self.path);
        })?;
        self.bytes = 0;
        if self.limits.files_max <= 1 {
            let _ = fs::remove_file(&aside);
        }
        Ok(())
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Deletes a log with all that was set aside of it.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    for number in generations(path) {
        fs::remove_file(numbered(path, number))?;
    }
    fs::remove_file(path)
}

/// One stream of a container on its way into the log.
#[derive(Debug)]
pub(crate) struct Pump {
    name: &'static str,
    source: Option<OwnedFd>,
    unfinished: Vec<u8>,
}

impl Pump {
    /// A pump from a non-blocking descriptor.
    pub(crate) fn new(name: &'static str, source: OwnedFd) -> Self {
        Self { name, source: Some(source), unfinished: Vec::new() }
    }

    /// What to wait for; `None` when the stream has ended.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        self.source.as_ref().map(AsFd::as_fd)
    }

    /// How many reads take all that is under way, if nothing is added to it.
    pub(crate) fn reads_to_empty(&self) -> usize {
        let Some(source) = &self.source else { return 0 };
        // A terminal holds less, and gives it in smaller pieces.
        rustix::pipe::fcntl_getpipe_size(source).map_or(TERMINAL_READS_MAX, |holds| holds / READ_BYTES + 2)
    }

    /// Which stream it is.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Moves one pipe full of output, past `listener`; returns whether there may be more at once.
    pub(crate) fn run(&mut self, log: &mut Log, mut listener: impl FnMut(&[u8])) -> bool {
        let Some(source) = &self.source else { return false };
        let mut buffer = vec![0; READ_BYTES];
        match rustix::io::read(source, &mut buffer) {
            Ok(0) => self.close(log),
            Ok(count) => {
                listener(&buffer[..count]);
                self.take(&buffer[..count], log);
                return true;
            }
            Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => return true,
            // A terminal answers EIO once nobody holds its other side.
            Err(_) => self.close(log),
        }
        false
    }

    /// Ends the stream; an unfinished line stays unfinished, as its writer left it.
    pub(crate) fn close(&mut self, log: &mut Log) {
        self.source = None;
        if !self.unfinished.is_empty() {
            let mut lines = Vec::new();
            write_line(&mut lines, &timestamp(), self.name, 'P', &std::mem::take(&mut self.unfinished));
            log.append(&lines, self.name, true);
        }
    }

    fn take(&mut self, bytes: &[u8], log: &mut Log) {
        let now = timestamp();
        let mut lines = Vec::with_capacity(bytes.len().min(BATCH_BYTES) + 128);
        let mut finished = !log.unfinished.contains(self.name);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(piece);
            let whole = self.unfinished.last() == Some(&b'\n');
            if whole {
                self.unfinished.pop();
            }
            let mut rest = self.unfinished.as_slice();
            while rest.len() > LINE_BYTES_MAX || (!whole && rest.len() == LINE_BYTES_MAX) {
                let (part, left) = rest.split_at(LINE_BYTES_MAX);
                write_line(&mut lines, &now, self.name, 'P', part);
                finished = false;
                rest = left;
                hand_over(&mut lines, log, self.name, finished);
            }
            if whole {
                write_line(&mut lines, &now, self.name, 'F', rest);
                finished = true;
                self.unfinished.clear();
                hand_over(&mut lines, log, self.name, finished);
            } else {
                self.unfinished.drain(..self.unfinished.len() - rest.len());
            }
        }
        if !lines.is_empty() {
            log.append(&lines, self.name, finished);
        }
    }
}

/// Appends lines once there are as many as the log takes at a time.
fn hand_over(lines: &mut Vec<u8>, log: &mut Log, stream: &'static str, finished: bool) {
    if lines.len() >= log.batch_bytes() {
        log.append(lines, stream, finished);
        lines.clear();
    }
}

fn write_line(lines: &mut Vec<u8>, now: &str, stream: &str, tag: char, text: &[u8]) {
    lines.extend_from_slice(format!("{now} {stream} {tag} ").as_bytes());
    lines.extend_from_slice(text);
    lines.push(b'\n');
}

fn timestamp() -> String {
    rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// UTC with all nine digits, so that lines sort.
fn rfc3339(since_epoch: Duration) -> String {
    let (seconds, nanos) = (since_epoch.as_secs(), since_epoch.subsec_nanos());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Civil date from a day number: eras of 400 years that begin in March, so that leap days come last.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    fn logged(writes: &[&[u8]]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/app/0.log");
        let mut log = Log::open(&path, LogLimits::default()).unwrap();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut pump = Pump::new("stdout", read);
        for bytes in writes {
            assert_eq!(rustix::io::write(&write, bytes).unwrap(), bytes.len());
            while pump.run(&mut log, |_| {}) {}
        }
        drop(write);
        while pump.source().is_some() {
            pump.run(&mut log, |_| {});
        }
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned() + "\n").collect()
    }

    #[test]
    fn lines_are_tagged_whole_wherever_the_reads_fall() {
        assert_eq!(logged(&[b"one\ntw", b"o\n\nlast"]), "stdout F one\nstdout F two\nstdout F \nstdout P last\n");
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        let text = logged(&[&long, b"y\n"]);
        let tags: Vec<_> = text.lines().map(|line| (line.split(' ').nth(1).unwrap(), line.len())).collect();
        assert_eq!(tags, [("P", LINE_BYTES_MAX + 9), ("F", 2 + 9)]);
    }

    #[test]
    fn a_full_file_is_set_aside_between_whole_lines_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = Log::open(&path, LogLimits { file_bytes_max: 50, files_max: 3 }).unwrap();
        for number in 0..5 {
            log.append(format!("line {number} {}\n", "x".repeat(50)).as_bytes(), "stdout", number != 3);
        }
        assert_eq!(generations(&path), [2, 3], "the file being written is the third");
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert!(text(&numbered(&path, 3)).starts_with("line 2"));
        assert!(text(&path).starts_with("line 3") && text(&path).contains("line 4"), "a line in parts stays together");
        let mut log = Log::open(&path, log.limits).unwrap();
        log.append(b"line 5\n", "stdout", true);
        assert_eq!((generations(&path), text(&path).as_str()), (vec![3, 4], "line 5\n"), "an old file counts");
        remove(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Lets streams write in turn into a log of at most 3 files of 100 kB, and measures it after every write.
    fn largest_log_of(writes: impl Iterator<Item = (&'static str, Vec<u8>)>) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = Log::open(&path, LogLimits { file_bytes_max: 100_000, files_max: 3 }).unwrap();
        let mut pumps = ["stdout", "stderr"].map(|name| {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
            (Pump::new(name, read), write)
        });
        let mut largest = 0;
        for (stream, bytes) in writes {
            let (pump, write) = pumps.iter_mut().find(|(pump, _)| pump.name == stream).unwrap();
            assert_eq!(rustix::io::write(&*write, &bytes).unwrap(), bytes.len());
            while pump.run(&mut log, |_| {}) {}
            assert!(pump.unfinished.capacity() <= 256 * 1024, "a stream takes {}", pump.unfinished.capacity());
            let sizes = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
            largest = largest.max(sizes.sum());
        }
        assert_eq!(generations(&path).len(), 2, "it was set aside all the while");
        largest
    }

    #[test]
    fn log_stays_within_twice_its_bound_whatever_is_written_se_58() {
        const BOUND: u64 = 3 * 100_000;
        let endless = || (0..60).map(|_| ("stdout", vec![b'x'; 60_000]));
        let largest = largest_log_of(endless());
        assert!(largest <= 2 * BOUND, "a line without end takes {largest}");
        let one_part = std::iter::once(("stderr", vec![b'y'; LINE_BYTES_MAX]));
        let lines = (0..60).map(|_| ("stdout", b"line\n".repeat(10_000)));
        let largest = largest_log_of(one_part.chain(lines));
        assert!(largest <= 2 * BOUND, "lines beside an unfinished one take {largest}");
        let largest = largest_log_of((0..10).map(|_| ("stdout", vec![b'\n'; 60_000])));
        assert!(largest <= 2 * BOUND, "empty lines take {largest}");
    }

    #[test]
    fn log_that_cannot_be_set_aside_stops_growing_and_goes_on_when_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = Log::open(&path, LogLimits { file_bytes_max: 100_000, files_max: 2 }).unwrap();
        // Where the file should go there is a directory, which no file replaces.
        fs::create_dir_all(numbered(&path, 1).join("occupied")).unwrap();
        let line = vec![b'x'; 10_000];
        for _ in 0..100 {
            log.append(&line, "stdout", true);
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 150_000);
        fs::remove_dir_all(numbered(&path, 1)).unwrap();
        log.append(b"again\n", "stdout", true);
        assert_eq!(fs::read_to_string(&path).unwrap(), "again\n");
    }

    #[test]
    fn moments_are_written_as_utc() {
        assert_eq!(rfc3339(Duration::new(0, 0)), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(Duration::new(951_827_696, 5)), "2000-02-29T12:34:56.000000005Z");
        assert_eq!(rfc3339(Duration::new(4_107_542_399, 999_999_999)), "2100-02-28T23:59:59.999999999Z");
    }
}
