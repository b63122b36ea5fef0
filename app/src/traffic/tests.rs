//! Traffic is steered: in simulated time, with a proxy and pods that do as the test says.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;

use lifecycle::BestEvidence;
use proxy::{Protocol, ProxyError};
use runtime_api::ConnectionFilter;
use serde_json::json;
use tokio::sync::mpsc;

use super::*;

const UID: &str = "u1";

/// What the proxy, the pod and its owner are like, and what was asked of them.
#[derive(Clone)]
struct World(Arc<Inner>);

struct Inner {
    reach: watch::Sender<Option<Reach>>,
    arrived: Mutex<u64>,
    is_broken: Mutex<bool>,
    open: Mutex<Result<u32, String>>,
    is_replaced: Mutex<bool>,
    owner_takes: Mutex<Duration>,
    settles: Mutex<Duration>,
    asked: Mutex<Vec<String>>,
    recycle: Mutex<Option<mpsc::UnboundedSender<String>>>,
}

fn not_running() -> ProxyError {
    ProxyError::NotApplied { reason: "the kernel said no".into() }
}

impl World {
    fn new(reach: Option<Reach>) -> Self {
        Self(Arc::new(Inner {
            reach: watch::Sender::new(reach),
            arrived: Mutex::default(),
            is_broken: Mutex::default(),
            open: Mutex::new(Ok(0)),
            is_replaced: Mutex::new(true),
            owner_takes: Mutex::default(),
            settles: Mutex::new(Duration::from_millis(4)),
            asked: Mutex::default(),
            recycle: Mutex::default(),
        }))
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.asked.lock().unwrap())
    }

    fn note(&self, what: String) {
        self.0.asked.lock().unwrap().push(what);
    }

    fn steer(&self, other_proxies: Option<u32>) -> NodeTraffic {
        let others = watch::channel(other_proxies).1;
        NodeTraffic::start(
            Box::new(self.clone()),
            Arc::new(self.clone()),
            Box::new(self.clone()),
            others,
            Clock::of_machine(),
        )
    }
}

impl Steering for World {
    fn cut(&self, pod: PodEndpoint, mode: CutMode) -> BoxFuture<'static, Result<u64, ProxyError>> {
        assert_eq!(pod.addresses, ["10.1.2.3".parse::<IpAddr>().unwrap()]);
        self.note(format!("cut {mode:?}"));
        let outcome = if *self.0.is_broken.lock().unwrap() { Err(not_running()) } else { Ok(7) };
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            outcome
        }
        .boxed()
    }

    fn restore(&self, _: &str) -> BoxFuture<'static, Result<(), ProxyError>> {
        self.note("restore".into());
        let outcome = if *self.0.is_broken.lock().unwrap() { Err(not_running()) } else { Ok(()) };
        async move { outcome }.boxed()
    }

    fn leaves(&self, _: &PodEndpoint) -> Option<Reach> {
        self.note("leaves".into());
        self.0.reach.borrow().clone()
    }

    fn forget(&self, _: &str) {
        self.note("forget".into());
    }

    fn departed(&self, _: &str, linger: Duration) -> BoxFuture<'static, ()> {
        self.note(format!("departed {linger:?}"));
        tokio::time::sleep(linger).boxed()
    }

    fn reach(&self, _: &PodEndpoint) -> watch::Receiver<Option<Reach>> {
        self.0.reach.subscribe()
    }

    fn new_connections(&self) -> BoxFuture<'static, Result<BTreeMap<String, u64>, ProxyError>> {
        let counted = BTreeMap::from([(UID.to_owned(), *self.0.arrived.lock().unwrap())]);
        async move { Ok(counted) }.boxed()
    }
}

impl PodNetwork for World {
    fn addresses(&self, _: &str) -> Vec<IpAddr> {
        vec!["10.1.2.3".parse().unwrap()]
    }

    fn quarantine(&self, _: &str) {
        self.note("quarantine".into());
    }

    fn end_quarantine(&self, _: &str) {
        self.note("end quarantine".into());
    }

    fn recycled(&self) -> mpsc::UnboundedReceiver<String> {
        let (tell, told) = mpsc::unbounded_channel();
        *self.0.recycle.lock().unwrap() = Some(tell);
        told
    }

