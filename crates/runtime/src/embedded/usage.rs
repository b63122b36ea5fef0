//! What the containers of a pod use of the machine: asked for when somebody has to go, not kept.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::pod::Pod;
use crate::contract::{ContainerId, ContainerUsage};
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
        let mut usage = ContainerUsage {
            memory: processes.iter().filter_map(|process| memory_of(process)).sum(),
            processes: u64::try_from(processes.len()).unwrap_or(u64::MAX),
            disk: 0,
            inodes: 0,
            id,
        };
        for path in [dir, &self.dir.log(&usage.id)] {
            let found = disk_usage(path);
            usage.disk += found.bytes;
            usage.inodes += found.inodes;
        }
        usage
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
pub fn disk_usage(path: &Path) -> DiskUsage {
    let mut usage = DiskUsage::default();
    let Ok(device) = fs::symlink_metadata(path).map(|meta| meta.dev()) else { return usage };
    // Not by recursion: containers may nest directories deeper than any stack.
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if meta.dev() != device {
            continue;
        }
        usage.bytes += meta.blocks() * BLOCK;
        usage.inodes += 1;
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    usage
}
