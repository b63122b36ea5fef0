//! Writing all that is left of the past into one file, beside the writers, so that the log need not grow for ever.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::directory::{self, Holds};
use crate::files::{self, Head};
use crate::frame::Chain;
use crate::row;
use crate::{Change, Encryption, Object, Revision};

/// About how much goes into one frame.
const FRAME: usize = 256 << 10;

/// Everything that is readable at one revision: what was true where history begins, and every change since.
#[derive(Debug)]
pub(crate) struct FullSnapshot {
    pub(crate) revision: Revision,
    pub(crate) floor: Revision,
    /// As of `floor`.
    pub(crate) objects: Vec<Arc<Object>>,
    /// After it, in order.
    pub(crate) changes: Vec<Change>,
}

/// Writes the snapshot that segments from `number` on continue, then removes what it replaces. Answers its size; gives up
/// when `stop` is set.
pub(crate) fn write(
    directory: &Path,
    number: u64,
    everything: FullSnapshot,
    encryption: &Encryption,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let FullSnapshot { revision, floor, objects, changes } = everything;
    let head = Head { holds: Holds::Snapshot, number, revision, floor };
    let (_, size) = directory::make(directory, Holds::Snapshot, number, |file| {
        let mut frames = Writer { file, chain: Chain::default(), size: 0 };
        frames.write(&mut head.encode())?;
        let rows = objects.len() + changes.len();
        let objects = objects.iter().map(Row::Object);
        let mut pending = Vec::with_capacity(2 * FRAME);
        files::begin_rows(&mut pending);
        for row in objects.chain(changes.iter().map(Row::Change)) {
            match row {
                Row::Object(object) => row::encode_object(object, encryption, &mut pending),
                Row::Change(change) => row::encode(change, encryption, &mut pending),
            }
            if pending.len() >= FRAME {
                frames.write(&mut pending)?;
                files::begin_rows(&mut pending);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the store closes"));
            }
        }
        frames.write(&mut pending)?;
        frames.write(&mut files::end(rows as u64))?;
        Ok(frames.size)
    })?;
    directory::remove_before(directory, number)?;
    Ok(size)
}

enum Row<'a> {
    Object(&'a Arc<Object>),
    Change(&'a Change),
}

struct Writer<'a> {
    file: &'a mut File,
    chain: Chain,
    size: u64,
}

impl Writer<'_> {
    fn write(&mut self, frame: &mut [u8]) -> io::Result<()> {
        self.chain = self.chain.seal(frame);
        self.size += frame.len() as u64;
        self.file.write_all(frame)
    }
}
