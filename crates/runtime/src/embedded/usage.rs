//! What the containers of a pod use of the machine: asked for when somebody has to go, not kept.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat};

use super::pod::Pod;
use crate::contract::{ContainerId, ContainerStored, ContainerUsage};
use crate::shim::logs;
use crate::shim::records::directory_name;

/// Blocks are counted in these, whatever the file system's own are.
const BLOCK: u64 = 512;

impl Pod {
    /// What each run that has a directory uses. What goes away while it is looked at counts as nothing.
    pub(super) fn usage(&self) -> Vec<ContainerUsage> {
        self.dir.containers().into_iter().map(|(id, dir)| self.usage_of(id, &dir.path)).collect()
    }

    fn usage_of(&self, id: ContainerId, dir: &Path) -> ContainerUsage {
        let mut processes = Vec::new();
        collect_processes(&self.group.below(&directory_name(&id)).v2(), &mut processes);
        let DiskUsage { bytes, inodes } = self.stored_by(&id, dir);
        ContainerUsage {
            memory: processes.iter().filter_map(|process| memory_of(process)).sum(),
            processes: u64::try_from(processes.len()).unwrap_or(u64::MAX),
            disk: bytes,
            inodes,
            id,
        }
    }

    /// What each run that has a directory has on disk.
    pub(super) fn stored(&self) -> Vec<ContainerStored> {
        let runs = self.dir.containers().into_iter();
        let stored = runs.map(|(id, dir)| {
            let DiskUsage { bytes, inodes } = self.stored_by(&id, &dir.path);
            ContainerStored { id, bytes, inodes }
        });
        stored.collect()
    }

    fn stored_by(&self, id: &ContainerId, dir: &Path) -> DiskUsage {
        let mut all = disk_usage(dir);
        for file in logs::log_files(&self.dir.log(id)) {
            let found = disk_usage(&file);
            all.bytes += found.bytes;
            all.inodes += found.inodes;
        }
        all
    }
}

fn collect_processes(group: &Path, found: &mut Vec<String>) {
    let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(listed.lines().map(str::to_owned));
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        collect_processes(&entry.path(), found);
    }
}

/// A process's share of the memory it is in, in bytes.
fn memory_of(process: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

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
    use super::*;

    #[test]
    fn what_is_deeper_than_any_path_is_counted() {
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
        crate::deletion::delete_tree(&dir.path().join("d")).unwrap();
    }
}
