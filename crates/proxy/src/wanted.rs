//! What a Service or a cut wants to have in the kernel, in the proxy's own words.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::Protocol;
use crate::addresses::Network;

/// Where connections are sent on to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Backend {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// Which map a list of backends is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Space {
    /// Addresses of Services, for everybody.
    Service,
    /// External addresses of Services, for clients of this node and its pods.
    Short,
    /// Ports of the node, for everybody.
    NodePort,
    /// Ports of the node, for clients of this node and its pods.
    ShortNodePort,
    /// Pods that are cut.
    Cut,
}

impl Space {
    pub(crate) fn is_of_node(self) -> bool {
        matches!(self, Self::NodePort | Self::ShortNodePort)
    }
}

/// What connections are addressed to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Frontend {
    pub(crate) space: Space,
    pub(crate) is_ipv6: bool,
    /// `None` for ports of the node.
    pub(crate) address: Option<IpAddr>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// What becomes of connections to an address of a Service that nobody takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Nobody {
    Reject,
    Drop,
}

/// An element of a set beside the lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Mark {
    /// An address all of whose other ports are refused.
    Vip(IpAddr),
    /// Whose connections are counted.
    Watch(IpAddr, Protocol, u16),
    /// A pod of this node, which may meet itself.
    Hairpin(IpAddr),
    /// Whose clients may have to be hidden behind this node's address.
    Masquerade(IpAddr, Protocol, u16),
}

/// Who takes the connections of a frontend.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Targets {
    /// Nobody if there are none: the address is claimed all the same.
    pub(crate) backends: BTreeSet<Backend>,
    /// For how many seconds a client comes back to the same one.
    pub(crate) affinity_seconds: Option<u32>,
}

impl From<BTreeSet<Backend>> for Targets {
    fn from(backends: BTreeSet<Backend>) -> Self {
        Self { backends, affinity_seconds: None }
    }
}

/// Answers whether this node has pods of a Service, to the load balancer in front of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HealthCheck {
    pub(crate) port: u16,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// How many endpoints of this node are ready and stay.
    pub(crate) local_endpoints: usize,
}

/// What one owner wants to have in the kernel.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Wanted {
    /// Since when: of two that want the same address, the older one has it.
    pub(crate) since: String,
    pub(crate) lists: BTreeMap<Frontend, Targets>,
    pub(crate) nobody: BTreeMap<(IpAddr, Protocol, u16), Nobody>,
    pub(crate) marks: BTreeSet<Mark>,
    /// From where alone an address is reached.
    pub(crate) sources: BTreeMap<(IpAddr, Protocol, u16), BTreeSet<Network>>,
    /// Of UDP, who may keep the flows that it has: whoever serves, whether new ones come or not.
    pub(crate) serving: BTreeMap<Frontend, BTreeSet<Backend>>,
    pub(crate) health: Option<HealthCheck>,
}
