//! The pod network: every pod has an address of its own, routed point to point, with no bridge in between.
//!
//! Links, addresses, routes, the way out and host ports are made over netlink; no other program is called. Packet rules that
//! another program changes are written again. What is not here: where services lead; what pods send to one is refused.
//!
//! Requests to the kernel are answered in the thread that makes them, and some take tens of milliseconds under a lock
//! that the whole machine shares. So the network has a thread of its own, and nobody else ever waits for that lock.

mod cidr;
mod error;
mod host;
mod inside;
mod ipam;
mod masquerade;
mod pod;
mod ports;
mod services;
pub(crate) mod sockets;
mod tables;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nft::{Family, Table};
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::{RouteMessage, RouteProtocol, RouteScope};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

pub use self::cidr::{InvalidPodCidr, PodCidr};
pub use self::error::NetworkError;
use self::error::{kernel, settled};
use self::host::{Link, Names};
use self::ipam::{Ipam, Lease};
use self::pod::Wiring;
use self::ports::Published;
use self::tables::Tables;
use crate::contract::{HostPort, PodUid};

/// A namespace takes its links along when it ends, usually within a tenth of this. A link that is still there
/// afterwards belongs to a namespace that lives on.
const LINK_OUTLIVES_POD_MAX: Duration = Duration::from_secs(1);

/// How many pods may wait to be told of whose former address was given away early.
const RECYCLED_TOLD_MAX: usize = 1024;

/// The pod network of one instance. Clones share it.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<Inner>,
    thread: Arc<Thread>,
}

#[derive(Debug)]
struct Inner {
    names: Names,
    range: PodCidr,
    mtu: u32,
    host: rtnetlink::Handle,
    ipam: Mutex<Ipam>,
    /// Told of pods whose former address had to be given to another although clients may still use it.
    recycled: broadcast::Sender<PodUid>,
    tables: Arc<Tables>,
    /// Held while the table of host ports is written.
    published: Mutex<Published>,
    /// How many changes of the book are known to be on disk.
    synced: tokio::sync::Mutex<u64>,
    /// One for each released link that has yet to vanish.
    reapers: Mutex<JoinSet<()>>,
    thread: Handle,
}

