//! What the node knows of the machine it is on.

use std::io;
use std::path::{Path, PathBuf};

/// Facts that stay what they are while the machine runs, and the places where the others are looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Names the time since it was started.
    pub boot_id: String,
    /// As it calls itself.
    pub machine_id: String,
    /// Of its kernel.
    pub kernel_version: String,
    /// What its firmware calls it; its [`Machine::machine_id`] where that tells nothing.
    pub system_uuid: String,
    /// For people.
    pub os_image: String,
    /// As Kubernetes calls it.
    pub architecture: String,
    /// How many processors it has.
    pub cpus: u64,
    /// How much memory it has.
    pub memory_kib: u64,
    /// How large its disks are; `None` asks each file system.
    pub disk_kib: Option<u64>,
    /// Where its own resolver is described.
    pub resolv_conf: PathBuf,
}

impl Machine {
    /// This one.
    pub fn read() -> io::Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let release = read("/etc/os-release");
        let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let machine_id = read("/etc/machine-id");
        let firmware = read("/sys/class/dmi/id/product_uuid");
        Ok(Self {
            boot_id: timeline::boot_id()?,
            system_uuid: if firmware.is_empty() { machine_id.clone() } else { firmware.to_lowercase() },
            machine_id,
            kernel_version: read("/proc/sys/kernel/osrelease"),
            os_image: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
            architecture: match std::env::consts::ARCH {
                "x86_64" => "amd64".to_owned(),
                "aarch64" => "arm64".to_owned(),
                other => other.to_owned(),
            },
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            memory_kib: memory_kib(&read("/proc/meminfo")),
            disk_kib: None,
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
        })
    }

    /// How large the disk below `path` is.
    pub fn disk_kib(&self, path: &Path) -> u64 {
        let asked = || rustix::fs::statvfs(path).map_or(0, |disk| disk.f_blocks * disk.f_frsize / 1024);
        self.disk_kib.unwrap_or_else(asked)
    }

    /// How much memory it has.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_kib.saturating_mul(1024)
    }
}

fn memory_kib(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_machine_facts_are_read() {
        let machine = Machine::read().expect("it is running");
        assert!(machine.memory_kib > 0 && machine.cpus > 0 && machine.disk_kib(Path::new("/")) > 0, "{machine:?}");
        assert!(!machine.boot_id.is_empty() && !machine.kernel_version.is_empty(), "{machine:?}");
    }
}
