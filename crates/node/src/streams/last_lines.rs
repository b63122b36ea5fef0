//! The end of a log that is complete, in one bounded read.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::BytesMut;

use super::cri::Renderer;
use super::logs::snapshot;
use super::query::LogOptions;

/// How much of a log is read at most. Many times what is ever told of it, heads and the longest piece of a line included.
const READ_MOST: usize = 64 * 1024;

/// The last lines of a log, as the container wrote them: some tens of kilobytes at most.
pub(crate) fn last_lines(path: &Path) -> io::Result<String> {
    let mut raw = Vec::new();
    let mut is_cut = false;
    for file in snapshot(path)?.into_iter().rev() {
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let wanted = length.min(READ_MOST - raw.len());
        let mut piece = vec![0; wanted];
        file.read_exact_at(&mut piece, (length - wanted) as u64)?;
        piece.append(&mut raw);
        raw = piece;
        is_cut = wanted < length;
        if is_cut {
            break;
        }
    }
    // What a line began with is not known.
    let whole = if is_cut { raw.iter().position(|byte| *byte == b'\n').map_or(raw.len(), |at| at + 1) } else { 0 };
    let mut text = BytesMut::new();
    Renderer::new(&LogOptions::default()).push(&raw[whole..], &mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;

    use super::*;

    fn line(text: &str) -> String {
        format!("2026-08-01T12:00:01.000000000Z stdout F {text}\n")
    }

    #[test]
    fn lines_come_whole_and_from_as_many_files_as_it_takes() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        assert_eq!(last_lines(&log).unwrap(), "");
        fs::write(&log, line("only")).unwrap();
        assert_eq!(last_lines(&log).unwrap(), "only\n");

        fs::write(dir.path().join("0.log.1"), line(&"x".repeat(READ_MOST)) + &line("before")).unwrap();
        assert_eq!(last_lines(&log).unwrap(), "before\nonly\n", "the line that was cut is left out");
        fs::write(&log, line("not this") + &line("z").repeat(READ_MOST)).unwrap();
        let text = last_lines(&log).unwrap();
        assert!(text.lines().all(|line| line == "z") && text.len() > 2048, "{}", text.len());
    }
}
