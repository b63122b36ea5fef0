//! Container output as log lines: `2006-01-02T15:04:05.999999999Z stdout F line`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

/// A longer line is split: all its parts but the last are marked `P`.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// As much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// A run's log file.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
}

impl Log {
    /// Opens a log to be appended to.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            super::records::make_dir(directory)?;
        }
        Ok(Self { file: OpenOptions::new().create(true).append(true).mode(0o600).open(path)? })
    }
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

    /// Moves one pipe full of output; returns whether there may be more at once.
    pub(crate) fn run(&mut self, log: &mut Log) -> bool {
        let Some(source) = &self.source else { return false };
        let mut buffer = vec![0; READ_BYTES];
        match rustix::io::read(source, &mut buffer) {
            Ok(0) => self.close(log),
            Ok(count) => {
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

    /// Ends the stream; an unfinished line is kept as it is.
    pub(crate) fn close(&mut self, log: &mut Log) {
        self.source = None;
        if !self.unfinished.is_empty() {
            let mut lines = Vec::new();
            write_line(&mut lines, &timestamp(), self.name, 'F', &std::mem::take(&mut self.unfinished));
            let _ = log.file.write_all(&lines);
        }
    }

    fn take(&mut self, bytes: &[u8], log: &mut Log) {
        let now = timestamp();
        let mut lines = Vec::with_capacity(bytes.len() + 128);
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
                rest = left;
            }
            if whole {
                write_line(&mut lines, &now, self.name, 'F', rest);
                self.unfinished.clear();
            } else {
                self.unfinished.drain(..self.unfinished.len() - rest.len());
            }
        }
        // A full disk costs log lines, never the container.
        let _ = log.file.write_all(&lines);
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
        let mut log = Log::open(&path).unwrap();
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut pump = Pump::new("stdout", read);
        for bytes in writes {
            assert_eq!(rustix::io::write(&write, bytes).unwrap(), bytes.len());
            while pump.run(&mut log) {}
        }
        drop(write);
        while pump.source().is_some() {
            pump.run(&mut log);
        }
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned() + "\n").collect()
    }

    #[test]
    fn lines_are_tagged_whole_wherever_the_reads_fall() {
        assert_eq!(logged(&[b"one\ntw", b"o\n\nlast"]), "stdout F one\nstdout F two\nstdout F \nstdout F last\n");
    }

    #[test]
    fn a_long_line_comes_in_parts() {
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        let text = logged(&[&long, b"y\n"]);
        let tags: Vec<_> = text.lines().map(|line| (line.split(' ').nth(1).unwrap(), line.len())).collect();
        assert_eq!(tags, [("P", LINE_BYTES_MAX + 9), ("F", 2 + 9)]);
    }

    #[test]
    fn moments_are_written_as_utc() {
        assert_eq!(rfc3339(Duration::new(0, 0)), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(Duration::new(951_827_696, 5)), "2000-02-29T12:34:56.000000005Z");
        assert_eq!(rfc3339(Duration::new(4_107_542_399, 999_999_999)), "2100-02-28T23:59:59.999999999Z");
    }
}
