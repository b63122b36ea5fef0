//! Steers the traffic of this node's pods: what their workers ask for is done by the proxy's rules and the pods' own sockets.
//!
//! ```text
//!  worker ── Cut, Restore ─────────▶ proxy: one commit of packet rules ──▶ Routed, CutDone, Acked
//!         ── AwaitSettled ─────────▶ the pod's sockets, every 2 ms, 1 s at most ──▶ Settled
//!         ── WatchConnections ─────▶ the same, from every 250 ms to every 5 s ──▶ Connections
//!  proxy ── how the pod is reached ▶ Routed, whenever that changes
//! ```
//!
//! Which kind of pod gets which evidence is in [`routes`]. What is decided from all this is in `lifecycle`. Whatever fails is told with
//! its reason and tried again; the worker waits no longer than its barrier allows.

mod arrivals;
mod counters;
mod drain_hook;
pub(crate) mod other_proxies;
mod replacement;
mod routes;
mod steering;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Cut, Routes, TrafficNews};
use node::Traffic;
use node::traffic::{TrafficReporter, TrafficRequest};
use proxy::{CutMode, PodEndpoint, Reach};
use supervision::{BackoffPolicy, error_chain};
use timeline::Clock;
use tokio::sync::watch;
use tokio::time::Instant;

use self::arrivals::Arrivals;
use self::counters::Counters;
pub(crate) use self::replacement::Owners;
pub(crate) use self::steering::{PodNetwork, Steering};

/// Between two tries of the proxy.
const AGAIN: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(50), Duration::from_secs(1));
/// How often the kernel is asked whether a connection waits to be accepted, and for how long.
const SETTLE_EVERY: Duration = Duration::from_millis(2);
const SETTLE_WITHIN: Duration = Duration::from_secs(1);
/// For how long nobody may come to a pod before that is called quiet.
const QUIET: Duration = Duration::from_secs(1);
/// How often new connections are looked at while a pod leaves.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the owner of the last endpoint of a Service is asked whether it wants another while that is waited for.
const ASK_OWNER_EVERY: Duration = Duration::from_secs(1);
/// An address is not used for so long after the last detour from it has ended.
const QUARANTINE_REST: Duration = Duration::from_secs(5);

/// Who steers the traffic of this node's pods. Clones are the same one.
#[derive(Clone)]
pub(crate) struct NodeTraffic(Arc<Means>);

struct Means {
    proxy: Box<dyn Steering>,
    network: Arc<dyn PodNetwork>,
    owners: Box<dyn Owners>,
    clock: Clock,
    arrivals: Arrivals,
    counters: Counters,
    /// How many proxies there are besides this node's; `None` if nobody says.
    other_proxies: watch::Receiver<Option<u32>>,
    /// What was last asked for about each pod that was ever cut.
    asks: Mutex<BTreeMap<String, Ask>>,
    asked: AtomicU64,
    /// What the owners of last endpoints of Services said when they were last asked whether they make another.
    replaced: Mutex<BTreeMap<String, bool>>,
    /// No pod is taken on any more, so none is replaced here.
    leaves: watch::Sender<bool>,
}

/// What was last asked for about a pod: a later one makes an earlier one void.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ask {
    number: u64,
    /// How it is cut, if it is.
    how: Option<Cut>,
}

impl fmt::Debug for NodeTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeTraffic").finish_non_exhaustive()
    }
}

impl NodeTraffic {
    /// Steers with these. New connections are counted as long as somebody holds it.
    pub(crate) fn start(
        proxy: Box<dyn Steering>,
        network: Arc<dyn PodNetwork>,
        owners: Box<dyn Owners>,
        other_proxies: watch::Receiver<Option<u32>>,
        clock: Clock,
    ) -> Self {
        let means = Arc::new(Means {
            proxy,
            network,
            owners,
            clock,
            arrivals: Arrivals::default(),
            counters: Counters::default(),
            other_proxies,
            asks: Mutex::default(),
            asked: AtomicU64::new(0),
            replaced: Mutex::default(),
            leaves: watch::Sender::new(false),
        });
        let counted = Arc::downgrade(&means);
        tokio::spawn(supervision::keep("traffic", move || {
            let counted = counted.clone();
            async move {
                while let Some(means) = counted.upgrade() {
                    means.arrivals.read(&*means.proxy, arrivals::FRESH).await;
                    drop(means);
                    tokio::time::sleep(arrivals::SAMPLED_EVERY).await;
                }
            }
        }));
        let recycled = means.network.recycled();
        tokio::spawn(forget_recycled(Arc::downgrade(&means), recycled));
        Self(means)
    }

    /// What became of the barriers of pods, as Prometheus reads it.
    pub(crate) fn metrics(&self) -> String {
        self.0.counters.lines()
    }

