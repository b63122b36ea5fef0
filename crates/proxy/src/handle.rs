//! What the node asks of the proxy: keep new connections from a pod, and say how connections reach it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::driver::Shared;
use crate::model::{Model, NodeFacts};

/// How long the rules of a cut may take: the kernel's time, and that of the first lists after a start. Whoever asks may ask again.
const WRITTEN_WITHIN: Duration = Duration::from_secs(2);

/// A protocol above IP that Services have ports of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// Its number in IP packets.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// The protocol of that number.
    pub fn of_number(number: u8) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Sctp].into_iter().find(|protocol| protocol.number() == number)
    }

    /// The one that the API calls so; TCP if it says nothing.
    pub fn of_name(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        })
    }
}

/// What becomes of connections that are addressed to a pod which is cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CutMode {
    /// New TCP connections go to a sibling; while there is none, to the pod.
    Divert,
    /// The pod leaves every list of a Service that has another endpoint; whoever dials the pod itself is served.
    Withdraw,
    /// New connections are refused, and no Service falls back to the pod.
    Refuse,
}

/// A pod that can be cut.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PodEndpoint {
    /// The pod's UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
}

/// How connections reach a pod.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Reach {
    /// Through the address of a Service.
    pub by_vip: bool,
    /// Through the records of a headless Service.
    pub by_headless: bool,
    /// Through a Service that sends to pods of this node only.
    pub node_local: bool,
    /// Other endpoints that are ready, not terminating, and on the same target port in every Service that selects the pod.
    pub siblings: u32,
    /// Some Service has no other endpoint that is ready and not terminating: its new connections come here whatever happens.
    pub last: bool,
    /// The pod's ports that Services lead to.
    pub target_ports: BTreeSet<(Protocol, u16)>,
}

/// Why the proxy could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The kernel did not take the rules. What was there before is in force, and it is tried again.
    #[error("the kernel did not take the rules of services: {reason}")]
    NotApplied {
        /// What it said.
        reason: String,
    },
    /// This kernel cannot divert connections.
    #[error("this kernel cannot divert connections: {reason}")]
    CannotDivert {
        /// What the self-test said.
        reason: String,
    },
    /// The rules were not written in time.
    #[error("the rules of services are not written after {after:?}: {reason}")]
    TooLate {
        /// How long that was waited for.
        after: Duration,
        /// What is missing.
        reason: &'static str,
    },
    /// The proxy has ended, or begins again after it broke.
    #[error("the proxy does not run")]
    NotRunning,
}

/// What the proxy is asked.
pub(crate) enum Request {
    Cut {
        pod: PodEndpoint,
        mode: CutMode,
        answer: oneshot::Sender<Result<u64, ProxyError>>,
    },
    Restore {
        uid: String,
        answer: oneshot::Sender<Result<(), ProxyError>>,
    },
    Departed {
        uid: String,
        linger: Duration,
        answer: oneshot::Sender<()>,
    },
    NewConnections {
        answer: oneshot::Sender<Result<BTreeMap<String, u64>, ProxyError>>,
    },
    /// The tables are removed, and their owner ends.
    Close {
        answer: oneshot::Sender<Result<(), ProxyError>>,
    },
    #[cfg(test)]
    Break,
}

/// Speaks to the proxy of this node. Clones are cheap, and speak to the same.
#[derive(Clone, Debug)]
pub struct ProxyHandle {
    requests: mpsc::UnboundedSender<Request>,
    applied: watch::Receiver<u64>,
    shared: Arc<Shared>,
}

impl ProxyHandle {
    /// One that leads nowhere: whatever is asked of it is answered with [`ProxyError::NotRunning`].
    pub fn disconnected() -> Self {
        let facts = NodeFacts::default();
        let shared = Shared { model: Mutex::new(Model::new(facts)), told: Mutex::default() };
        Self::new(mpsc::unbounded_channel().0, watch::channel(0).1, Arc::new(shared))
    }

    pub(crate) fn new(
        requests: mpsc::UnboundedSender<Request>,
        applied: watch::Receiver<u64>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { requests, applied, shared }
    }

