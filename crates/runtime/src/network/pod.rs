//! A pod's side of the network: a pair of virtual links, an address, and the one way out.
//!
//! ```text
//!   pod namespace                          host
//!   eth0  10.86.0.2/32  ══════ pair ══════ adXXXX0a560002   route 10.86.0.2/32, from the node's address
//!   default via 169.254.1.1                (that address exists nowhere: a fixed neighbour stands for it)
//! ```

use std::fs::{File, read_link};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};

use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::error::{NetworkError, errno, kernel};
use super::host::{self, LOOPBACK, Link, Names, PROTOCOL};

const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// Every host side has the same hardware address: each is alone on its wire.
const HOST_MAC: [u8; 6] = [0x02, 0xad, 0x1e, 0x00, 0x00, 0x01];
const INSIDE: &str = "eth0";
/// How often a link may be found changed under our hands before that is called an error.
const ATTEMPTS_MAX: usize = 3;

/// What a pod is to be given.
pub(super) struct Wiring<'a> {
    pub(super) host: &'a Handle,
    pub(super) names: &'a Names,
    pub(super) node: Ipv4Addr,
    pub(super) address: Ipv4Addr,
    pub(super) mtu: u32,
    /// Shown by `ip link`, for people.
    pub(super) alias: String,
}

impl Wiring<'_> {
    /// Makes the pod's network, or completes what an earlier attempt left unfinished.
    pub(super) async fn complete(&self, netns: File) -> Result<(), NetworkError> {
        let inside = Inside::enter(netns).await?;
        let (outer, inner) = self.pair(&inside).await?;
        self.set_up_host(&outer).await?;
        self.set_up_pod(&inside.handle, inner.index).await?;
        outer.settle(self.host).await?;
        inner.settle(&inside.handle).await
    }

    /// The two ends, made if they are not there.
    async fn pair(&self, inside: &Inside) -> Result<(Link, Link), NetworkError> {
        let name = self.names.link(self.address);
        for _ in 0..ATTEMPTS_MAX {
            let outer = Link::find(self.host, &name).await?;
            let inner = Link::find(&inside.handle, INSIDE).await?;
            match (outer, inner) {
                (Some(outer), Some(inner)) if outer.peer == Some(inner.index) && inner.peer == Some(outer.index) => {
                    return Ok((outer, inner));
                }
                // An end without the other belongs to a namespace that is going away, or to an attempt cut short.
                (Some(outer), _) => outer.remove(self.host).await?,
                (None, Some(inner)) => inner.remove(&inside.handle).await?,
                (None, None) => self.make_pair(&name, inside).await?,
            }
        }
        match (Link::find(self.host, &name).await?, Link::find(&inside.handle, INSIDE).await?) {
            (Some(outer), Some(inner)) if inner.peer == Some(outer.index) => Ok((outer, inner)),
            _ => Err(NetworkError::Contested { link: name, address: self.address }),
        }
    }

    /// Makes the pair down: asking for "up" at once fails, since the other end does not exist yet.
    async fn make_pair(&self, name: &str, inside: &Inside) -> Result<(), NetworkError> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(INSIDE)
            .mtu(self.mtu)
            .address(self.pod_mac().to_vec())
            .setns_by_fd(inside.namespace.as_raw_fd())
            .build();
        let pair = LinkVeth::new(name, INSIDE)
            .mtu(self.mtu)
            .address(HOST_MAC.to_vec())
            .link_group(self.names.group)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        match self.host.link().add(pair).execute().await {
            Err(error) if errno(&error) == Some(libc::EEXIST) => Ok(()),
            other => other.map_err(kernel(format!("make link {name} of {}", self.alias))),
        }
    }

    async fn set_up_host(&self, outer: &Link) -> Result<(), NetworkError> {
        // Before it is up: afterwards it would already listen.
        host::forbid_ipv6(&outer.name)?;
        let up = LinkMessageBuilder::<LinkUnspec>::new().index(outer.index).alias(&self.alias).up().build();
        self.host.link().change(up).execute().await.map_err(kernel(format!("bring up link {}", outer.name)))?;
        host::forbid_spoofing(&outer.name)?;
        let neighbour = self.host.neighbours().add(outer.index, IpAddr::V4(self.address));
        let neighbour = neighbour.link_layer_address(&self.pod_mac()).replace().execute().await;
        neighbour.map_err(kernel(format!("add the neighbour {}", self.address)))?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(self.address, 32)
            .output_interface(outer.index)
            .pref_source(self.node)
            .scope(RouteScope::Link)
            .protocol(PROTOCOL)
            .build();
        let route = self.host.route().add(route).replace().execute().await;
        route.map_err(kernel(format!("add the route to {}", self.address)))
    }

    async fn set_up_pod(&self, inside: &Handle, inner: u32) -> Result<(), NetworkError> {
        for index in [LOOPBACK, inner] {
            let up = LinkMessageBuilder::<LinkUnspec>::new().index(index).up().build();
            inside.link().change(up).execute().await.map_err(kernel("bring up the links of the pod"))?;
        }
        let address = inside.address().add(inner, IpAddr::V4(self.address), 32).replace().execute().await;
        address.map_err(kernel(format!("give the pod the address {}", self.address)))?;
        let gateway = inside.neighbours().add(inner, IpAddr::V4(GATEWAY));
        let gateway = gateway.link_layer_address(&HOST_MAC).replace().execute().await;
        gateway.map_err(kernel("add the gateway of the pod"))?;
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(GATEWAY)
            .output_interface(inner)
            .pref_source(self.address)
            .onlink()
            .build();
        let route = inside.route().add(route).replace().execute().await;
        route.map_err(kernel("add the default route of the pod"))
    }

    /// Follows from the address, so that nobody needs to ask for it.
    fn pod_mac(&self) -> [u8; 6] {
        let [a, b, c, d] = self.address.octets();
        [0x0a, 0x58, a, b, c, d]
    }
}

/// A netlink connection that speaks for a pod's namespace, from wherever it is used.
struct Inside {
    namespace: File,
    handle: Handle,
    connection: AbortHandle,
}

impl Inside {
    /// A socket belongs to the namespace it is made in, and only a thread can enter one: a short-lived thread does.
    async fn enter(namespace: File) -> Result<Self, NetworkError> {
        let named = format!("/proc/self/fd/{}", namespace.as_raw_fd());
        let failed = |source| NetworkError::Namespace { path: read_link(&named).unwrap_or_default(), source };
        let theirs = namespace.try_clone().map_err(failed)?;
        let runtime = tokio::runtime::Handle::current();
        let (made, socket) = oneshot::channel();
        std::thread::Builder::new()
            .name("enter-netns".into())
            .spawn(move || {
                let _context = runtime.enter();
                let entered = move_into_link_name_space(theirs.as_fd(), Some(LinkNameSpaceType::Network));
                // Nobody listens any more if the caller was cancelled.
                let _ = made.send(entered.map_err(Into::into).and_then(|()| rtnetlink::new_connection()));
            })
            .map_err(failed)?;
        let (connection, handle, _) = socket.await.map_err(|_| NetworkError::NotRunning)?.map_err(failed)?;
        let connection = tokio::spawn(connection).abort_handle();
        Ok(Self { namespace, handle, connection })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // An open socket would keep the namespace, and with it the links, alive.
        self.connection.abort();
    }
}
