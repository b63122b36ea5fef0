//! What trees of files take.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

/// Blocks are counted in these, whatever the file system's own are.
const BLOCK: u64 = 512;

/// What a tree of files takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiskUsage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// Adds up a tree, without what is mounted into it. What is not there takes nothing.
///
/// Containers may nest directories deeper than any stack, and than any path. So the tree is walked downwards and upwards
/// again by one descriptor, from directory to directory; where somebody moves one meanwhile, so that the way up leads
/// elsewhere, counting ends with what was found.
pub fn disk_usage(path: &Path) -> DiskUsage {
    let mut usage = DiskUsage::default();
    let Ok(top) = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) else { return usage };
    usage.add(&top);
    if FileType::from_raw_mode(top.st_mode) != FileType::Directory {
        return usage;
    }
    let Ok(mut here) = open(CWD, path) else { return usage };
    let mut levels = vec![Level::read(&here, &top, &mut usage)];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.below.pop() else {
            levels.pop();
            let (Some(above), Ok(up)) = (levels.last(), open(&here, c"..")) else { break };
            if !rustix::fs::fstat(&up).is_ok_and(|stat| above.is(&stat)) {
                break;
            }
            here = up;
            continue;
        };
        // Gone, or something else by now, or another file system.
        let Ok(below) = open(&here, name.as_c_str()) else { continue };
        let Ok(stat) = rustix::fs::fstat(&below) else { continue };
        if stat.st_dev == top.st_dev {
            levels.push(Level::read(&below, &stat, &mut usage));
            here = below;
        }
    }
    usage
}

impl DiskUsage {
    fn add(&mut self, stat: &Stat) {
        self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
        self.inodes += 1;
    }
}

/// A directory on the way to where the walk is.
struct Level {
    device: u64,
    inode: u64,
    /// Directories in it that have yet to be looked at.
    below: Vec<CString>,
}

impl Level {
    /// Counts what is in a directory.
    fn read(directory: &OwnedFd, stat: &Stat, usage: &mut DiskUsage) -> Self {
        let mut level = Self { device: stat.st_dev, inode: stat.st_ino, below: Vec::new() };
        for entry in Dir::read_from(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(found) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if found.st_dev != level.device {
                continue;
            }
            usage.add(&found);
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                level.below.push(name.to_owned());
            }
        }
        level
    }

    fn is(&self, stat: &Stat) -> bool {
        (self.device, self.inode) == (stat.st_dev, stat.st_ino)
    }
}

fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;

    use super::*;

    #[test]
    fn disk_usage_counts_directories_deeper_than_the_path_limit() {
        const DEPTH: u64 = 6000;
        let dir = tempfile::tempdir().unwrap();
        let mut here = open(CWD, dir.path()).unwrap();
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&here, c"d", Mode::RWXU).unwrap();
            here = open(&here, c"d").unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&here, c"deep", flags, Mode::RUSR).unwrap();
        rustix::io::write(&file, &[1; 64 * 1024]).unwrap();
        drop((here, file));
        // Beside the deep one, so that the way up is walked too.
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("a/link")).unwrap();
        let usage = disk_usage(dir.path());
        assert_eq!(usage.inodes, 1 + DEPTH + 1 + 2 + 1);
        assert!(usage.bytes >= 64 * 1024, "{usage:?}");
        assert_eq!(disk_usage(&dir.path().join("absent")), DiskUsage::default());
        assert_eq!(disk_usage(&dir.path().join("a/link")).inodes, 1, "a link is not followed");
        crate::delete_tree(&dir.path().join("d")).unwrap();
    }
}
