//! What the containers of a pod use of the machine: asked for when somebody has to go, not kept.

use std::fs;
use std::path::Path;

use file_tree::{DiskUsage, disk_usage};

use super::pod::Pod;
use crate::contract::{ContainerId, ContainerStored, ContainerUsage, FirstProcess, log_files};
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

    /// The first process of each run that has any.
    pub(super) fn first_processes(&self) -> Vec<FirstProcess> {
        let of = |id: ContainerId| {
            let mut processes = Vec::new();
            collect_processes(&self.group.below(&directory_name(&id)).v2(), &mut processes);
            let read = |process: &String| fs::read_to_string(format!("/proc/{process}/status")).ok();
            let mut known: Vec<FirstProcess> =
                processes.iter().filter_map(read).filter_map(|status| first_process(&id, &status)).collect();
            known.sort_by_key(|process| process.pid);
            known.into_iter().next()
        };
        self.dir.containers().into_iter().filter_map(|(id, _)| of(id)).collect()
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

/// What `/proc/PID/status` says of a process of this run.
fn first_process(id: &ContainerId, status: &str) -> Option<FirstProcess> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let set = |name: &str| u64::from_str_radix(field(name)?, 16).ok();
    Some(FirstProcess {
        id: id.clone(),
        name: field("Name:")?.to_owned(),
        // One number for each namespace that it is in, its own last.
        pid: field("NSpid:")?.split_whitespace().last()?.parse().ok()?,
        blocked: set("SigBlk:")?,
        ignored: set("SigIgn:")?,
        caught: set("SigCgt:")?,
    })
}

/// A process's share of the memory it is in, in bytes.
fn memory_of(process: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_process_is_read_with_its_own_number_and_its_signals() {
        let status = "Name:\tsleep\nUmask:\t0022\nPid:\t4711\nNSpid:\t4711\t1\nSigQ:\t0/1\nSigBlk:\t0000000000000000\n\
                      SigIgn:\t0000000000004000\nSigCgt:\t0000000000000002\n";
        let id = ContainerId { name: "app".into(), attempt: 0 };
        let expected =
            FirstProcess { id: id.clone(), name: "sleep".into(), pid: 1, blocked: 0, ignored: 1 << 14, caught: 2 };
        assert_eq!(first_process(&id, status), Some(expected));
        assert_eq!(first_process(&id, "Name:\tsleep\n"), None);
    }
}