impl Network {
    /// Opens the network of `instance`, whose record of addresses is in `dir`, and makes the node ready for pods.
    ///
    /// Pods that are wired already stay so. The network works in the network namespace of the calling thread.
    pub async fn open(dir: &Path, instance: &str, pod_cidr: PodCidr) -> Result<Self, NetworkError> {
        let thread = Arc::new(Thread::start()?);
        let (dir, names) = (dir.to_owned(), Names::of(instance));
        let inner = thread.run(async move {
            let failed = |source| NetworkError::Kernel { doing: "open a netlink socket".into(), source };
            let (connection, host, _) = rtnetlink::new_connection().map_err(failed)?;
            tokio::spawn(connection);
            let create = |source| NetworkError::LeaseLog { doing: "create", path: dir.clone(), source };
            crate::shim::records::make_dir(&dir).map_err(create)?;
            let ipam = Ipam::open(&dir.join("addresses"), pod_cidr, Instant::now())?;
            let mtu = host::prepare(&host, &names, pod_cidr).await?;
            let tables = Arc::new(Tables::new());
            match tables.watch() {
                Ok(watching) => drop(tokio::spawn(watching)),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "packet rules that other programs change stay so until a restart");
                }
            }
            if let Err(error) = tables.write(masquerade::spec(table(names.prefix.clone()), pod_cidr)) {
                // Pods reach each other and the node all the same.
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "no address translation in this kernel: pods do not reach the outside");
            }
            let node = pod_cidr.node_address();
            if let Err(error) = tables.write(inside::spec(inside_table(&names), &names.prefix, node)) {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, %node, "no packet filter in this kernel: others than pods may reach the node there");
            }
            let inner = Arc::new(Inner {
                names,
                range: pod_cidr,
                mtu,
                host,
                ipam: Mutex::new(ipam),
                recycled: broadcast::Sender::new(RECYCLED_TOLD_MAX),
                tables,
                published: Mutex::default(),
                synced: tokio::sync::Mutex::new(0),
                reapers: Mutex::new(JoinSet::new()),
                thread: Handle::current(),
            });
            inner.reap_leftovers().await?;
            Ok(inner)
        });
        Ok(Self { inner: inner.await?, thread })
    }

    /// Gives the pod an address of each kind there is, its own until it is released, and wires them to the namespace in the
    /// file `netns`. Where all that are free were another's a moment ago, it waits until one has rested. Asking again gives the same answer, and completes what was left unfinished.
    pub async fn attach(&self, pod: &PodUid, netns: &Path) -> Result<Vec<IpAddr>, NetworkError> {
        let opened = File::open(netns).map_err(|source| NetworkError::Namespace { path: netns.to_owned(), source });
        self.attach_to(pod, opened?).await
    }

    /// The same for a namespace that is open, and so cannot be mistaken for another.
    pub(crate) async fn attach_to(&self, pod: &PodUid, netns: File) -> Result<Vec<IpAddr>, NetworkError> {
        let (inner, pod) = (self.inner.clone(), pod.clone());
        self.thread.run(async move { inner.attach(&pod, netns).await }).await
    }

    /// Takes the pod's address back; it rests before another pod gets it. The pod's link goes with its namespace, or
    /// a little later if that lives on. A pod without an address is released already.
    pub async fn release(&self, pod: &PodUid) -> Result<(), NetworkError> {
        // Not on the network's thread: a pod that is gone need not wait for links that are going.
        let Some(address) = self.inner.ipam().release(pod, Instant::now())? else { return Ok(()) };
        self.inner.reap(v4(address)?, LINK_OUTLIVES_POD_MAX);
        let withdrawn = self.inner.withdraw(pod).await;
        self.inner.sync().await.and(withdrawn)
    }

    /// Sends what comes to these ports of the node on to the pod, until it is released. Nothing is changed if somebody
    /// else has one of them.
    pub async fn publish(&self, pod: &PodUid, ports: &[HostPort]) -> Result<(), NetworkError> {
        let (inner, pod, ports) = (self.inner.clone(), pod.clone(), ports.to_vec());
        self.thread.run(async move { inner.publish(pod, ports) }).await
    }

    /// Does so for all pods that are there after a restart. What a former run published for others is gone with it.
    pub async fn republish(&self, pods: Vec<(PodUid, Vec<HostPort>)>) -> Result<(), NetworkError> {
        let inner = self.inner.clone();
        self.thread.run(async move { inner.republish(pods) }).await
    }

    /// Refuses at once what pods send to addresses of services, as nothing leads there; kept until the network is torn down.
    pub async fn refuse_services(&self, services: PodCidr) -> Result<(), NetworkError> {
        let inner = self.inner.clone();
        self.thread.run(async move { inner.refuse_services(services) }).await
    }

    /// Lets programs of this machine dial addresses of `services`, also where no route leads there.
    pub async fn reach_services(&self, services: PodCidr) -> Result<(), NetworkError> {
        let inner = self.inner.clone();
        self.thread.run(async move { host::reach_services(&inner.host, inner.range, services).await }).await
    }

    /// Removes all links, routes and addresses of this instance from the machine, and nothing of anyone else's. The
    /// network is of no use afterwards until it is opened again.
    pub async fn tear_down(&self) -> Result<(), NetworkError> {
        let inner = self.inner.clone();
        self.thread.run(async move { inner.tear_down().await }).await
    }

    /// The pod's addresses, if it has any.
    pub fn addresses(&self, pod: &PodUid) -> Vec<IpAddr> {
        self.inner.ipam().address(pod).into_iter().collect()
    }

    /// The pods that have any.
    pub fn holders(&self) -> Vec<PodUid> {
        self.inner.ipam().pods()
    }

    /// Keeps the pod's address from others beyond its release, until the quarantine ends or no other address is left.
    pub fn quarantine(&self, pod: &PodUid) {
        self.inner.ipam().quarantine(pod);
    }

    /// Nobody sends anything to the pod's former address any more.
    pub fn end_quarantine(&self, pod: &PodUid) {
        self.inner.ipam().end_quarantine(pod);
    }

    /// How many addresses are kept from others.
    pub fn quarantined(&self) -> usize {
        self.inner.ipam().quarantined()
    }

    /// Tells of pods whose former address was given to another before their quarantine ended.
    pub fn recycled(&self) -> broadcast::Receiver<PodUid> {
        self.inner.recycled.subscribe()
    }

    /// How often packet rules were written again because another program had changed them.
    pub fn rule_repairs(&self) -> u64 {
        self.inner.tables.repairs()
    }

    /// Where pods reach the node itself: the API, the cluster DNS.
    pub fn node_address(&self) -> Ipv4Addr {
        self.inner.range.node_address()
    }

    /// The host-side link of a pod that has an address.
    pub fn link(&self, pod: &PodUid) -> Option<String> {
        let address = self.inner.ipam().address(pod)?;
        v4(address).ok().map(|address| self.inner.names.link(address))
    }

    /// What the names of all host-side links of this instance begin with.
    pub fn link_prefix(&self) -> &str {
        &self.inner.names.prefix
    }
}

