//! Telling the file system that the directories in one have nothing to do with each other.

use std::path::Path;

use rustix::fs::{CWD, IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, openat};
use rustix::io::Result;

/// Asks for directories made in this one to be put far from each other, each with all that is in it.
///
/// Otherwise an ext4 keeps all of them in one neighbourhood; and without a journal it looks, for every new file, at each
/// that was deleted there within the last minutes. Where pods come and go, that is soon more work than all the rest. A file
/// system that does not know such wishes needs none, so nothing is said of a refusal.
pub fn spread_below(directory: &Path) {
    let ask = || -> Result<()> {
        let directory = openat(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let flags = ioctl_getflags(&directory)?;
        if flags.contains(IFlags::TOPDIR) { Ok(()) } else { ioctl_setflags(&directory, flags | IFlags::TOPDIR) }
    };
    if let Err(error) = ask() {
        tracing::debug!(directory = %directory.display(), error = %error, "the file system does not spread directories");
    }
}