    fn settled(&self, _: &str, _: Duration, within: Duration) -> BoxFuture<'_, Result<bool, String>> {
        let takes = *self.0.settles.lock().unwrap();
        async move {
            tokio::time::sleep(takes.min(within)).await;
            Ok(takes <= within)
        }
        .boxed()
    }

    fn connections<'a>(&'a self, _: &str, _: &'a ConnectionFilter) -> BoxFuture<'a, Result<u32, String>> {
        let open = self.0.open.lock().unwrap().clone();
        async move { open }.boxed()
    }
}

impl Owners for World {
    fn replaces(&self, _: &Pod) -> BoxFuture<'static, Option<bool>> {
        self.note("owner?".into());
        let (is_replaced, takes) = (*self.0.is_replaced.lock().unwrap(), *self.0.owner_takes.lock().unwrap());
        async move {
            tokio::time::sleep(takes).await;
            Some(is_replaced)
        }
        .boxed()
    }
}

fn shared() -> Reach {
    Reach { by_vip: true, siblings: 2, target_ports: [(Protocol::Tcp, 80)].into(), ..Reach::default() }
}

fn alone() -> Reach {
    Reach { siblings: 0, last: true, ..shared() }
}

fn pod(owner: &str) -> Pod {
    let owner = json!({ "apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "2", "controller": true });
    let metadata = json!({ "name": "web-1", "namespace": "shop", "uid": UID, "ownerReferences": [owner] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "containers": [] } })).unwrap()
}

fn leaving(mut pod: Pod) -> Pod {
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    pod
}

const DIVERTED: Routes = Routes { best: BestEvidence::Divert, last: false, replaced: false, busy: false };

/// Somebody hears what a worker would be told.
struct Worker {
    news: mpsc::Receiver<TrafficNews>,
    reporter: TrafficReporter,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Worker {
    fn new() -> Self {
        let (told, news) = mpsc::channel(64);
        Self { news, reporter: TrafficReporter::to_channel(told), tasks: Vec::new() }
    }

    fn ask(&mut self, traffic: &NodeTraffic, pod: &Pod, request: TrafficRequest) {
        self.tasks.push(tokio::spawn(traffic.perform(pod.clone(), request, self.reporter.clone())));
    }

    async fn hear(&mut self) -> TrafficNews {
        tokio::time::timeout(Duration::from_secs(600), self.news.recv()).await.unwrap().unwrap()
    }

    /// Nothing is told for so long.
    async fn hears_nothing(&mut self, during: Duration) {
        let heard = tokio::time::timeout(during, self.news.recv()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cut_is_told_after_who_takes_the_connections_and_after_the_rules_are_written() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Cut(Cut::Divert));
    assert_eq!(world.asked(), ["quarantine", "cut Divert"], "asked for at once, before anything is awaited");
    assert_eq!(worker.hear().await, TrafficNews::Routed(DIVERTED));
    assert_eq!(worker.hear().await, TrafficNews::CutDone { how: Cut::Divert, revision: 7 });
    worker.hears_nothing(Duration::from_secs(60)).await;
}

/// [TR-18] A kernel that refuses is told with its reason and asked again: the worker waits no longer than its cap.
#[tokio::test(start_paused = true)]
async fn cut_that_fails_is_told_and_tried_again_until_something_else_is_asked_for() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.is_broken.lock().unwrap() = true;
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Cut(Cut::Divert));
    for _ in 0..3 {
        let TrafficNews::Failed { message } = worker.hear().await else { panic!("it fails") };
        assert!(message.contains("the kernel said no"), "{message}");
    }
    world.asked();
    // Nothing is taken from the pod any more: the former ask is void, however broken the proxy is.
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Restore);
    tokio::time::sleep(Duration::from_secs(30)).await;
    *world.0.is_broken.lock().unwrap() = false;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let asked = world.asked();
    assert!(asked.iter().all(|it| !it.starts_with("cut")) && asked.contains(&"restore".to_owned()), "{asked:?}");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.asked().is_empty(), "it was restored");
}

#[tokio::test(start_paused = true)]
async fn cut_that_heals_is_done() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.is_broken.lock().unwrap() = true;
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Cut(Cut::Divert));
    assert!(matches!(worker.hear().await, TrafficNews::Failed { .. }));
    *world.0.is_broken.lock().unwrap() = false;
    assert_eq!(worker.hear().await, TrafficNews::Routed(DIVERTED));
    assert_eq!(worker.hear().await, TrafficNews::CutDone { how: Cut::Divert, revision: 7 });
}

