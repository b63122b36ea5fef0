//! Has layers unpacked, each by a process of its own that can do nothing else, and watches over it.
//!
//! What an image holds is never read by the process that serves the API: a layer that exhausts memory, or that finds a
//! mistake in a decoder, costs the pull it belongs to. The process is our own program, run again; `unpacking_process` says
//! what it gives up before it reads the first byte. It is killed when it takes too much, when it stands still, when nobody
//! wants the layer any more, and when this process ends.

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::error::ImageError;
use super::incoming::{Allowance, IncomingLayer, Limits};
use super::layer::{Advance, UnpackedLayer};
use super::room;

/// The word that turns our binary into one that unpacks.
pub(super) const COMMAND: &str = "unpack-layer";
/// It tells of every few megabytes; not even a slow disk takes so long for them.
const STALLED_MAX: Duration = Duration::from_mins(2);
/// Longer than any image takes that people use.
const TOTAL_MAX: Duration = Duration::from_hours(1);
/// One line of what it tells.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// What is left of a load's [`Limits`], shared by all its layers.
pub(super) struct Allowances {
    limits: Limits,
    bytes: Allowance,
    entries: Allowance,
    given_up: OwnedFd,
}

impl Allowances {
    pub(super) fn new(limits: Limits) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            limits,
            bytes: Allowance::new(limits.bytes_max),
            entries: Allowance::new(limits.entries_max),
            given_up: rustix::event::eventfd(0, flags)?,
        })
    }

    /// Nobody wants the layers any more: whoever unpacks one is ended.
    pub(super) fn give_up(&self) {
        let _ = rustix::io::write(&self.given_up, &1u64.to_ne_bytes());
    }
}

/// What the process is told to do. The blob is its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) layer: Digest,
    pub(super) into: PathBuf,
    pub(super) start: u64,
    pub(super) length: u64,
    /// What is left of them.
    pub(super) limits: Limits,
}

/// What the process tells, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Advanced(Advance),
    Unpacked(UnpackedLayer),
    /// The layer is not to be had.
    Hostile {
        path: String,
        why: String,
    },
    Broken {
        why: String,
    },
    TooLarge {
        what: String,
        limit: u64,
    },
    /// It could not make itself small, and did not begin.
    Unconfined {
        why: String,
    },
}

/// Starts the processes that unpack.
#[derive(Debug)]
pub(super) struct Unpacker {
    program: PathBuf,
}

impl Unpacker {
    pub(super) fn new(program: &Path) -> Self {
        Self { program: program.to_owned() }
    }

    /// Unpacks `layer` into the empty directory `into`; returns the bytes of its files.
    pub(super) fn unpack(
        &self,
        layer: &IncomingLayer,
        into: &Path,
        allowances: &Allowances,
    ) -> Result<u64, ImageError> {
        let room = room::left_bytes(into)?;
        let limits = Limits { bytes_max: allowances.bytes.left().min(room), entries_max: allowances.entries.left() };
        let (start, length) = (layer.blob.start(), layer.blob.length());
        let task = Task { layer: layer.diff_id, into: into.to_owned(), start, length, limits };
        let failed = |error: io::Error| ImageError::Unpacker { layer: layer.diff_id, why: format!("fails: {error}") };
        let mut process = Process::start(&self.program, &task, layer.blob.file()).map_err(failed)?;
        let told = process.watch(layer.diff_id, into, allowances)?;
        let unpacked = match told {
            Told::Unpacked(unpacked) => unpacked,
            Told::Hostile { path, why } => return Err(ImageError::Hostile { layer: layer.diff_id, path, why }),
            Told::Broken { why } => return Err(ImageError::Layer { layer: layer.diff_id, why }),
            Told::TooLarge { limit, .. } if limit == room => {
                return Err(room::refusal(into, &format!("layer {}", layer.diff_id)));
            }
            // Of what is left for this layer; people know the limit of all.
            Told::TooLarge { what, limit } => {
                let all = allowances.limits;
                let of_all = [(limits.bytes_max, all.bytes_max), (limits.entries_max, all.entries_max)];
                let limit_bytes = of_all.iter().find(|(left, _)| *left == limit).map_or(limit, |(_, all)| *all);
                return Err(ImageError::TooLarge { what, limit_bytes });
            }
            Told::Unconfined { why } => {
                return Err(ImageError::Unpacker { layer: layer.diff_id, why: format!("cannot be confined: {why}") });
            }
            Told::Advanced(_) => return Err(failed(io::ErrorKind::InvalidData.into())),
        };
        let matches = |what: &str, expected: Digest, got: Digest| match got == expected {
            true => Ok(()),
            false => Err(ImageError::Mismatch { what: what.to_owned(), expected, got }),
        };
        if let Some(expected) = layer.blob_digest {
            matches("a layer", expected, unpacked.blob)?;
        }
        matches("an unpacked layer", layer.diff_id, unpacked.diff_id)?;
        Ok(unpacked.size_bytes)
    }
}

