//! The node's side of the network: its address, its routes, and what it takes over from whoever ran before.
//!
//! Everything it makes can be told from other people's things, and from another instance's: links by name and group,
//! the address on `lo` by its label, routes by their protocol number.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage, State};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType};
use rtnetlink::{AddressMessageBuilder, Handle, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder};
use sha2::{Digest, Sha256};

use super::cidr::PodCidr;
use super::error::{NetworkError, errno, kernel, settled};

/// Marks our routes in `ip route` as `proto 173`; the number has no owner.
pub(super) const PROTOCOL: RouteProtocol = RouteProtocol::Other(173);
/// The loopback link has this number in every namespace.
pub(super) const LOOPBACK: u32 = 1;
/// What the names of the links of all instances begin with.
pub(super) const LINK_PREFIX: &str = "ad";
const MTU_WITHOUT_UPLINK: u32 = 1500;
/// The kernel looks at changes of links once a second at the latest.
const SETTLING_MAX: Duration = Duration::from_secs(2);
const SETTLING_STEP: Duration = Duration::from_millis(1);

/// What this instance's things are called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// Begins the name of every link: `ad` and four digits of the instance.
    pub(super) prefix: String,
    /// The group every link is in, so that all can be removed in one request.
    pub(super) group: u32,
}

impl Names {
    pub(super) fn of(instance: &str) -> Self {
        let digest = Sha256::digest(instance.as_bytes());
        // Group 0 is everyone's.
        let group = u32::from_be_bytes([digest[2], digest[3], digest[4], digest[5]]).max(1);
        Self { prefix: format!("{LINK_PREFIX}{:02x}{:02x}", digest[0], digest[1]), group }
    }

    /// The host-side link of a pod: the prefix and its address in hexadecimal, 14 of the 15 characters there are.
    pub(super) fn link(&self, address: Ipv4Addr) -> String {
        format!("{}{:08x}", self.prefix, address.to_bits())
    }

    /// The address a link is for, if it is one of ours.
    pub(super) fn address(&self, link: &str, range: PodCidr) -> Option<Ipv4Addr> {
        let digits = link.strip_prefix(&self.prefix).filter(|digits| digits.len() == 8)?;
        let address = u32::from_str_radix(digits, 16).ok().map(Ipv4Addr::from_bits)?;
        (range.contains(address) && self.link(address) == link).then_some(address)
    }

    /// The label of the node's address on `lo`.
    fn label(&self) -> String {
        format!("lo:{}", self.prefix)
    }
}

/// The parts of a link that matter here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// Number of the other end, in the other end's namespace.
    pub(super) peer: Option<u32>,
    pub(super) mtu: Option<u32>,
    /// The kernel has taken note that both ends are up, and lets packets through.
    is_passing: bool,
}

impl Link {
    fn read(message: &LinkMessage) -> Self {
        let mut link =
            Self { index: message.header.index, name: String::new(), peer: None, mtu: None, is_passing: false };
        for attribute in &message.attributes {
            if let LinkAttribute::IfName(name) = attribute {
                link.name.clone_from(name);
            } else if let LinkAttribute::Link(peer) = attribute {
                link.peer = Some(*peer);
            } else if let LinkAttribute::Mtu(mtu) = attribute {
                link.mtu = Some(*mtu);
            } else if let LinkAttribute::OperState(state) = attribute {
                link.is_passing = *state == State::Up;
            }
        }
        link
    }

