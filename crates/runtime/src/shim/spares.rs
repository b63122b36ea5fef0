//! Files made before they are needed, so that a container's end gets onto a disk that others have filled.
//!
//! A spare has its inode, its name's place and its room from when the container starts. It is used when the disk takes no other file:
//! the record goes into it, and then it gets the record's name. Not every file system can allocate room beforehand; there a spare only
//! keeps its inode.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use serde::Serialize;

use super::records::{self, ContainerDir};

/// What a spare is kept for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spare {
    /// How the container ended.
    Exit,
    /// That a hook was asked for, and how it ended.
    Hook,
}

impl Spare {
    /// Their names in the container's directory, and how much fits into each.
    fn files(self) -> (&'static [&'static str], u64) {
        match self {
            Self::Exit => (&["exit.spare"], 4 << 10),
            // An outcome quotes the hook's last output, 2 KiB of it, of which any byte may take six.
            Self::Hook => (&["hook-0.spare", "hook-1.spare"], 16 << 10),
        }
    }

    fn paths(self, directory: &ContainerDir) -> impl Iterator<Item = PathBuf> {
        self.files().0.iter().map(|name| directory.path.join(name))
    }
}

/// Makes the spares that are missing, and the directory of the hooks. What the disk has no room for is done without.
pub(crate) fn make(directory: &ContainerDir) {
    let _ = records::make_dir(&directory.path.join("hooks"));
    for spare in [Spare::Exit, Spare::Hook] {
        for path in spare.paths(directory) {
            // One that is there has its room.
            let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
            if let Ok(file) = made {
                let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, spare.files().1);
            }
        }
    }
}

/// Puts a record in place in one step and returns once it is on disk to stay; by a spare if the disk has no room.
pub(crate) fn write_durably<T: Serialize>(
    directory: &ContainerDir,
    spare: Spare,
    file: &Path,
    record: &T,
) -> io::Result<()> {
    records::write_durably(file, record).or_else(|error| instead(directory, spare, file, record, error))
}

/// Puts a record in place by a spare, if `error` says that the disk has no room for another file.
pub(crate) fn instead<T: Serialize>(
    directory: &ContainerDir,
    spare: Spare,
    file: &Path,
    record: &T,
    error: io::Error,
) -> io::Result<()> {
    if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Err(error);
    }
    let bytes = serde_json::to_vec(record)?;
    let filled = spare.paths(directory).any(|spare| fill(&spare, file, &bytes).is_ok());
    if filled { Ok(()) } else { Err(error) }
}

fn fill(spare: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let writer = File::options().write(true).open(spare)?;
    writer.write_all_at(bytes, 0)?;
    // An attempt before may have left more.
    writer.set_len(bytes.len() as u64)?;
    writer.sync_data()?;
    fs::rename(spare, file)?;
    if let Some(directory) = file.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::contract::HookRecord;

    fn full() -> io::Error {
        io::ErrorKind::StorageFull.into()
    }

    #[test]
    fn spare_becomes_the_record_once_and_only_for_want_of_room() {
        let dir = tempfile::tempdir().unwrap();
        let container = ContainerDir { path: dir.path().to_owned() };
        make(&container);
        let read_only = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        instead(&container, Spare::Exit, &container.exit(), &1, read_only).unwrap_err();
        instead(&container, Spare::Exit, &container.exit(), &1, full()).unwrap();
        assert_eq!(records::read::<u32>(&container.exit()), Some(1));
        instead(&container, Spare::Exit, &container.exit(), &2, full()).unwrap_err();
        make(&container);
        instead(&container, Spare::Exit, &container.exit(), &2, full()).unwrap();
        assert_eq!(records::read::<u32>(&container.exit()), Some(2));
    }

    #[test]
    fn spares_of_hooks_hold_one_that_is_asked_for_and_its_longest_outcome() {
        let dir = tempfile::tempdir().unwrap();
        let container = ContainerDir { path: dir.path().to_owned() };
        make(&container);
        let outcome = HookRecord::Exited { code: 1, output: Some("\u{1}".repeat(2048)) };
        assert!(serde_json::to_vec(&outcome).unwrap().len() <= 16 << 10);
        instead(&container, Spare::Hook, &container.hook_asked("stop"), &[""; 0], full()).unwrap();
        instead(&container, Spare::Hook, &container.hook_outcome("stop"), &outcome, full()).unwrap();
        assert_eq!(container.hooks(), ["stop"]);
        assert_eq!(records::read(&container.hook_outcome("stop")), Some(outcome));
    }
}
