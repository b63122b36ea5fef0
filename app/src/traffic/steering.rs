//! What traffic is steered with: the node's proxy, and the sockets and addresses of its pods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proxy::{CutMode, PodEndpoint, ProxyError, ProxyHandle, Reach};
use runtime::embedded::Embedded;
use runtime_api::{ConnectionFilter, Connections, PodUid};
use supervision::error_chain;
use tokio::sync::{broadcast, mpsc, watch};

/// The proxy, as far as pods that leave need it. `cut` and `restore` are asked for in the order in which they are called.
pub(crate) trait Steering: Send + Sync + 'static {
    fn cut(&self, pod: PodEndpoint, mode: CutMode) -> BoxFuture<'static, Result<u64, ProxyError>>;
    fn restore(&self, uid: &str) -> BoxFuture<'static, Result<(), ProxyError>>;
    fn leaves(&self, pod: &PodEndpoint) -> Option<Reach>;
    fn departed(&self, uid: &str, linger: Duration) -> BoxFuture<'static, ()>;
    fn forget(&self, uid: &str);
    fn reach(&self, pod: &PodEndpoint) -> watch::Receiver<Option<Reach>>;
    fn new_connections(&self) -> BoxFuture<'static, Result<BTreeMap<String, u64>, ProxyError>>;
}

impl Steering for ProxyHandle {
    fn cut(&self, pod: PodEndpoint, mode: CutMode) -> BoxFuture<'static, Result<u64, ProxyError>> {
        Self::cut(self, pod, mode).boxed()
    }

    fn restore(&self, uid: &str) -> BoxFuture<'static, Result<(), ProxyError>> {
        Self::restore(self, uid).boxed()
    }

    fn leaves(&self, pod: &PodEndpoint) -> Option<Reach> {
        Self::leaves(self, pod)
    }

    fn forget(&self, uid: &str) {
        Self::forget(self, uid);
    }

    fn departed(&self, uid: &str, linger: Duration) -> BoxFuture<'static, ()> {
        let (handle, uid) = (self.clone(), uid.to_owned());
        async move { Self::departed(&handle, &uid, linger).await }.boxed()
    }

    fn reach(&self, pod: &PodEndpoint) -> watch::Receiver<Option<Reach>> {
        Self::reach(self, pod)
    }

    fn new_connections(&self) -> BoxFuture<'static, Result<BTreeMap<String, u64>, ProxyError>> {
        let handle = self.clone();
        async move { Self::new_connections(&handle).await }.boxed()
    }
}

/// The sockets and addresses of pods. Failures come in words, for people.
pub(crate) trait PodNetwork: Send + Sync + 'static {
    /// The pod's own addresses; none on the host's network.
    fn addresses(&self, uid: &str) -> Vec<IpAddr>;
    /// Keeps the pod's address from others beyond its end.
    fn quarantine(&self, uid: &str);
    fn end_quarantine(&self, uid: &str);
    /// Pods whose address was given to others before that.
    fn recycled(&self) -> mpsc::UnboundedReceiver<String>;
    /// Whether it was seen in time that nobody waits to be accepted.
    fn settled(&self, uid: &str, every: Duration, within: Duration) -> BoxFuture<'_, Result<bool, String>>;
    /// How many connections are open.
    fn connections<'a>(&'a self, uid: &str, filter: &'a ConnectionFilter) -> BoxFuture<'a, Result<u32, String>>;
}

impl PodNetwork for Embedded {
    fn addresses(&self, uid: &str) -> Vec<IpAddr> {
        self.network().addresses(&PodUid(uid.to_owned()))
    }

    fn quarantine(&self, uid: &str) {
        self.network().quarantine(&PodUid(uid.to_owned()));
    }

    fn end_quarantine(&self, uid: &str) {
        self.network().end_quarantine(&PodUid(uid.to_owned()));
    }

    fn recycled(&self) -> mpsc::UnboundedReceiver<String> {
        let mut recycled = self.network().recycled();
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                match recycled.recv().await {
                    Ok(PodUid(uid)) => {
                        if tell.send(uid).is_err() {
                            return;
                        }
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
        told
    }

    fn settled(&self, uid: &str, every: Duration, within: Duration) -> BoxFuture<'_, Result<bool, String>> {
        let pod = PodUid(uid.to_owned());
        async move {
            let settled = runtime_api::ConnectionCounts::settled(self, &pod, every, within).await;
            settled.map_err(|error| error_chain(&error))
        }
        .boxed()
    }

    fn connections<'a>(&'a self, uid: &str, filter: &'a ConnectionFilter) -> BoxFuture<'a, Result<u32, String>> {
        let pod = PodUid(uid.to_owned());
        async move {
            let counted = runtime_api::ConnectionCounts::connections(self, &pod, filter).await;
            // What waits to be accepted is open as well.
            let Connections { established, opening, unaccepted: _ } = counted.map_err(|error| error_chain(&error))?;
            Ok(u32::try_from(established + opening).unwrap_or(u32::MAX))
        }
        .boxed()
    }
}
