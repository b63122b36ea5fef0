//! `/dev`: the few nodes every program expects, or all of the host's for a privileged container.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{FileType, Mode, OFlags, makedev};

use super::mounts::Root;
use super::{Doing, SetupError};

const NODES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Fills a fresh `/dev`, and opens its `null`.
///
/// Opened here, before any volume is mounted and before anything of the container runs: it is the node just made, which
/// belongs to this container alone. The host's would do as well for reading and writing, but whoever has a file open can
/// change its mode and owner by way of `/proc/self/fd`, and so take `/dev/null` away from the whole machine.
pub(crate) fn make(root: &Root, privileged: bool) -> Result<OwnedFd, SetupError> {
    let dev = root.find("/dev").doing(|| "open /dev".to_owned())?;
    let before = rustix::process::umask(Mode::empty());
    let made = fill(dev.as_fd(), privileged);
    rustix::process::umask(before);
    made?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dev, "null", flags, Mode::empty()).doing(|| "open /dev/null".to_owned())
}

fn fill(dev: impl AsFd, privileged: bool) -> Result<(), SetupError> {
    for (name, major, minor) in NODES {
        let mode = Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(&dev, name, FileType::CharacterDevice, mode, makedev(major, minor))
            .doing(|| format!("make /dev/{name}"))?;
    }
    for (name, target) in LINKS {
        rustix::fs::symlinkat(target, &dev, name).doing(|| format!("link /dev/{name}"))?;
    }
    if std::fs::exists("/proc/kcore").unwrap_or(false) {
        rustix::fs::symlinkat("/proc/kcore", &dev, "core").doing(|| "link /dev/core".to_owned())?;
    }
    if privileged {
        // Best effort: the host's /dev changes while it is read.
        for entry in std::fs::read_dir("/dev").doing(|| "read /dev".to_owned())?.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let kind = match meta.file_type() {
                kind if kind.is_char_device() => FileType::CharacterDevice,
                kind if kind.is_block_device() => FileType::BlockDevice,
                _ => continue,
            };
            let mode = Mode::from_raw_mode(meta.mode() & 0o777);
            let _ = rustix::fs::mknodat(&dev, entry.file_name(), kind, mode, meta.rdev());
        }
    }
    Ok(())
}
