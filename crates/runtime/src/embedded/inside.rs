//! What can be learnt of a pod, or done in it, from its network namespace and control groups.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use super::pod::{Pod, system};
use super::{Inner, Result, blocking};
use crate::contract::{ConnectionFilter, Connections, ContainerStats, PodUid, RuntimeError};
use crate::network::sockets::{self, Listing};
use crate::shim::records::{self, SandboxRecord, directory_name};

/// Within one machine a connection is made or refused at once, unless the listener's queue is full.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long answers on their way are waited for when a pod's network is about to go, and how often they are looked for.
const DELIVERY_MAX: Duration = Duration::from_millis(500);
const DELIVERY_LOOK_EVERY: Duration = Duration::from_millis(2);

impl Inner {
    pub(super) async fn connect_to(&self, uid: &PodUid, port: u16) -> Result<OwnedFd> {
        let connected = self.in_network_of(uid, move || {
            let here = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
            let first = TcpStream::connect_timeout(&here[0], CONNECT_WAIT_MAX);
            // What the first answered counts if the second has nothing better.
            first.or_else(|error| TcpStream::connect_timeout(&here[1], CONNECT_WAIT_MAX).map_err(|_| error))
        });
        let stream =
            connected.await?.map_err(|error| system(format!("cannot connect to port {port}"))(error.into()))?;
        Ok(stream.into())
    }

    pub(super) async fn connections(&self, uid: &PodUid, filter: &ConnectionFilter) -> Result<Connections> {
        let (filter, pod) = (filter.clone(), self.find(uid)?);
        let counted = self.in_network_of(uid, move || Listing::open()?.count(&filter, own_sockets(&pod)?.as_ref()));
        counted.await?.map_err(|error| system("cannot count the pod's connections")(error.into()))
    }

    pub(super) async fn settled(&self, uid: &PodUid, every: Duration, within: Duration) -> Result<bool> {
        let pod = self.find(uid)?;
        let watched = self.in_network_of(uid, move || {
            let (listing, begun, all) = (Listing::open()?, Instant::now(), ConnectionFilter::default());
            let mut empty_before = false;
            loop {
                let connections = listing.count(&all, own_sockets(&pod)?.as_ref())?;
                let is_empty = connections.opening == 0 && connections.unaccepted == 0;
                if is_empty && empty_before {
                    return Ok(true);
                }
                empty_before = is_empty;
                if begun.elapsed() + every > within {
                    return Ok(false);
                }
                std::thread::sleep(every);
            }
        });
        watched.await?.map_err(|error| system("cannot watch the pod's listening sockets")(error.into()))
    }

    /// Waits until what the pod's programs sent before they ended has arrived, for a bounded time: with the pod's network goes
    /// whatever is still on its way, and a client would wait for the rest of its answer in vain. True if it has.
    pub(super) async fn await_delivery(&self, pod: &Pod) -> bool {
        let is_on_host = records::read::<SandboxRecord>(&pod.dir.sandbox()).is_some_and(|it| it.spec.host_network);
        if is_on_host || pod.link().is_none() {
            return true;
        }
        let delivered = self.in_network_of(&pod.uid, || {
            let (listing, begun) = (Listing::open()?, Instant::now());
            while listing.owed()? > 0 {
                if begun.elapsed() > DELIVERY_MAX {
                    return Ok(false);
                }
                std::thread::sleep(DELIVERY_LOOK_EVERY);
            }
            Ok(true)
        });
        // Who cannot be asked holds nobody back.
        matches!(delivered.await, Ok(Ok(true)))
    }

    /// Does something on a thread of its own that is in the pod's network namespace: only threads can enter one, and
    /// what a thread made there stays there.
    async fn in_network_of<T: Send + 'static>(
        &self,
        uid: &PodUid,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<io::Result<T>> {
        let link = self.find(uid)?.link().ok_or_else(|| RuntimeError::NoSandbox { pod: uid.0.clone() })?;
        let (done, result) = oneshot::channel();
        let failed = |error: io::Error| system("cannot enter the pod's network")(error.into());
        std::thread::Builder::new()
            .name("in-pod-network".into())
            .spawn(move || {
                let entered = link.network_namespace().and_then(|namespace| {
                    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
                });
                // Nobody listens any more if the caller was cancelled.
                let _ = done.send(entered.and_then(|()| act()));
            })
            .map_err(failed)?;
        result.await.map_err(|error| failed(io::Error::other(error)))
    }

    pub(super) async fn stats(&self, uid: &PodUid) -> Result<Vec<ContainerStats>> {
        let pod = self.find(uid)?;
        let read = blocking(move || {
            let running = pod.dir.containers().into_iter().filter(|(_, dir)| !dir.exit().exists());
            let stats = running.filter_map(|(id, _)| {
                let usage = pod.group.below(&directory_name(&id)).usage().ok()?;
                let (cpu_nanos, memory_bytes, processes) = (usage.cpu_nanos, usage.memory_bytes, usage.processes);
                Some(ContainerStats { id, cpu_nanos, memory_bytes, processes })
            });
            Ok(stats.collect())
        });
        read.await.map_err(system("cannot read what the pod uses"))
    }
}

/// The sockets that the processes of a pod on the host's network have open; `None` of a pod that has a network of its own.
fn own_sockets(pod: &Pod) -> io::Result<Option<HashSet<u32>>> {
    let record: Option<SandboxRecord> = records::read(&pod.dir.sandbox());
    if !record.is_some_and(|record| record.spec.host_network) {
        return Ok(None);
    }
    Ok(Some(sockets::open_in(&pod.group.processes()?)))
}
