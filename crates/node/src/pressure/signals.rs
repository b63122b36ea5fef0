//! What the machine has left, read from the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::threshold::{Reading, Signal};

/// Everything that can be known now. What the kernel does not tell, or the file system does not count, is left out.
pub fn read(nodefs: &Path, imagefs: &Path) -> BTreeMap<Signal, Reading> {
    let mut readings = BTreeMap::new();
    let mut note = |signal, reading: Option<Reading>| {
        if let Some(reading) = reading.filter(|reading| reading.capacity > 0) {
            readings.insert(signal, reading);
        }
    };
    note(Signal::MemoryAvailable, machine_memory());
    note(Signal::PidAvailable, processes());
    let disks = [
        (nodefs, Signal::NodefsAvailable, Signal::NodefsInodesFree),
        (imagefs, Signal::ImagefsAvailable, Signal::ImagefsInodesFree),
    ];
    for (path, bytes, inodes) in disks {
        let Ok(disk) = rustix::fs::statvfs(path) else { continue };
        note(bytes, space(path));
        note(inodes, Some(Reading { available: disk.f_favail, capacity: disk.f_files }));
    }
    readings
}

/// The bytes of the file system at `path`.
pub fn space(path: &Path) -> Option<Reading> {
    let disk = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Some(Reading { available: bytes(disk.f_bavail), capacity: bytes(disk.f_blocks) })
}

/// The memory of the machine.
pub fn machine_memory() -> Option<Reading> {
    memory(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn memory(meminfo: &str) -> Option<Reading> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(Reading { available: bytes("MemAvailable:")?, capacity: bytes("MemTotal:")? })
}

/// Processes and threads come from one supply, which two numbers bound.
fn processes() -> Option<Reading> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let capacity = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    // 0.50 0.40 0.30 2/345 6789: of 345 that there are, two run.
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let there: u64 = load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    Some(Reading { available: capacity.saturating_sub(there), capacity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_signals_of_this_machine_are_read() {
        let readings = read(Path::new("/proc/.."), Path::new("/"));
        for signal in [Signal::MemoryAvailable, Signal::NodefsAvailable, Signal::PidAvailable] {
            let reading = readings[&signal];
            assert!(reading.available > 0 && reading.available <= reading.capacity, "{signal:?}: {reading:?}");
        }
    }

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let text = "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(memory(text), Some(Reading { available: 1 << 20, capacity: 2 << 20 }));
        assert_eq!(memory("MemTotal: 1 kB"), None);
    }
}