impl Inner {
    async fn attach(&self, pod: &PodUid, netns: File) -> Result<Vec<IpAddr>, NetworkError> {
        let address = loop {
            let lease = self.ipam().lease(pod, Instant::now())?;
            match lease {
                Lease::Given(address) => break v4(address)?,
                Lease::Recycled { address, of } => {
                    // Whoever cares is told; without anybody there is nothing to undo.
                    let _ = self.recycled.send(of);
                    break v4(address)?;
                }
                Lease::Resting { until } => tokio::time::sleep_until(until.into()).await,
            }
        };
        let wiring = Wiring {
            host: &self.host,
            names: &self.names,
            node: self.range.node_address(),
            address,
            mtu: self.mtu,
            alias: format!("pod {}", pod.0),
        };
        // Disk and kernel work side by side; nobody is told before both are done.
        let (synced, wired) = tokio::join!(self.sync(), wiring.complete(netns));
        synced.and(wired).map(|()| vec![address.into()])
    }

    fn publish(&self, pod: PodUid, ports: Vec<HostPort>) -> Result<(), NetworkError> {
        let Some(address) = self.ipam().address(&pod).filter(|_| !ports.is_empty()) else { return Ok(()) };
        let address = v4(address)?;
        ports.iter().try_for_each(|port| v4(port.host_ip).map(drop))?;
        // Of the link, which is another one if the pod's shim is.
        host::allow_loopback(&self.names.link(address))?;
        let mut published = self.published();
        if published.get(&pod).is_some_and(|known| *known == (address, ports.clone())) {
            return Ok(());
        }
        if let Some(conflict) = ports::conflict(&published, &pod, &ports) {
            return Err(conflict);
        }
        let before = published.insert(pod.clone(), (address, ports));
        self.write_ports(&published).inspect_err(|_| {
            match before {
                Some(before) => published.insert(pod, before),
                None => published.remove(&pod),
            };
        })
    }

    fn republish(&self, pods: Vec<(PodUid, Vec<HostPort>)>) -> Result<(), NetworkError> {
        let mut published = self.published();
        for (pod, ports) in pods {
            if let Some(address) = self.ipam().address(&pod).filter(|_| !ports.is_empty()) {
                published.insert(pod, (v4(address)?, ports));
            }
        }
        match self.write_ports(&published) {
            // A kernel without address translation has no table to remove either, and was told of when it was opened.
            Err(_) if published.is_empty() => Ok(()),
            written => written,
        }
    }

    /// Leaves the pod's ports to others. A pod without any does not wait for the network's thread.
    async fn withdraw(self: &Arc<Self>, pod: &PodUid) -> Result<(), NetworkError> {
        if !self.published().contains_key(pod) {
            return Ok(());
        }
        let (inner, pod) = (self.clone(), pod.clone());
        let withdrawing = self.thread.spawn(async move {
            let mut published = inner.published();
            published.remove(&pod);
            inner.write_ports(&published)
        });
        withdrawing.await.map_err(|_| NetworkError::NotRunning)?
    }

    fn write_ports(&self, published: &Published) -> Result<(), NetworkError> {
        let table = table(format!("{}-ports", self.names.prefix));
        let written = match published.is_empty() {
            true => self.tables.remove(&table),
            false => self.tables.write(ports::spec(table, self.range.node_address(), published)),
        };
        written.map_err(rules("write the rules of host ports"))
    }

    fn refuse_services(&self, range: PodCidr) -> Result<(), NetworkError> {
        let written = self.tables.write(services::spec(self.services_table(), self.range, range));
        written.map_err(rules("refuse addresses of services"))
    }

