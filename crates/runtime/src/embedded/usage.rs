//! What the containers of a pod use of the machine: asked for when somebody has to go, not kept.

use std::fs;
use std::path::Path;

use file_tree::{DiskUsage, disk_usage};

use super::pod::Pod;
use crate::contract::{ContainerId, ContainerStored, ContainerUsage, log_files};
use crate::shim::records::directory_name;

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
        // Files of the pod, which its containers write to as to their own.
        let of_pod = [self.dir.hosts(), self.dir.hostname(), self.dir.resolv_conf()];
        for file in log_files(&self.dir.log(id)).into_iter().chain(of_pod) {
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
