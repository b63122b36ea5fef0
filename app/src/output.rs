//! Standard output of commands whose reader may have seen enough: `adieu image ls | head` is no mistake.

use std::cell::Cell;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;

/// Lets `work` write to standard output. That nobody reads on ends it, and is no failure.
pub(crate) fn to_reader(work: impl FnOnce(&mut dyn Write) -> Result<ExitCode>) -> Result<ExitCode> {
    to(io::stdout(), work)
}

fn to(out: impl Write, work: impl FnOnce(&mut dyn Write) -> Result<ExitCode>) -> Result<ExitCode> {
    let is_gone = Cell::new(false);
    let mut reader = Reader { out, is_gone: &is_gone };
    let outcome = work(&mut reader).and_then(|code| {
        reader.flush()?;
        Ok(code)
    });
    match outcome {
        Err(_) if is_gone.get() => Ok(ExitCode::SUCCESS),
        outcome => outcome,
    }
}

/// Remembers that its reader is gone: the error itself may come back as part of another.
struct Reader<'a, W> {
    out: W,
    is_gone: &'a Cell<bool>,
}

impl<W> Reader<'_, W> {
    fn noted<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.is_gone.set(true);
        }
        outcome
    }
}

impl<W: Write> Write for Reader<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.noted(flushed)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn closed_pipe() -> io::PipeWriter {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        writer
    }

    #[test]
    fn reader_who_has_seen_enough_is_no_failure_however_it_is_told() {
        let plain = to(closed_pipe(), |out| {
            out.write_all(b"x")?;
            Ok(ExitCode::FAILURE)
        });
        assert_eq!(format!("{:?}", plain.unwrap()), format!("{:?}", ExitCode::SUCCESS));
        let in_json = to(closed_pipe(), |out| {
            serde_json::to_writer(out, &[1, 2])?;
            Ok(ExitCode::FAILURE)
        });
        assert!(in_json.is_ok());
        let other = to(closed_pipe(), |_| Err(io::Error::from(ErrorKind::BrokenPipe).into()));
        assert!(other.is_err(), "a connection that broke is a failure");
    }
}
