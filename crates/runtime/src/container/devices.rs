//! `/dev`: the few nodes every program expects, or all of the host's for a privileged container.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, makedev};

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

/// Directories of the host's `/dev` that hold no devices of the machine, or that every container has of its own.
const OTHERS: [&str; 7] = ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev"];
/// Deeper than any kernel puts its devices.
const DEPTH_MAX: usize = 8;

/// Fills a fresh `/dev`, and opens its `null`.
///
/// Opened here, before any volume is mounted and before anything of the container runs: it is the node just made, which
/// belongs to this container alone. The host's would do as well for reading and writing, but whoever has a file open can
/// change its mode and owner by way of `/proc/self/fd`, and so take `/dev/null` away from the whole machine.
pub(crate) fn make(dev: &OwnedFd, privileged: bool) -> Result<OwnedFd, SetupError> {
    let before = rustix::process::umask(Mode::empty());
    let made = fill(dev.as_fd(), privileged);
    rustix::process::umask(before);
    made?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let null = rustix::fs::openat(dev, "null", flags, Mode::empty()).doing(|| "open /dev/null".to_owned())?;
    match is_null(null.as_fd()).doing(|| "look at /dev/null".to_owned())? {
        true => Ok(null),
        false => Err(SetupError("/dev/null did not become what it must be".to_owned())),
    }
}

/// Whether it is the device that swallows everything, by its numbers.
pub(super) fn is_null(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let stat = rustix::fs::fstat(fd)?;
    Ok(FileType::from_raw_mode(stat.st_mode).is_char_device() && stat.st_rdev == makedev(1, 3))
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
        copy_host(Path::new("/dev"), &dev, DEPTH_MAX).doing(|| "copy the host's devices".to_owned())?;
    }
    Ok(())
}

/// Makes the devices that the host has in a directory, and in those below it. What a container has of its own, and what
/// is not of devices, is left out, as containerd does.
fn copy_host(from: &Path, to: impl AsFd, depth_left: usize) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)?.flatten() {
        // Best effort from here: the host's /dev changes while it is read.
        let (Ok(meta), name) = (entry.metadata(), entry.file_name()) else { continue };
        let kind = match meta.file_type() {
            kind if kind.is_char_device() => FileType::CharacterDevice,
            kind if kind.is_block_device() => FileType::BlockDevice,
            kind if kind.is_dir() && depth_left > 0 && !OTHERS.iter().any(|other| name == *other) => {
                copy_host_directory(&entry.path(), &to, depth_left - 1);
                continue;
            }
            _ => continue,
        };
        let mode = Mode::from_raw_mode(meta.mode() & 0o777);
        let _ = rustix::fs::mknodat(&to, name, kind, mode, meta.rdev());
    }
    Ok(())
}

/// The same for a directory below, which is made unless it stays empty.
fn copy_host_directory(from: &Path, to: impl AsFd, depth_left: usize) {
    let Some(name) = from.file_name() else { return };
    let made = rustix::fs::mkdirat(&to, name, Mode::from_raw_mode(0o755));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(directory) = made.and_then(|()| rustix::fs::openat(&to, name, flags, Mode::empty())) {
        let _ = copy_host(from, &directory, depth_left);
        // Refused if there is anything in it.
        let _ = rustix::fs::unlinkat(&to, name, AtFlags::REMOVEDIR);
    }
}