/// The same file for a process that may only read it: what it changed there would be believed by others.
fn read_only(blob: &std::fs::File) -> io::Result<std::fs::File> {
    std::fs::File::open(format!("/proc/self/fd/{}", blob.as_raw_fd()))
}

/// The process while it works; killed and collected when it is dropped.
struct Process {
    child: Child,
    lines: Lines,
}

impl Process {
    fn start(program: &Path, task: &Task, blob: &std::fs::File) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg(COMMAND)
            .arg(serde_json::to_string(task)?)
            .env_clear()
            .current_dir("/")
            .stdin(read_only(blob)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::io::ioctl_fionbio(&output, true)?;
        Ok(Self { child, lines: Lines { output, unread: Vec::new() } })
    }

    /// Follows it to its last word.
    fn watch(&mut self, layer: Digest, into: &Path, allowances: &Allowances) -> Result<Told, ImageError> {
        let failed = |why: String| ImageError::Unpacker { layer, why };
        let begun = Instant::now();
        let mut heard = begun;
        loop {
            match self.lines.next().map_err(|error| failed(format!("tells nonsense: {error}")))? {
                Next::Line(Told::Advanced(advance)) => {
                    heard = Instant::now();
                    draw(layer, advance, allowances)?;
                    room::check(into, 0, &format!("layer {layer}"))?;
                    continue;
                }
                Next::Line(told) => return Ok(told),
                Next::Ended => return Err(failed(self.how_it_ended())),
                Next::Nothing => {}
            }
            let left = (STALLED_MAX.saturating_sub(heard.elapsed())).min(TOTAL_MAX.saturating_sub(begun.elapsed()));
            if left.is_zero() {
                return Err(failed("takes too long".to_owned()));
            }
            let mut polled = [
                PollFd::from_borrowed_fd(self.lines.output.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(allowances.given_up.as_fd(), PollFlags::IN),
            ];
            let wait = Timespec::try_from(left).ok();
            match rustix::event::poll(&mut polled, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(failed(format!("cannot be watched: {errno}"))),
            }
            if !polled[1].revents().is_empty() {
                return Err(failed("was ended: nobody wants it any more".to_owned()));
            }
        }
    }

    /// What became of one that said nothing to the end.
    fn how_it_ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(libc::SIGSYS) => "was killed for a system call that it has no use for".to_owned(),
                Some(signal) => format!("was killed by signal {signal}, perhaps for want of memory"),
                None => format!("ended with {status}"),
            },
            Err(error) => format!("was lost: {error}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes what a layer used from what all of a load may use.
fn draw(layer: Digest, advance: Advance, allowances: &Allowances) -> Result<(), ImageError> {
    let too_large = |what: String, limit_bytes: u64| move |_: io::Error| ImageError::TooLarge { what, limit_bytes };
    allowances.bytes.draw(advance.bytes).map_err(too_large(format!("layer {layer}"), allowances.limits.bytes_max))?;
    let what = format!("the number of files in layer {layer}");
    allowances.entries.draw(advance.entries).map_err(too_large(what, allowances.limits.entries_max))
}

/// What the process tells, line by line.
struct Lines {
    output: ChildStdout,
    unread: Vec<u8>,
}

enum Next {
    Line(Told),
    Nothing,
    Ended,
}

impl Lines {
    fn next(&mut self) -> io::Result<Next> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return Ok(Next::Line(serde_json::from_slice(&line)?));
            }
            if self.unread.len() > LINE_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut buffer = [0; 4096];
            match self.output.read(&mut buffer) {
                Ok(0) => return Ok(Next::Ended),
                Ok(count) => self.unread.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::io::Write as _;

    use super::*;

    #[test]
    fn blob_cannot_be_written_by_the_process_that_unpacks_it() {
        let mut blob = tempfile::tempfile().unwrap();
        blob.write_all(b"layer").unwrap();
        let mut given = read_only(&blob).unwrap();
        given.write_all(b"other").unwrap_err();
        let mut read = String::new();
        given.read_to_string(&mut read).unwrap();
        assert_eq!(read, "layer");
    }
}