/// Where nothing is diverted the word of every proxy counts: of this one alone if there is no other. Of others only silence is known.
#[tokio::test(start_paused = true)]
async fn withdrawn_pod_is_acknowledged_by_the_only_proxy_and_quiet_otherwise() {
    let withdraw = async |others| {
        let (world, mut worker) = (World::new(Some(shared())), Worker::new());
        let traffic = world.steer(others);
        let since = Instant::now();
        worker.ask(&traffic, &pod("StatefulSet"), TrafficRequest::Cut(Cut::Withdraw));
        let TrafficNews::Routed(routes) = worker.hear().await else { panic!("who takes them") };
        assert_eq!(routes.best, BestEvidence::Acks);
        assert_eq!(worker.hear().await, TrafficNews::CutDone { how: Cut::Withdraw, revision: 7 });
        // Somebody who was not told yet comes once more.
        *world.0.arrived.lock().unwrap() += 1;
        (worker.hear().await, worker, since)
    };
    assert_eq!(withdraw(Some(0)).await.0, TrafficNews::Acked { acked: 1, required: 1 });
    assert_eq!(withdraw(Some(2)).await.0, TrafficNews::Acked { acked: 1, required: 3 });
    let (news, _, since) = withdraw(None).await;
    assert_eq!(news, TrafficNews::Quiet);
    assert!(
        (Duration::from_millis(1000)..Duration::from_millis(2000)).contains(&since.elapsed()),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn late_connections_of_a_diverted_pod_are_told_with_their_number() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.arrived.lock().unwrap() = 5;
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Cut(Cut::Divert));
    while !matches!(worker.hear().await, TrafficNews::CutDone { .. }) {}
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::AwaitSettled);
    assert_eq!(worker.hear().await, TrafficNews::Settled);
    worker.hears_nothing(Duration::from_secs(5)).await;
    *world.0.arrived.lock().unwrap() += 2;
    assert_eq!(worker.hear().await, TrafficNews::Late { count: 2 });
    // It gets its connections back because nobody else can take them: none of them is late.
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Restore);
    *world.0.arrived.lock().unwrap() += 2;
    worker.hears_nothing(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn accept_queues_that_do_not_empty_are_waited_for_no_longer_than_a_second() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.settles.lock().unwrap() = Duration::from_secs(5);
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::AwaitSettled);
    worker.hears_nothing(Duration::from_secs(20)).await;
    assert!(worker.tasks.iter().all(tokio::task::JoinHandle::is_finished), "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn open_connections_are_told_when_they_change() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.open.lock().unwrap() = Ok(4);
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::WatchConnections);
    assert_eq!(worker.hear().await, TrafficNews::Connections { open: 4 });
    worker.hears_nothing(Duration::from_secs(300)).await;
    *world.0.open.lock().unwrap() = Ok(0);
    let since = Instant::now();
    assert_eq!(worker.hear().await, TrafficNews::Connections { open: 0 });
    assert!(since.elapsed() <= Duration::from_secs(5));
    // Somebody comes back within half a second, which is seen although connections are counted every five seconds by then.
    *world.0.open.lock().unwrap() = Ok(1);
    let since = Instant::now();
    assert_eq!(worker.hear().await, TrafficNews::Connections { open: 1 });
    assert!(since.elapsed() < Duration::from_millis(500));
    *world.0.open.lock().unwrap() = Err("no sockets to be seen".into());
    assert_eq!(worker.hear().await, TrafficNews::Failed { message: "no sockets to be seen".into() });
    worker.hears_nothing(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn routes_are_told_when_they_are_known_and_when_they_change() {
    let (world, mut worker) = (World::new(None), Worker::new());
    let traffic = world.steer(Some(0));
    let (seen, pods) = watch::channel(Arc::new(pod("ReplicaSet")));
    let following = tokio::spawn(traffic.follow(pods, worker.reporter.clone()));
    // After a restart: nothing is said before the API has said what there is, or a worker would believe that nobody routes to it.
    worker.hears_nothing(Duration::from_secs(60)).await;
    world.0.reach.send_replace(Some(shared()));
    assert_eq!(worker.hear().await, TrafficNews::Routed(DIVERTED));
    world.0.reach.send_replace(Some(Reach { siblings: 1, ..shared() }));
    worker.hears_nothing(Duration::from_secs(60)).await;
    world.0.reach.send_replace(Some(Reach::default()));
    assert_eq!(worker.hear().await, TrafficNews::Routed(Routes::default()));
    drop(seen);
    following.await.unwrap();
}

/// [TR-29] [TR-31] The last endpoint of a Service: busy if somebody came within the last minute, replaced if its owner wants pods.
/// Both are found out when it leaves: a count of a moment before would not know those who came since.
#[tokio::test(start_paused = true)]
async fn last_endpoint_is_busy_for_a_minute_and_replaced_if_its_owner_wants_pods() {
    let held = Routes { best: BestEvidence::Acks, last: true, replaced: true, busy: true };
    for came_before in
        [Some(Duration::from_millis(1)), Some(Duration::from_secs(50)), Some(Duration::from_secs(75)), None]
    {
        let (world, mut worker) = (World::new(Some(alone())), Worker::new());
        let traffic = world.steer(Some(0));
        let (seen, pods) = watch::channel(Arc::new(pod("ReplicaSet")));
        let _following = tokio::spawn(traffic.follow(pods, worker.reporter.clone()));
        assert_eq!(worker.hear().await, TrafficNews::Routed(held), "taken for granted as long as it stays");
        worker.hears_nothing(Duration::from_secs(300)).await;
        if let Some(came_before) = came_before {
            *world.0.arrived.lock().unwrap() += 1;
            worker.hears_nothing(came_before).await;
        }
        let is_busy = came_before.is_some_and(|before| before < Duration::from_secs(60));
        seen.send_replace(Arc::new(leaving(pod("ReplicaSet"))));
        if !is_busy {
            let idle = Routes { busy: false, ..held };
            let since = Instant::now();
            assert_eq!(worker.hear().await, TrafficNews::Routed(idle), "{came_before:?}");
            assert!(since.elapsed() < Duration::from_millis(100), "{:?}", since.elapsed());
            continue;
        }
        // Its owner wants another, until it is scaled to zero.
        worker.hears_nothing(Duration::from_secs(5)).await;
        *world.0.is_replaced.lock().unwrap() = false;
        let since = Instant::now();
        assert_eq!(worker.hear().await, TrafficNews::Routed(Routes { replaced: false, ..held }), "{came_before:?}");
        assert!(since.elapsed() <= Duration::from_secs(2));
    }
}

/// One that is evicted or restarted has no deletion to tell it by: its worker says that its traffic is not drained yet.
#[tokio::test(start_paused = true)]
async fn last_endpoint_that_leaves_without_being_deleted_is_counted_too() {
    let (world, mut worker) = (World::new(Some(alone())), Worker::new());
    let traffic = world.steer(Some(0));
    let (seen, pods) = watch::channel(Arc::new(pod("ReplicaSet")));
    let _following = tokio::spawn(traffic.follow(pods, worker.reporter.clone()));
    let TrafficNews::Routed(Routes { busy: true, .. }) = worker.hear().await else { panic!("taken for granted") };
    let mut evicted = pod("ReplicaSet");
    let condition = json!({ "type": "adieu.dev/TrafficDrained", "status": "False" });
    evicted.status.get_or_insert_default().conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
    seen.send_replace(Arc::new(evicted));
    let TrafficNews::Routed(Routes { busy: false, .. }) = worker.hear().await else { panic!("nobody came") };
}

/// The last of an old version, whose set is scaled to zero while its Deployment has others: they are waited for until they are on the
/// lists, however long that takes.
#[tokio::test(start_paused = true)]
async fn last_endpoint_of_an_old_version_waits_until_a_new_one_is_on_the_lists() {
    let (world, mut worker) = (World::new(Some(alone())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.arrived.lock().unwrap() = 1;
    let (_seen, pods) = watch::channel(Arc::new(leaving(pod("ReplicaSet"))));
    let _following = tokio::spawn(traffic.follow(pods, worker.reporter.clone()));
    let held = Routes { best: BestEvidence::Acks, last: true, replaced: true, busy: true };
    assert_eq!(worker.hear().await, TrafficNews::Routed(held));
    worker.hears_nothing(Duration::from_secs(30)).await;
    world.0.reach.send_replace(Some(shared()));
    assert_eq!(worker.hear().await, TrafficNews::Routed(DIVERTED));
}

/// An API that takes its time is not waited for once the rules are written: what its owner said before counts, or that it is held.
#[tokio::test(start_paused = true)]
async fn cut_is_told_although_the_owner_of_the_pod_does_not_answer() {
    let (world, mut worker) = (World::new(Some(alone())), Worker::new());
    let traffic = world.steer(Some(0));
    *world.0.arrived.lock().unwrap() = 1;
    *world.0.owner_takes.lock().unwrap() = Duration::from_secs(20);
    worker.ask(&traffic, &leaving(pod("ReplicaSet")), TrafficRequest::Cut(Cut::Refuse));
    let since = Instant::now();
    let held = Routes { best: BestEvidence::Acks, last: true, replaced: true, busy: true };
    assert_eq!(worker.hear().await, TrafficNews::Routed(held));
    assert_eq!(worker.hear().await, TrafficNews::CutDone { how: Cut::Refuse, revision: 7 });
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    // It answers whoever follows the pod, and that is remembered.
    *world.0.is_replaced.lock().unwrap() = false;
    let (_seen, pods) = watch::channel(Arc::new(leaving(pod("ReplicaSet"))));
    let _following = tokio::spawn(traffic.follow(pods, worker.reporter.clone()));
    let let_go = Routes { replaced: false, ..held };
    assert_eq!(worker.hear().await, TrafficNews::Routed(let_go));
    worker.ask(&traffic, &leaving(pod("ReplicaSet")), TrafficRequest::Cut(Cut::Refuse));
    assert_eq!(worker.hear().await, TrafficNews::Routed(let_go));
    assert_eq!(worker.hear().await, TrafficNews::CutDone { how: Cut::Refuse, revision: 7 });
}

/// A node that takes on nobody and is the only one has no replacement for anybody.
#[tokio::test(start_paused = true)]
async fn last_endpoint_is_not_replaced_on_the_only_node_when_that_leaves() {
    let (world, mut worker) = (World::new(Some(alone())), Worker::new());
    let traffic = world.steer(Some(0));
    let (_seen, pods) = watch::channel(Arc::new(pod("ReplicaSet")));
    let _following = tokio::spawn(traffic.follow(pods, worker.reporter.clone()));
    let TrafficNews::Routed(Routes { replaced: true, .. }) = worker.hear().await else { panic!("one is expected") };
    let since = Instant::now();
    traffic.node_leaves(true);
    let TrafficNews::Routed(Routes { replaced: false, .. }) = worker.hear().await else { panic!("none is expected") };
    assert!(since.elapsed() < Duration::from_secs(1));
}

/// What a worker was told may be older than what slices say: it is asked for in the moment in which the pod leaves, and whoever lists it
/// later sends nobody. A pod that wants no barrier is left alone.
#[tokio::test(start_paused = true)]
async fn pod_that_leaves_is_kept_from_lists_that_come_later_and_how_it_is_reached_is_known_at_once() {
    let world = World::new(Some(Reach::default()));
    let traffic = world.steer(Some(0));
    assert_eq!(traffic.leaves(&pod("ReplicaSet")), Some(Routes::default()));
    world.0.reach.send_replace(Some(shared()));
    assert_eq!(traffic.leaves(&pod("ReplicaSet")), Some(DIVERTED));
    world.0.reach.send_replace(Some(alone()));
    let held = Routes { best: BestEvidence::Acks, last: true, replaced: true, busy: true };
    assert_eq!(traffic.leaves(&pod("ReplicaSet")), Some(held), "rather held than let go");
    world.0.reach.send_replace(None);
    assert_eq!(traffic.leaves(&pod("ReplicaSet")), None, "nothing is known yet");
    assert_eq!(world.asked(), ["leaves"; 4]);
    let mut off = pod("ReplicaSet");
    off.metadata.annotations = Some([("adieu.dev/drain-barrier".to_owned(), "off".to_owned())].into());
    assert_eq!(traffic.leaves(&off), None);
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn departed_pod_lingers_and_its_address_rests_until_then() {
    let (world, mut worker) = (World::new(Some(shared())), Worker::new());
    let traffic = world.steer(Some(0));
    traffic.departed(&pod("ReplicaSet"));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.asked(), ["forget"], "it was never cut");
    worker.ask(&traffic, &pod("ReplicaSet"), TrafficRequest::Cut(Cut::Divert));
    while !matches!(worker.hear().await, TrafficNews::CutDone { .. }) {}
    world.asked();
    traffic.departed(&pod("ReplicaSet"));
    tokio::time::sleep(Duration::from_secs(64)).await;
    assert_eq!(world.asked(), ["departed 60s"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.asked(), ["end quarantine"]);
    // No other address was left: whoever has it now is not robbed of its connections.
    world.0.recycle.lock().unwrap().as_ref().unwrap().send(UID.to_owned()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.asked(), ["restore"]);
}