    /// Whether pods are taken on here: if not, a replacement can only come elsewhere.
    pub(crate) fn node_leaves(&self, leaves: bool) {
        self.0.leaves.send_replace(leaves);
    }
}

/// An address that was given to another pod is no longer its former pod's: nothing is diverted from it.
async fn forget_recycled(means: std::sync::Weak<Means>, mut recycled: tokio::sync::mpsc::UnboundedReceiver<String>) {
    while let Some(uid) = recycled.recv().await {
        let Some(means) = means.upgrade() else { return };
        let restored = means.proxy.restore(&uid);
        drop(means);
        if let Err(error) = restored.await {
            tracing::error!(
                uid,
                error = error_chain(&error),
                "connections to the former address of a pod are diverted"
            );
        }
    }
}

impl Traffic for NodeTraffic {
    fn perform(&self, pod: Pod, request: TrafficRequest, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
        let means = Arc::clone(&self.0);
        match request {
            TrafficRequest::Cut(how) => cut(means, pod, how, reporter),
            TrafficRequest::Restore => restore(means, &pod),
            TrafficRequest::AwaitSettled => await_settled(means, pod, reporter).boxed(),
            TrafficRequest::WatchConnections => watch_connections(means, pod, reporter).boxed(),
            TrafficRequest::NotifyDrain { until } => {
                let remaining = until.since(means.clock.now());
                drain_hook::notify(means.addresses(&pod), pod, remaining, reporter).boxed()
            }
        }
    }

    fn follow(&self, pods: watch::Receiver<Arc<Pod>>, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
        follow(Arc::clone(&self.0), pods, reporter).boxed()
    }

    fn leaves(&self, pod: &Pod) -> Option<Routes> {
        if routes::annotation(pod, "drain-barrier") == Some("off") {
            return None;
        }
        let means = &self.0;
        let reach = means.proxy.leaves(&means.endpoint(pod))?;
        // Whether it is busy and is replaced takes longer to find out, and is told by whoever follows it.
        Some(routes::routes(pod, &reach, true, means.may_be_replaced(pod)))
    }

    fn released(&self, reason: &str) {
        self.0.counters.released(reason);
    }

    fn departed(&self, pod: &Pod) {
        let (means, uid, linger) = (Arc::clone(&self.0), uid(pod), routes::linger(pod));
        means.replaced().remove(&uid);
        if means.asks().remove(&uid).is_none() {
            means.proxy.forget(&uid);
        } else {
            tokio::spawn(async move {
                means.proxy.departed(&uid, linger).await;
                tokio::time::sleep(QUARANTINE_REST).await;
                means.network.end_quarantine(&uid);
            });
        }
    }
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

impl Means {
    fn asks(&self) -> MutexGuard<'_, BTreeMap<String, Ask>> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever was asked for before about the pod is void; `begin` asks the proxy in the same order.
    fn ask<T>(&self, uid: &str, how: Option<Cut>, begin: impl FnOnce() -> T) -> (Ask, T) {
        let mut asks = self.asks();
        let ask = Ask { number: self.asked.fetch_add(1, Ordering::Relaxed), how };
        asks.insert(uid.to_owned(), ask);
        (ask, begin())
    }

    /// Asks the proxy again, unless something else was asked for meanwhile.
    fn ask_again<T>(&self, uid: &str, ask: Ask, begin: impl FnOnce() -> T) -> Option<T> {
        let asks = self.asks();
        (asks.get(uid) == Some(&ask)).then(begin)
    }

    fn is_current(&self, uid: &str, ask: Ask) -> bool {
        self.asks().get(uid) == Some(&ask)
    }

    fn addresses(&self, pod: &Pod) -> Vec<std::net::IpAddr> {
        let own = self.network.addresses(&uid(pod));
        if !own.is_empty() {
            return own;
        }
        let status = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
        status.filter_map(|ip| ip.ip.parse().ok()).collect()
    }

    fn endpoint(&self, pod: &Pod) -> PodEndpoint {
        PodEndpoint {
            uid: uid(pod),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            addresses: self.addresses(pod),
        }
    }

