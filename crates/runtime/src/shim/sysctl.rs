//! Kernel settings that belong to a pod's own namespaces; those of the whole machine are refused.

use std::path::{Path, PathBuf};

use crate::container::{Doing, SetupError};
use crate::contract::SandboxSpec;

/// Settings of an IPC namespace; a name that ends in `.` stands for all below it.
const OF_IPC: [&str; 10] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.msg_next_id",
    "fs.mqueue.",
];

/// Applies one setting to the namespaces this process is in.
pub(super) fn set(pod: &SandboxSpec, name: &str, value: &str) -> Result<(), SetupError> {
    let path = allowed(pod, name).map_err(SetupError)?;
    std::fs::write(path, value).doing(|| format!("set sysctl {name:?} to {value:?}"))
}

fn allowed(pod: &SandboxSpec, name: &str) -> Result<PathBuf, String> {
    let path = path_of(name).ok_or_else(|| format!("sysctl {name:?} is not a name"))?;
    let dotted = path.replace('/', ".");
    let (of_network, of_ipc) = (dotted.starts_with("net."), OF_IPC.iter().any(|known| is_or_is_below(&dotted, known)));
    match (of_network, of_ipc) {
        (true, _) if pod.host_network => Err(format!("sysctl {name:?} cannot be set with the host's network")),
        (_, true) if pod.host_ipc => Err(format!("sysctl {name:?} cannot be set with the host's IPC")),
        (false, false) => Err(format!("sysctl {name:?} belongs to the whole machine, not to a pod")),
        _ => Ok(Path::new("/proc/sys").join(path)),
    }
}

fn is_or_is_below(name: &str, known: &str) -> bool {
    name == known || (known.ends_with('.') && name.starts_with(known))
}

/// `net.ipv4.ip_forward` and `net/ipv4/ip_forward` are the same; whichever mark comes first separates, and the other
/// is part of a name (`net/ipv4/conf/eth0.1/rp_filter`).
fn path_of(name: &str) -> Option<String> {
    let path = match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'/') => name.to_owned(),
        _ => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
    };
    path.split('/').all(|part| !matches!(part, "" | "." | "..")).then_some(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_settings_of_the_pods_own_namespaces_are_set() {
        let pod = SandboxSpec::default();
        let at = |name: &str| allowed(&pod, name).map(|path| path.to_str().unwrap().to_owned());
        assert_eq!(at("net.ipv4.ip_local_port_range").unwrap(), "/proc/sys/net/ipv4/ip_local_port_range");
        assert_eq!(at("net/ipv4/conf/eth0.1/rp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(at("net.ipv4.conf.eth0/1.rp_filter").unwrap(), "/proc/sys/net/ipv4/conf/eth0.1/rp_filter");
        assert_eq!(at("kernel.shm_rmid_forced").unwrap(), "/proc/sys/kernel/shm_rmid_forced");
        assert_eq!(at("fs.mqueue.msg_max").unwrap(), "/proc/sys/fs/mqueue/msg_max");
        for refused in ["kernel.pid_max", "vm.swappiness", "net..x", "net/../kernel/pid_max", "", "kernel.semaphore"] {
            assert!(at(refused).is_err(), "{refused}");
        }
        let shared = SandboxSpec { host_network: true, host_ipc: true, ..SandboxSpec::default() };
        assert!(allowed(&shared, "net.core.somaxconn").is_err() && allowed(&shared, "kernel.sem").is_err());
    }
}