    pub(super) async fn find(handle: &Handle, name: &str) -> Result<Option<Self>, NetworkError> {
        match handle.link().get().match_name(name).execute().try_next().await {
            Ok(found) => Ok(found.as_ref().map(Self::read)),
            Err(error) if errno(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(kernel(format!("look for link {name}"))(error)),
        }
    }

    /// Waits until packets pass. The kernel handles "the other end is up" in its own time, and drops what is sent
    /// before; recent ones (6.8) do it at once when asked how the link is.
    pub(super) async fn settle(&self, handle: &Handle) -> Result<(), NetworkError> {
        let deadline = Instant::now() + SETTLING_MAX;
        loop {
            match Self::find(handle, &self.name).await? {
                Some(link) if !link.is_passing && Instant::now() < deadline => tokio::time::sleep(SETTLING_STEP).await,
                Some(link) if !link.is_passing => {
                    tracing::warn!(link = self.name, "link does not come up; first packets may be lost");
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    pub(super) async fn all(handle: &Handle) -> Result<Vec<Self>, NetworkError> {
        let links: Vec<_> = handle.link().get().execute().try_collect().await.map_err(kernel("list links"))?;
        Ok(links.iter().map(Self::read).collect())
    }

    /// Removes the link. Slow: the kernel waits until nobody can be using it.
    pub(super) async fn remove(&self, handle: &Handle) -> Result<(), NetworkError> {
        let removed = handle.link().del(self.index).execute().await;
        settled(removed, &[libc::ENODEV]).map_err(kernel(format!("remove link {}", self.name)))
    }
}

/// Makes the node ready for pods; all of it may be there already. Returns the MTU that pods should have.
pub(super) async fn prepare(handle: &Handle, names: &Names, range: PodCidr) -> Result<u32, NetworkError> {
    let links = Link::all(handle).await?;
    check_addresses(handle, names, range, &links).await?;
    let routes = routes(handle).await?;
    check_routes(&routes, names, range, &links)?;
    enable_forwarding()?;
    let up = LinkMessageBuilder::<LinkUnspec>::new().index(LOOPBACK).up().build();
    handle.link().change(up).execute().await.map_err(kernel("bring up lo"))?;
    let node = range.node_address();
    let mut request = handle.address().add(LOOPBACK, IpAddr::V4(node), 32).replace();
    *request.message_mut() = node_address(names, node);
    request.execute().await.map_err(kernel(format!("give lo the address {node}")))?;
    // Without this, what is meant for a pod that is gone would leave by the default route.
    let nowhere = handle.route().add(unassigned(range)).replace().execute().await;
    nowhere.map_err(kernel(format!("add the route for {range}")))?;
    Ok(uplink_mtu(&routes, &links))
}

/// Removes what [`prepare`] made, and every link of this instance. Goes on after a failure, and tells of all.
pub(super) async fn remove(handle: &Handle, names: &Names, range: PodCidr) -> Vec<NetworkError> {
    let mut group = LinkMessage::default();
    group.attributes.push(LinkAttribute::Group(names.group));
    let links = handle.link().del_with_message(group).execute().await;
    let links = settled(links, &[libc::ENODEV]).map_err(kernel("remove the links of all pods"));
    let node = range.node_address();
    let address = handle.address().del(node_address(names, node)).execute().await;
    let address = settled(address, &[libc::EADDRNOTAVAIL]).map_err(kernel(format!("take the address {node} from lo")));
    let route = handle.route().del(unassigned(range)).execute().await;
    let route = settled(route, &[libc::ESRCH]).map_err(kernel(format!("remove the route for {range}")));
    [links, address, route].into_iter().filter_map(Result::err).collect()
}

/// Lets programs of the machine dial addresses of `services`: a connection needs a route before any rule sees it. Where none leads
/// there, one through `lo` does, with the node's address for a source; it goes when that address does.
pub(super) async fn reach_services(handle: &Handle, range: PodCidr, services: PodCidr) -> Result<(), NetworkError> {
    let leads_there = |route: &RouteMessage| {
        let length = route.header.destination_prefix_length;
        let covers = |to: Ipv4Addr| is_in(to, length, services.network());
        route.header.kind == RouteType::Unicast
            && length <= services.prefix_length()
            && destination(route).map_or(length == 0, covers)
    };
    if routes(handle).await?.iter().any(leads_there) {
        return Ok(());
    }
    let through_loopback = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(services.network(), services.prefix_length())
        .output_interface(LOOPBACK)
        .pref_source(range.node_address())
        .protocol(PROTOCOL)
        .build();
    let added = handle.route().add(through_loopback).execute().await;
    settled(added, &[libc::EEXIST]).map_err(kernel(format!("add the route for services {services}")))
}

fn node_address(names: &Names, node: Ipv4Addr) -> AddressMessage {
    let mut message = AddressMessageBuilder::<Ipv4Addr>::new().index(LOOPBACK).address(node, 32).build();
    message.attributes.push(AddressAttribute::Label(names.label()));
    message
}

fn is_in(network: Ipv4Addr, prefix_length: u8, address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32_u32.saturating_sub(prefix_length.into())).unwrap_or(0);
    network.to_bits() & mask == address.to_bits() & mask
}

fn unassigned(range: PodCidr) -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(range.network(), range.prefix_length())
        .kind(RouteType::Unreachable)
        .protocol(PROTOCOL)
        .build()
}

/// Nobody else may hold an address of the range.
async fn check_addresses(handle: &Handle, names: &Names, range: PodCidr, links: &[Link]) -> Result<(), NetworkError> {
    let all: Vec<_> = handle.address().get().execute().try_collect().await.map_err(kernel("list addresses"))?;
    for message in all {
        let mut held = None;
        let mut label = None;
        for attribute in &message.attributes {
            if let AddressAttribute::Local(IpAddr::V4(address)) = attribute {
                held = Some(*address);
            } else if let AddressAttribute::Label(text) = attribute {
                label = Some(text.as_str());
            }
        }
        let Some(held) = held.filter(|held| range.contains(*held)) else { continue };
        if held != range.node_address() || label != Some(&names.label()) {
            let link = name_of(message.header.index, links);
            let label = label.filter(|label| *label != link).map(|label| format!(" ({label})")).unwrap_or_default();
            return Err(NetworkError::RangeTaken {
                range,
                taken: held.to_string(),
                holder: format!("link {link}{label}"),
            });
        }
    }
    Ok(())
}

/// Nobody else may route a part of the range.
fn check_routes(routes: &[RouteMessage], names: &Names, range: PodCidr, links: &[Link]) -> Result<(), NetworkError> {
    for route in routes {
        // Addresses of the machine itself were checked as such.
        if !matches!(route.header.kind, RouteType::Unicast | RouteType::Unreachable | RouteType::BlackHole) {
            continue;
        }
        let Some(to) = destination(route).filter(|to| range.contains(*to)) else { continue };
        let length = route.header.destination_prefix_length;
        if length < range.prefix_length() {
            continue;
        }
        let link = output(route).map(|index| name_of(index, links));
        let is_ours = match &link {
            Some(link) => names.address(link, range).is_some(),
            None => route.header.protocol == PROTOCOL,
        };
        if !is_ours {
            let holder = link.map_or("a route to nowhere".to_owned(), |link| format!("a route to link {link}"));
            return Err(NetworkError::RangeTaken { range, taken: format!("{to}/{length}"), holder });
        }
    }
    Ok(())
}

async fn routes(handle: &Handle) -> Result<Vec<RouteMessage>, NetworkError> {
    let mut all = RouteMessageBuilder::<Ipv4Addr>::new().build();
    all.header.address_family = AddressFamily::Inet;
    handle.route().get(all).execute().try_collect().await.map_err(kernel("list routes"))
}

fn destination(route: &RouteMessage) -> Option<Ipv4Addr> {
    route.attributes.iter().find_map(|attribute| {
        let RouteAttribute::Destination(RouteAddress::Inet(address)) = attribute else { return None };
        Some(*address)
    })
}

fn output(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| {
        let RouteAttribute::Oif(index) = attribute else { return None };
        Some(*index)
    })
}

fn name_of(index: u32, links: &[Link]) -> String {
    links.iter().find(|link| link.index == index).map_or_else(|| format!("#{index}"), |link| link.name.clone())
}

/// The MTU of the link that the best default route uses.
fn uplink_mtu(routes: &[RouteMessage], links: &[Link]) -> u32 {
    // No metric means 0, which is the best.
    let metric = |route: &RouteMessage| {
        let found = route.attributes.iter().find_map(|attribute| {
            let RouteAttribute::Priority(metric) = attribute else { return None };
            Some(*metric)
        });
        found.unwrap_or(0)
    };
    let is_default =
        |route: &&RouteMessage| route.header.destination_prefix_length == 0 && route.header.kind == RouteType::Unicast;
    let uplink = routes.iter().filter(is_default).min_by_key(|route| metric(route)).and_then(output);
    let uplink = uplink.and_then(|index| links.iter().find(|link| link.index == index));
    uplink.and_then(|link| link.mtu).unwrap_or(MTU_WITHOUT_UPLINK)
}

/// Left on when the network is removed: others may depend on it too.
fn enable_forwarding() -> Result<(), NetworkError> {
    let path = "/proc/sys/net/ipv4/ip_forward";
    if std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "1") {
        return Ok(());
    }
    set("net.ipv4.ip_forward", path, "1")
}

/// Packets from a pod must carry the pod's own address: the kernel drops what it would not route back there.
pub(super) fn forbid_spoofing(link: &str) -> Result<(), NetworkError> {
    set(&format!("net.ipv4.conf.{link}.rp_filter"), &format!("/proc/sys/net/ipv4/conf/{link}/rp_filter"), "1")
}

/// Pods speak IPv4 here. A link that also spoke IPv6 would let a pod advertise itself as this machine's router.
pub(super) fn forbid_ipv6(link: &str) -> Result<(), NetworkError> {
    let path = format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6");
    // A kernel without IPv6 has nothing to forbid.
    if !Path::new(&path).exists() {
        return Ok(());
    }
    set(&format!("net.ipv6.conf.{link}.disable_ipv6"), &path, "1")
}

/// Lets this machine's own 127.0.0.1 reach the pod by a host port. What pods send there is dropped by a rule.
pub(super) fn allow_loopback(link: &str) -> Result<(), NetworkError> {
    let path = format!("/proc/sys/net/ipv4/conf/{link}/route_localnet");
    set(&format!("net.ipv4.conf.{link}.route_localnet"), &path, "1")
}

fn set(setting: &str, path: &str, value: &str) -> Result<(), NetworkError> {
    let failed = |source: io::Error| NetworkError::Setting { setting: format!("{setting} to {value}"), source };
    std::fs::write(path, value).map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn link_names_fit_and_read_back() {
        let range: PodCidr = "10.86.0.0/16".parse().unwrap();
        let names = Names::of("one");
        let link = names.link(Ipv4Addr::new(10, 86, 1, 2));
        assert_eq!((link.len(), &link[6..]), (14, "0a560102"));
        assert_eq!(names.address(&link, range), Some(Ipv4Addr::new(10, 86, 1, 2)));
        assert_eq!(names.address(&link, "10.87.0.0/16".parse().unwrap()), None);
        assert_eq!(Names::of("two").address(&link, range), None);
        assert_eq!(names.address(&link.to_uppercase(), range), None);
    }
}