    fn replaced(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the pod is reached. Whether it is busy and is replaced matters only when it leaves, and is found out then: a count of a
    /// moment ago says nothing of those who came since. Until then both are taken for granted, so that it is held rather than
    /// let go.
    async fn routes(&self, pod: &Pod, reach: &Reach, no_older: Duration) -> Routes {
        let routes = self.routes_given(pod, reach, no_older, true).await;
        if !(routes.busy && routes.replaced && routes::is_leaving(pod)) {
            return routes;
        }
        let replaced = self.owners.replaces(pod).await.unwrap_or(true);
        self.replaced().insert(uid(pod), replaced);
        Routes { replaced, ..routes }
    }

    /// The same as far as this node knows: of its owner what that said last, if it was ever asked.
    async fn routes_so_far(&self, pod: &Pod, reach: &Reach, no_older: Duration) -> Routes {
        let said = self.replaced().get(&uid(pod)).copied();
        self.routes_given(pod, reach, no_older, said.unwrap_or(true)).await
    }

    async fn routes_given(&self, pod: &Pod, reach: &Reach, no_older: Duration, is_replaced: bool) -> Routes {
        let is_leaving = routes::is_leaving(pod);
        if reach.last && is_leaving {
            self.arrivals.read(&*self.proxy, no_older).await;
        }
        let is_busy = !is_leaving || self.arrivals.is_busy(&uid(pod));
        routes::routes(pod, reach, is_busy, self.may_be_replaced(pod) && is_replaced)
    }

    /// Whether the pod's owner may be expected to make another, before it is asked.
    fn may_be_replaced(&self, pod: &Pod) -> bool {
        let is_nowhere = *self.leaves.borrow() && *self.other_proxies.borrow() == Some(0);
        routes::may_be_replaced(pod) && !is_nowhere
    }
}

/// Tells how the pod is reached whenever that changes.
async fn follow(means: Arc<Means>, mut pods: watch::Receiver<Arc<Pod>>, reporter: TrafficReporter) {
    let mut endpoint = means.endpoint(&pods.borrow());
    let mut reach = means.proxy.reach(&endpoint);
    let mut leaves = means.leaves.subscribe();
    let mut told: Option<Routes> = None;
    let mut no_older = Duration::ZERO;
    loop {
        leaves.borrow_and_update();
        let pod = pods.borrow_and_update().clone();
        // It has no address before it is wired.
        let is = means.endpoint(&pod);
        if is != endpoint {
            reach = means.proxy.reach(&is);
            endpoint = is;
        }
        let known = reach.borrow_and_update().clone();
        if let Some(known) = known {
            let routes = means.routes(&pod, &known, no_older).await;
            if told != Some(routes) {
                reporter.report(TrafficNews::Routed(routes)).await;
                told = Some(routes);
            }
        }
        let is_held =
            told.is_some_and(|routes| routes.last && routes.busy && routes.replaced) && routes::is_leaving(&pod);
        let look_again = async {
            match is_held {
                true => tokio::time::sleep(ASK_OWNER_EVERY).await,
                false => std::future::pending().await,
            }
        };
        no_older = Duration::ZERO;
        tokio::select! {
            changed = reach.changed() => if changed.is_err() {
                // Whoever told this was replaced by another, which tells of those who ask.
                reach = means.proxy.reach(&endpoint);
                tokio::time::sleep(ASK_OWNER_EVERY).await;
            },
            changed = pods.changed() => if changed.is_err() {
                return;
            },
            // Whoever tells this lives as long as we do.
            _ = leaves.changed() => {}
            () = look_again => no_older = arrivals::RECENT,
        }
    }
}

/// Keeps new connections away, and tells what evidence there is of it for as long as it is to be so.
fn cut(means: Arc<Means>, pod: Pod, how: Cut, reporter: TrafficReporter) -> BoxFuture<'static, ()> {
    let mode = match how {
        Cut::Divert => CutMode::Divert,
        Cut::Withdraw => CutMode::Withdraw,
        Cut::Refuse => CutMode::Refuse,
    };
    let (uid, endpoint) = (uid(&pod), means.endpoint(&pod));
    // Whoever is sent elsewhere must not meet somebody new at the pod's address.
    means.network.quarantine(&uid);
    let (ask, mut asking) = means.ask(&uid, Some(how), || means.proxy.cut(endpoint.clone(), mode));
    let since = Instant::now();
    async move {
        let mut backoff = AGAIN.start();
        let revision = loop {
            match asking.await {
                Ok(revision) => break revision,
                Err(error) => {
                    let message = error_chain(&error);
                    means.counters.cut_failed();
                    // People are told by the pod's condition and events if its barrier cannot wait for it.
                    tracing::info!(uid, error = message, "new connections cannot be kept away from a pod yet");
                    reporter.report(TrafficNews::Failed { message }).await;
                }
            }
            tokio::time::sleep(backoff.after_failure()).await;
            let again = means.ask_again(&uid, ask, || means.proxy.cut(endpoint.clone(), mode));
            let Some(again) = again else { return };
            asking = again;
        };
        means.counters.cut_done(since.elapsed());
        if !means.is_current(&uid, ask) {
            return;
        }
        // That it is cut is evidence only if somebody else takes the connections: who does is told first. Nobody is asked about it who
        // may take his time: whoever follows the pod does that.
        let known = means.proxy.reach(&endpoint).borrow().clone();
        if let Some(known) = known {
            let routes = means.routes_so_far(&pod, &known, arrivals::FRESH).await;
            reporter.report(TrafficNews::Routed(routes)).await;
        }
        reporter.report(TrafficNews::CutDone { how, revision }).await;
        if how == Cut::Withdraw {
            let others = *means.other_proxies.borrow();
            if let Some(others) = others {
                reporter.report(TrafficNews::Acked { acked: 1, required: others.saturating_add(1) }).await;
            }
            tell_when_quiet(&means, &uid, ask, &reporter).await;
        }
    }
    .boxed()
}

/// Tells when nobody came for a while, as the kernel counted.
async fn tell_when_quiet(means: &Means, uid: &str, ask: Ask, reporter: &TrafficReporter) {
    means.arrivals.read(&*means.proxy, arrivals::FRESH).await;
    let Some(mut count) = means.arrivals.sum(uid) else { return };
    let mut since = Instant::now();
    while means.is_current(uid, ask) {
        tokio::time::sleep(LOOK_EVERY).await;
        means.arrivals.read(&*means.proxy, arrivals::FRESH).await;
        // Of a pod that is on no list any more nobody counts.
        let Some(now) = means.arrivals.sum(uid) else { return };
        if now != count {
            (count, since) = (now, Instant::now());
        } else if since.elapsed() >= QUIET && means.is_current(uid, ask) {
            return reporter.report(TrafficNews::Quiet).await;
        }
    }
}

fn restore(means: Arc<Means>, pod: &Pod) -> BoxFuture<'static, ()> {
    let uid = uid(pod);
    let (ask, mut asking) = means.ask(&uid, None, || means.proxy.restore(&uid));
    means.network.end_quarantine(&uid);
    async move {
        let mut backoff = AGAIN.start();
        while let Err(error) = asking.await {
            tracing::warn!(uid, error = error_chain(&error), "new connections are still kept away from a pod");
            tokio::time::sleep(backoff.after_failure()).await;
            let Some(again) = means.ask_again(&uid, ask, || means.proxy.restore(&uid)) else { return };
            asking = again;
        }
    }
    .boxed()
}

