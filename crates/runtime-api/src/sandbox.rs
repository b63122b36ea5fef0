//! A pod's shared part: what is asked for, and what it turned out to be.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{PodUid, Resources};

/// A pod's shared part: namespaces, network, cgroup, files all its containers see.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxSpec {
    /// Pod UID.
    pub uid: PodUid,
    /// Pod name (labels, log directory).
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Host name inside the pod.
    pub hostname: String,
    /// Its full name, if it has one; `/etc/hosts` knows it.
    pub fqdn: Option<String>,
    /// Use the host's network namespace instead of a pod address.
    pub host_network: bool,
    /// Lines of `/etc/resolv.conf`; `None` copies the host's.
    pub resolv_conf: Option<String>,
    /// See and be seen by the host's processes.
    pub host_pid: bool,
    /// Use the host's System V IPC, message queues and shared memory.
    pub host_ipc: bool,
    /// All containers see each other's processes, under a first process that belongs to none of them.
    pub share_pids: bool,
    /// Kernel settings of the pod's own namespaces, by name and value.
    pub sysctls: Vec<(String, String)>,
    /// Further lines of `/etc/hosts`: an address and its names.
    pub host_aliases: Vec<(String, Vec<String>)>,
    /// Volumes in memory that its containers share; they last as long as the sandbox.
    pub memory_volumes: Vec<MemoryVolume>,
    /// Ports of the node that lead to the pod. None of a pod on the host's network, whose ports are the node's anyway.
    pub host_ports: Vec<HostPort>,
    /// How many processes and threads all its containers may have together.
    pub pids_max: Option<u64>,
    /// What all its containers are given together: its weight among pods, and limits that they share.
    pub resources: Resources,
    /// None of its containers asks for anything: it gets what all others leave.
    pub best_effort: bool,
}

/// A port of the node that leads to a port of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostPort {
    /// Of which protocol.
    pub protocol: Protocol,
    /// At which address of the node; `0.0.0.0` or `::` for all of its kind.
    pub host_ip: IpAddr,
    /// The node's port.
    pub host_port: u16,
    /// The pod's port.
    pub container_port: u16,
}

impl HostPort {
    /// Whether a packet could be for both.
    pub fn collides(&self, other: &Self) -> bool {
        let any = self.host_ip.is_unspecified() || other.host_ip.is_unspecified();
        let same_kind = self.host_ip.is_ipv4() == other.host_ip.is_ipv4();
        let same_port = self.protocol == other.protocol && self.host_port == other.host_port;
        same_port && (self.host_ip == other.host_ip || (any && same_kind))
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", SocketAddr::new(self.host_ip, self.host_port), self.protocol.name())
    }
}

/// What ports belong to.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Protocol {
    /// The usual one.
    #[default]
    Tcp,
    /// Single packets.
    Udp,
    /// Streams of messages.
    Sctp,
}

impl Protocol {
    /// As IP numbers it.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// As Kubernetes names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

/// A volume in memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryVolume {
    /// What mounts call it.
    pub name: String,
    /// The most it may hold; `None` leaves it to the kernel.
    pub size_bytes: Option<u64>,
    /// Whose group it is, besides root's; new files in it belong to that group.
    pub group: Option<u32>,
}

/// What a sandbox turned out to be.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
#[serde(from = "SandboxRead")]
pub struct Sandbox {
    /// The pod's addresses, at most one of each kind, the one that counts first; none on the host's network.
    pub ips: Vec<IpAddr>,
}

impl Sandbox {
    /// The address that counts; `None` on the host's network.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ips.first().copied()
    }
}

/// A sandbox as it was written by this runtime, or by one that knew of one address only.
#[derive(Deserialize)]
#[serde(untagged)]
enum SandboxRead {
    Many { ips: Vec<IpAddr> },
    One { ip: Option<IpAddr> },
}

impl From<SandboxRead> for Sandbox {
    fn from(read: SandboxRead) -> Self {
        Self {
            ips: match read {
                SandboxRead::Many { ips } => ips,
                SandboxRead::One { ip } => ip.into_iter().collect(),
            },
        }
    }
}
#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_sandbox_written_before_pods_could_have_two_addresses_is_read() {
        let read = |text: &str| serde_json::from_str::<Sandbox>(text).unwrap();
        assert_eq!(read(r#"{"ip":"10.86.0.2"}"#).ip(), Some([10, 86, 0, 2].into()));
        assert_eq!(read(r#"{"ip":null}"#), Sandbox::default());
        let both = Sandbox { ips: vec!["10.86.0.2".parse().unwrap(), "fd00::2".parse().unwrap()] };
        assert_eq!(read(&serde_json::to_string(&both).unwrap()), both);
    }

    #[test]
    fn ports_collide_within_a_kind_of_address() {
        let port = |ip: &str| HostPort {
            protocol: Protocol::Tcp,
            host_ip: ip.parse().unwrap(),
            host_port: 80,
            container_port: 8080,
        };
        for (one, other, collide) in [
            ("0.0.0.0", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("::", "2001:db8::1", true),
            ("::", "192.0.2.1", false),
        ] {
            assert_eq!(port(one).collides(&port(other)), collide, "{one} {other}");
            assert_eq!(port(other).collides(&port(one)), collide, "{other} {one}");
        }
        assert_eq!(
            (port("::").to_string(), port("0.0.0.0").to_string()),
            ("[::]:80/TCP".into(), "0.0.0.0:80/TCP".into())
        );
    }
}