    fn services_table(&self) -> Table {
        table(format!("{}-services", self.names.prefix))
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tear_down(&self) -> Result<(), NetworkError> {
        self.reapers().abort_all();
        let mut failures = host::remove(&self.host, &self.names, self.range).await;
        let masquerade = self.tables.remove(&table(self.names.prefix.clone()));
        failures.extend(masquerade.map_err(rules("remove the address translation")).err());
        let inside = self.tables.remove(&inside_table(&self.names));
        failures.extend(inside.map_err(rules("remove the guard of the node's address")).err());
        let services = self.tables.remove(&self.services_table());
        failures.extend(services.map_err(rules("remove the rules of services")).err());
        failures.extend(self.write_ports(&Published::new()).err());
        let pods = self.ipam().pods();
        failures.extend(pods.iter().filter_map(|pod| self.ipam().release(pod, Instant::now()).err()));
        failures.extend(self.sync().await.err());
        match failures.is_empty() {
            true => Ok(()),
            false => Err(NetworkError::TearDown { failures }),
        }
    }

    /// Whoever ran before may have died between releasing an address and seeing its link vanish.
    async fn reap_leftovers(self: &Arc<Self>) -> Result<(), NetworkError> {
        for link in Link::all(&self.host).await? {
            let Some(address) = self.names.address(&link.name, self.range) else { continue };
            if !self.ipam().is_leased(address.into()) {
                self.reap(address, Duration::ZERO);
            }
        }
        Ok(())
    }

    /// Cuts the route to an address that was released, and removes its link after a while if it is still there. In
    /// the background: all of this waits for a lock that the end of namespaces holds for long.
    fn reap(self: &Arc<Self>, address: Ipv4Addr, after: Duration) {
        let inner = self.clone();
        let mut reapers = self.reapers();
        while reapers.try_join_next().is_some() {}
        let reaping = async move {
            if let Err(error) = inner.cut_and_remove(address, after).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(%address, error, "link of a pod that is gone stays behind");
            }
        };
        reapers.spawn_on(reaping, &self.thread);
    }

    async fn cut_and_remove(&self, address: Ipv4Addr, after: Duration) -> Result<(), NetworkError> {
        let name = self.names.link(address);
        let Some(link) = Link::find(&self.host, &name).await? else { return Ok(()) };
        // A lease comes before its link. So if the address has a new holder, the link may be theirs; and if it is not,
        // they remove it.
        if self.ipam().is_leased(address.into()) {
            return Ok(());
        }
        let cut = self.host.route().del(route_through(&link, address)).execute().await;
        settled(cut, &[libc::ESRCH, libc::ENODEV]).map_err(kernel(format!("remove the route to {address}")))?;
        tokio::time::sleep(after).await;
        match Link::find(&self.host, &name).await? {
            Some(found) if found.index == link.index && !self.ipam().is_leased(address.into()) => {
                found.remove(&self.host).await
            }
            _ => Ok(()),
        }
    }

    /// Returns when every change made before is on disk. Changes made meanwhile share one sync.
    async fn sync(&self) -> Result<(), NetworkError> {
        let (wanted, _) = self.ipam().unsynced()?;
        let mut synced = self.synced.lock().await;
        if *synced >= wanted {
            return Ok(());
        }
        let (covered, file) = self.ipam().unsynced()?;
        let done = tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(|_| NetworkError::NotRunning)?;
        done.map_err(|source| NetworkError::LeaseLog { doing: "sync", path: self.ipam().path().to_owned(), source })?;
        *synced = covered;
        Ok(())
    }

    fn ipam(&self) -> MutexGuard<'_, Ipam> {
        self.ipam.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reapers(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.reapers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records and requests are of both kinds of addresses; what is wired here is of one.
fn v4(address: IpAddr) -> Result<Ipv4Addr, NetworkError> {
    match address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(address) => Err(NetworkError::NotRouted { address: address.into() }),
    }
}

/// A table of this instance: of IPv4, as everything here.
fn table(name: String) -> Table {
    Table::new(Family::Ip, name)
}

fn inside_table(names: &Names) -> Table {
    table(format!("{}-inside", names.prefix))
}

/// Names what rules were for.
fn rules(doing: &'static str) -> impl FnOnce(nft::Error) -> NetworkError {
    move |source| NetworkError::Rules { doing, source }
}

/// Any route to the address through that link, whoever made it.
fn route_through(link: &Link, address: Ipv4Addr) -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(address, 32)
        .output_interface(link.index)
        .scope(RouteScope::NoWhere)
        .protocol(RouteProtocol::Unspec)
        .build()
}

/// The thread that asks the kernel, and waits for it.
#[derive(Debug)]
struct Thread(Option<Runtime>);

impl Thread {
    fn start() -> Result<Self, NetworkError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("pod-network")
            .enable_all()
            .build();
        let failed = |source| NetworkError::Kernel { doing: "start the thread of the pod network".into(), source };
        Ok(Self(Some(runtime.map_err(failed)?)))
    }

    /// Runs to the end even if the caller stops waiting: half a link helps nobody.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, NetworkError>> + Send + 'static,
    ) -> Result<T, NetworkError> {
        let runtime = self.0.as_ref().ok_or(NetworkError::NotRunning)?;
        runtime.spawn(work).await.map_err(|_| NetworkError::NotRunning)?
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // Waiting for the thread here could block an async caller.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