/// Waits until nobody waits to be accepted. Whoever comes after that to a pod that is cut comes late, which is told.
async fn await_settled(means: Arc<Means>, pod: Pod, reporter: TrafficReporter) {
    let uid = uid(&pod);
    match means.network.settled(&uid, SETTLE_EVERY, SETTLE_WITHIN).await {
        Ok(true) => reporter.report(TrafficNews::Settled).await,
        // The worker waits no longer either.
        Ok(false) => {}
        Err(message) => reporter.report(TrafficNews::Failed { message }).await,
    }
    let Some(ask) = means.asks().get(&uid).copied().filter(|ask| ask.how == Some(Cut::Divert)) else { return };
    // A count from before would make those late who came in time.
    means.arrivals.read(&*means.proxy, Duration::ZERO).await;
    let Some(before) = means.arrivals.sum(&uid) else { return };
    let mut told = before;
    while means.is_current(&uid, ask) {
        tokio::time::sleep(LOOK_EVERY).await;
        means.arrivals.read(&*means.proxy, arrivals::FRESH).await;
        let Some(now) = means.arrivals.sum(&uid) else { return };
        if now > told && means.is_current(&uid, ask) {
            let count = u32::try_from(now - before).unwrap_or(u32::MAX);
            means.counters.late(now - told);
            reporter.report(TrafficNews::Late { count }).await;
            told = now;
        }
    }
}

/// Tells how many connections are open, whenever that changes.
async fn watch_connections(means: Arc<Means>, pod: Pod, reporter: TrafficReporter) {
    let uid = uid(&pod);
    let filter = routes::drained_connections(&pod, means.proxy.reach(&means.endpoint(&pod)).borrow().as_ref());
    let since = Instant::now();
    let mut told = None;
    let mut has_failed = false;
    loop {
        let mut is_news = false;
        match means.network.connections(&uid, &filter).await {
            Ok(open) => {
                is_news = told != Some(open);
                has_failed = false;
                if is_news {
                    reporter.report(TrafficNews::Connections { open }).await;
                    told = Some(open);
                }
            }
            Err(message) if !has_failed => {
                has_failed = true;
                reporter.report(TrafficNews::Failed { message }).await;
            }
            Err(_) => {}
        }
        tokio::time::sleep(pause(since.elapsed(), is_news)).await;
    }
}

/// How long to wait before connections are counted again. Right after a change, so that two counts say that nobody is there.
fn pause(watched_for: Duration, is_news: bool) -> Duration {
    match watched_for.as_secs() {
        _ if is_news => LOOK_EVERY,
        0..5 => LOOK_EVERY,
        5..60 => Duration::from_secs(1),
        _ => Duration::from_secs(5),
    }
}
