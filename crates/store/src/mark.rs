//! How far the store had come, noted beside its folder: what tells a store that was emptied or cut from a new one.
//!
//! A log that ends early looks like one that was never longer, and an empty folder like one that is to be begun. So the
//! revision of every commit is noted in a file next to the folder, after the commit and without waiting for the disk. The note
//! may be behind the log after a power failure; it is never ahead of what the log was told to be durable.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::Revision;

/// The digits of a revision, a sum over them, and what separates them.
const LENGTH: usize = 20 + 1 + 8 + 1;

/// The note beside a store.
#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
    is_failing: bool,
}

impl Mark {
    /// The note beside the folder `store`, made if there is none, and what it says. One that cannot be read says nothing.
    pub(crate) fn open(store: &Path) -> io::Result<(Self, Option<Revision>)> {
        let path = place(store);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let mut text = Vec::new();
        file.by_ref().take(LENGTH as u64 + 1).read_to_end(&mut text)?;
        let told = read(&text);
        if told.is_none() && !text.is_empty() {
            tracing::warn!(path = %path.display(), "what says how far the store had come cannot be read");
        }
        Ok((Self { file, is_failing: false }, told))
    }

    /// What the note beside `store` says, if there is one.
    pub(crate) fn look(store: &Path) -> Option<Revision> {
        std::fs::read(place(store)).ok().and_then(|text| read(&text))
    }

    /// Notes that `revision` is durable. A note that cannot be written is no reason to stop.
    pub(crate) fn note(&mut self, revision: Revision) {
        let noted = self.file.write_all_at(text(revision).as_bytes(), 0);
        if let Err(error) = &noted
            && !self.is_failing
        {
            tracing::warn!(%error, "cannot note how far the store has come");
        }
        self.is_failing = noted.is_err();
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

fn place(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push(".mark");
    path.into()
}

fn text(revision: Revision) -> String {
    let digits = format!("{:020}", revision.0);
    format!("{digits} {:08x}\n", crc32fast::hash(digits.as_bytes()))
}

fn read(bytes: &[u8]) -> Option<Revision> {
    let digits = std::str::from_utf8(bytes.get(..20)?).ok()?;
    let revision = Revision(digits.parse().ok()?);
    (text(revision).as_bytes() == bytes).then_some(revision)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn mark_says_the_last_revision_and_nothing_if_it_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("store");
        let (mut mark, told) = Mark::open(&store).unwrap();
        assert_eq!(told, None);
        for revision in [Revision(7), Revision(u64::MAX), Revision(12)] {
            mark.note(revision);
            assert_eq!((Mark::open(&store).unwrap().1, Mark::look(&store)), (Some(revision), Some(revision)));
        }
        let path = directory.path().join("store.mark");
        let sound = std::fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(Mark::open(&store).unwrap().1, None, "{at}");
            std::fs::write(&path, &sound[..at]).unwrap();
            assert_eq!(Mark::look(&store), None, "{at}");
        }
    }
}