    /// New connections are kept from the pod: it leaves every list of this node's, and with [`CutMode::Divert`] those that are
    /// addressed to the pod itself go to a sibling. Answered with the applied revision when the kernel has acknowledged the
    /// rules. Jumps the queue. Asking again replaces the mode.
    ///
    /// A cut covers whatever slices say of the pod, until it is restored or has departed.
    ///
    /// It is asked for when this is called, not when the future is polled first.
    pub fn cut(&self, pod: PodEndpoint, mode: CutMode) -> impl Future<Output = Result<u64, ProxyError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let is_asked = self.requests.send(Request::Cut { pod, mode, answer }).is_ok();
        let shared = self.shared.clone();
        async move {
            if !is_asked {
                return Err(ProxyError::NotRunning);
            }
            match tokio::time::timeout(WRITTEN_WITHIN, answered).await {
                Ok(answer) => answer.unwrap_or(Err(ProxyError::NotRunning)),
                Err(_) => Err(ProxyError::TooLate {
                    after: WRITTEN_WITHIN,
                    reason: match shared.model().is_listed() {
                        true => "the kernel has not acknowledged them",
                        false => "the API has not listed Services and EndpointSlices yet",
                    },
                }),
            }
        }
    }

    /// The pod is leaving. Whatever slices say from now on, it takes new connections only while nobody else does; what is in force already
    /// is for [`cut`](Self::cut) to change. Answers how it is reached by what is known, in force or not; `None` before Services and slices
    /// are.
    pub fn leaves(&self, pod: &PodEndpoint) -> Option<Reach> {
        let mut model = self.shared.model();
        model.know(pod);
        if !model.is_cut(&pod.uid) {
            model.cut(pod.clone(), CutMode::Withdraw);
        }
        model.is_listed().then(|| model.reach(&pod.uid))
    }

    /// Nothing is left of a pod that was leaving and never cut.
    pub fn forget(&self, uid: &str) {
        self.shared.model().restore(uid);
    }

    /// The pod is as its slices say again. As with [`cut`](Self::cut), that is asked for when this is called.
    pub fn restore(&self, uid: &str) -> impl Future<Output = Result<(), ProxyError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        // Of one that does not run the answer is dropped.
        let _ = self.requests.send(Request::Restore { uid: uid.to_owned(), answer });
        async move { answered.await.unwrap_or(Err(ProxyError::NotRunning)) }
    }

    /// The pod is gone: connections to it are diverted for `linger` longer. Resolves when its address may be used again.
    pub async fn departed(&self, uid: &str, linger: Duration) {
        let uid = uid.to_owned();
        // Whoever does not run holds nothing back.
        let _ = self.ask(|answer| Request::Departed { uid, linger, answer }).await;
    }

    /// How connections reach the pod, now and whenever that changes; `None` before Services and slices are known. Whoever asks says
    /// which addresses the pod has: slices lead to those, whatever pods they name. To be asked again when it has others.
    pub fn reach(&self, pod: &PodEndpoint) -> watch::Receiver<Option<Reach>> {
        let mut model = self.shared.model();
        let mut told = self.shared.told();
        model.know(pod);
        let now = model.is_listed().then(|| model.reach(&pod.uid));
        let tell = told.entry(pod.uid.clone()).or_insert_with(|| watch::channel(None).0);
        tell.send_if_modified(|known| std::mem::replace(known, now.clone()) != now);
        tell.subscribe()
    }

    /// The largest revision up to which every event of EndpointSlices is in the rules of the kernel.
    pub fn applied_revision(&self) -> watch::Receiver<u64> {
        self.applied.clone()
    }

    /// How many new connections to each pod of this node the kernel has seen on the ports that Services lead to, by UID. The node's own
    /// probes are none. A count grows while the pod is listed, and begins anew when another program made the rules be rewritten.
    pub async fn new_connections(&self) -> Result<BTreeMap<String, u64>, ProxyError> {
        self.ask(|answer| Request::NewConnections { answer }).await.unwrap_or(Err(ProxyError::NotRunning))
    }

    pub(crate) async fn close(&self) -> Result<(), ProxyError> {
        self.ask(|answer| Request::Close { answer }).await.unwrap_or(Err(ProxyError::NotRunning))
    }

    /// Ends the owner of the tables in the middle of its work.
    #[cfg(test)]
    pub(crate) fn break_owner(&self) {
        let _ = self.requests.send(Request::Break);
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).ok()?;
        answered.await.ok()
    }
}
