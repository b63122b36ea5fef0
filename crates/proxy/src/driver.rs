//! The one owner of the tables: takes events and requests, and makes each batch of them one transaction.
//!
//! It has a thread of its own, because the kernel works on a transaction within the call that sends it. Cuts come first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Change, WatchUpdate};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use nft::{Batch, Family, Monitor, Nftables, Notification, ObjectKind};
use supervision::{Backoff, error_chain};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot, watch};

use crate::handle::Request;
use crate::health_checks::HealthChecks;
use crate::host_listeners::HostListeners;
use crate::in_flight::InFlight;
use crate::kernel_tables;
use crate::model::{Model, NodeFacts};
use crate::rules::{Ruleset, read_address_key};
use crate::skeleton::{Settings, table};
use crate::stale_flows::{FlowCleaner, StaleFlows};
use crate::wanted::Wanted;
use crate::{ProxyError, ProxyHandle, Reach};

/// How long events wait for others after a commit.
const COALESCE: Duration = Duration::from_millis(5);
/// How long to wait after a failure: twice as long after each, up to a limit.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How often what is in the kernel is compared with what should be, although nobody said that it was changed.
const SELF_CHECK: Duration = Duration::from_secs(3600);
/// How long to wait before rules that somebody else changed are written again.
const REPAIR: Duration = Duration::from_millis(20);
const EVENTS_MAX: usize = 1024;
/// Cuts that a former run left in the kernel stay for so long: by then whoever steers this node's pods has said which are cut.
const INHERITED_FOR: Duration = Duration::from_secs(10);
/// For how long those who follow pods are told how these are reached before somebody else gets a turn: whoever asks for a cut waits no
/// longer for that, however many pods are behind however many Services.
const TELL_FOR: Duration = Duration::from_micros(300);
/// Pods that are gone and still stood in for. With more the one that would end first ends at once.
const LINGERING_MAX: usize = 1024;

/// What the handle and the owner share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) model: Mutex<Model>,
    pub(crate) told: Mutex<BTreeMap<String, watch::Sender<Option<Reach>>>>,
}

impl Shared {
    pub(crate) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<Option<Reach>>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the API said.
#[expect(clippy::large_enum_variant, reason = "a queue of a thousand at most")]
#[derive(Debug)]
pub enum Event {
    /// Of Services.
    Service(Change<Service>),
    /// Of EndpointSlices.
    Slice(Change<EndpointSlice>),
    /// Of the node itself.
    Node(WatchUpdate<Node>),
}

/// The proxy of a node. Its rules stay in the kernel when this is gone.
#[derive(Debug)]
pub struct Proxy {
    handle: ProxyHandle,
    settings: Settings,
    node_name: String,
    events: mpsc::Sender<Event>,
    /// How often the owner of the tables had to begin again, with lists.
    lives: watch::Receiver<u32>,
}

impl Proxy {
    /// Takes over the tables of this instance in the network namespace of the calling thread, or makes them without any Service. New
    /// connections are tracked from then on.
    pub fn open(node_name: &str, settings: Settings) -> Result<Self, ProxyError> {
        let facts = NodeFacts {
            name: node_name.to_owned(),
            addresses: settings.node_addresses.clone(),
            inside: [(settings.pods.0, settings.pods.1)].into_iter().chain(settings.services).collect(),
            external_ips: settings.external_ips.clone(),
        };
        let shared = Arc::new(Shared { model: Mutex::new(Model::new(facts)), told: Mutex::default() });
        let (requests, asked) = mpsc::unbounded_channel();
        let (events, happened) = mpsc::channel(EVENTS_MAX);
        let (applied, told) = watch::channel(0);
        let (born, lives) = watch::channel(0);
        let (opened, is_open) = std::sync::mpsc::channel();
        let (of_thread, of_owner) = (shared.clone(), settings.clone());
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let owner = Owner::open(of_owner, of_thread, applied);
            let (Ok(runtime), Ok(owner)) = (runtime, owner.map_err(|error| opened.send(Err(not_applied(&error)))))
            else {
                return;
            };
            let _ = opened.send(Ok(()));
            keep(&runtime, owner, asked, happened, &born);
        };
        let started = std::thread::Builder::new().name("proxy".into()).spawn(run);
        started.map_err(|error| ProxyError::NotApplied { reason: error.to_string() })?;
        is_open.recv().unwrap_or(Err(ProxyError::NotRunning))?;
        let node_name = node_name.to_owned();
        Ok(Self { handle: ProxyHandle::new(requests, told, shared), settings, node_name, events, lives })
    }

    /// Follows Services and their slices through `client`, for as long as this lives. Whenever the owner of the tables begins again
    /// they are listed again.
    pub fn follow(&self, client: kube::Client) {
        let (events, mut lives) = (self.events.clone(), self.lives.clone());
        let node_name = self.node_name.clone();
        tokio::spawn(async move {
            loop {
                lives.borrow_and_update();
                tokio::select! {
                    () = follow_once(client.clone(), &node_name, &events) => return,
                    begun = lives.changed() => if begun.is_err() {
                        return;
                    }
                }
            }
        });
    }

    /// What the rest of the node speaks to.
    pub fn handle(&self) -> ProxyHandle {
        self.handle.clone()
    }

    /// Removes the tables and ends: nobody writes them again.
    pub async fn close(&self) -> Result<(), ProxyError> {
        self.handle.close().await
    }

    /// Removes the tables of an instance that does not run.
    pub fn remove(settings: &Settings) -> Result<(), ProxyError> {
        let removed = Nftables::open().and_then(|mut nftables| nftables.commit(removal(settings)));
        removed.map_err(|error| not_applied(&error))
    }

    /// The settings that it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    #[cfg(test)]
    pub(crate) fn lives(&self) -> watch::Receiver<u32> {
        self.lives.clone()
    }

    /// Takes what the API said from whoever hears it otherwise than by [`follow`](Self::follow).
    pub fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }
}

/// Hands on what the API says, until nobody takes it.
async fn follow_once(client: kube::Client, node_name: &str, events: &mpsc::Sender<Event>) {
    // A node may read itself, and no other.
    let own = Some(format!("metadata.name={node_name}"));
    let (services, service_changes) = mpsc::channel(EVENTS_MAX);
    let (slices, slice_changes) = mpsc::channel(EVENTS_MAX);
    let (nodes, node_changes) = mpsc::channel(EVENTS_MAX);
    tokio::select! {
        () = client::follow_changes(Api::<Service>::all(client.clone()), services) => {}
        () = client::follow_changes(Api::<EndpointSlice>::all(client.clone()), slices) => {}
        () = client::follow(Api::<Node>::all(client), own, nodes) => {}
        () = hand_on(service_changes, events, Event::Service) => {}
        () = hand_on(slice_changes, events, Event::Slice) => {}
        () = hand_on(node_changes, events, Event::Node) => {}
    }
}

async fn hand_on<T>(mut changes: mpsc::Receiver<T>, events: &mpsc::Sender<Event>, event: impl Fn(T) -> Event) {
    while let Some(change) = changes.recv().await {
        if events.send(event(change)).await.is_err() {
            return;
        }
    }
}

/// Runs the owner of the tables. One that broke begins again: what it was told may be half understood, so Services and slices are
/// listed anew. The rules stay in the kernel meanwhile, and whoever waits for an answer is told that there is none.
fn keep(
    runtime: &tokio::runtime::Runtime,
    mut owner: Owner,
    mut requests: mpsc::UnboundedReceiver<Request>,
    mut events: mpsc::Receiver<Event>,
    born: &watch::Sender<u32>,
) {
    let mut backoff = Backoff::default();
    loop {
        let run = || runtime.block_on(owner.run(&mut requests, &mut events));
        let Err(panic) = supervision::catch_blocking("proxy", run) else { return };
        owner.waiting.clear();
        owner.lingering.clear();
        owner.refused.clear();
        owner.gone.clear();
        owner.untold.clear();
        owner.telling.clear();
        let wait = backoff.after_panic(Instant::now());
        tracing::error!(%panic, in_a_row = backoff.in_a_row(), ?wait, "the proxy of services broke; it begins again");
        std::thread::sleep(wait);
        if let Ok(nftables) = Nftables::open() {
            owner.nftables = nftables;
        }
        (owner.ruleset, owner.rewrite) = (Ruleset::default(), true);
        owner.shared.model().begin_again();
        born.send_modify(|lives| *lives += 1);
    }
}

fn removal(settings: &Settings) -> Batch {
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        batch.remove_table(&table(settings, family));
    }
    batch
}

/// Why a pod is not cut whose cut depends on the rules of these: those of others are none of its business.
fn refusal(owners: &BTreeSet<String>, refused: &BTreeMap<String, Wanted>) -> Option<String> {
    let owner = owners.iter().find(|owner| refused.contains_key(*owner))?;
    Some(format!("the rules of {owner} are refused"))
}

fn not_applied(error: &nft::Error) -> ProxyError {
    ProxyError::NotApplied { reason: error_chain(error) }
}

enum Waiting {
    /// Of the pod with this UID.
    Cut(String, oneshot::Sender<Result<u64, ProxyError>>),
    Restore(oneshot::Sender<Result<(), ProxyError>>),
    Gone(oneshot::Sender<()>),
}

/// What a transaction is made of.
struct Changes {
    /// What changed, by who wants it.
    changes: Vec<(String, Wanted)>,
    /// Whose rules each pod depends on that is cut and touched.
    cut_owners: BTreeMap<String, BTreeSet<String>>,
    /// Pods of which something else may be said than before.
    pods: BTreeSet<String>,
}

struct Owner {
    settings: Settings,
    shared: Arc<Shared>,
    nftables: Nftables,
    ruleset: Ruleset,
    applied: watch::Sender<u64>,
    revision: u64,
    /// What is in the kernel has to be read: nothing was written yet, or somebody else changed it.
    rewrite: bool,
    /// It is not to be trusted, and is replaced.
    replace: bool,
    /// How often in a row somebody could not have what they want.
    failures: u32,
    /// When those who cannot have what they want get another chance, and everything is compared with the kernel.
    compare_at: Instant,
    /// Who cannot have what they want, and what that is.
    refused: BTreeMap<String, Wanted>,
    health: HealthChecks,
    flows: FlowCleaner,
    in_flight: InFlight,
    /// Pods that are gone, whose connections are forgotten after the next transaction.
    gone: BTreeSet<IpAddr>,
    waiting: Vec<Waiting>,
    lingering: Vec<(Instant, String, oneshot::Sender<()>)>,
    /// Pods that may be reached otherwise than was told: those that are told next, and those after them.
    telling: Vec<String>,
    untold: BTreeSet<String>,
    /// When cuts of a former run end, of whom nobody has said anything.
    inherited_until: Option<Instant>,
    is_closed: bool,
}

impl Owner {
    fn open(settings: Settings, shared: Arc<Shared>, applied: watch::Sender<u64>) -> Result<Self, nft::Error> {
        let mut nftables = Nftables::open()?;
        let own = table(&settings, Family::Ip);
        // What a former run left routes on until this one knows better.
        if !nftables.tables()?.iter().any(|listed| listed.table == own) {
            kernel_tables::replace(&mut nftables, &settings, BTreeMap::new())?;
        }
        let inherited = kernel_tables::cut_addresses(&mut nftables, &settings);
        let inherited_until = (!inherited.is_empty()).then(|| Instant::now() + INHERITED_FOR);
        shared.model().inherit(inherited);
        let health = HealthChecks::new(settings.node_addresses.clone());
        let flows = FlowCleaner::start(settings.node_addresses.clone());
        Ok(Self {
            settings,
            shared,
            nftables,
            ruleset: Ruleset::default(),
            applied,
            revision: 0,
            rewrite: true,
            replace: false,
            failures: 0,
            compare_at: Instant::now() + SELF_CHECK,
            refused: BTreeMap::new(),
            health,
            flows,
            in_flight: InFlight::default(),
            gone: BTreeSet::new(),
            waiting: Vec::new(),
            lingering: Vec::new(),
            telling: Vec::new(),
            untold: BTreeSet::new(),
            inherited_until,
            is_closed: false,
        })
    }

    async fn run(&mut self, requests: &mut mpsc::UnboundedReceiver<Request>, events: &mut mpsc::Receiver<Event>) {
        #[expect(
            deprecated,
            reason = "the call in its place is unsafe, and a monitor keeps one descriptor as long as it lives"
        )]
        let mut monitor = Monitor::open().ok().and_then(|it| AsyncFd::with_interest(it, Interest::READABLE).ok());
        let mut last = Instant::now().checked_sub(COALESCE).unwrap_or_else(Instant::now);
        let mut due: Option<Instant> = None;
        loop {
            self.tell_some();
            let is_telling = !self.telling.is_empty() || !self.untold.is_empty();
            let linger = self.lingering.iter().map(|it| it.0).min();
            let wake = due.into_iter().chain(linger).chain(self.inherited_until).chain([self.compare_at]).min();
            let sleep = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake.into()).await,
                    None => std::future::pending().await,
                }
            };
            let foreign = async {
                match &mut monitor {
                    Some(monitor) => match monitor.readable_mut().await {
                        Ok(mut ready) => match ready.get_inner_mut().read() {
                            Ok(Some(told)) => told,
                            Ok(None) => {
                                ready.clear_ready();
                                Vec::new()
                            }
                            Err(_) => vec![Notification::Lost],
                        },
                        Err(_) => std::future::pending().await,
                    },
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                request = requests.recv() => {
                    let Some(request) = request else { return };
                    if self.ask(request) {
                        due = Some(Instant::now());
                    }
                    while let Ok(request) = requests.try_recv() {
                        if self.ask(request) {
                            due = Some(Instant::now());
                        }
                    }
                }
                told = foreign => {
                    if told.iter().any(|it| self.is_damage(it)) {
                        tracing::warn!("another program changed the rules of services; they are written again");
                        self.rewrite = true;
                        self.replace |= told.iter().any(|it| self.is_damage_beyond_elements(it));
                        due = Some(due.unwrap_or(Instant::now() + REPAIR));
                    }
                }
                event = events.recv() => {
                    let Some(event) = event else { return };
                    self.hear(event);
                    while let Ok(event) = events.try_recv() {
                        self.hear(event);
                    }
                    due = Some(due.unwrap_or_else(|| Instant::now().max(last + COALESCE)));
                }
                // A turn for timers and for what the kernel says between two that are told.
                () = tokio::task::yield_now(), if is_telling => {}
                () = sleep => {}
            }
            if self.is_closed {
                return;
            }
            let now = Instant::now();
            if self.end_lingering(now) {
                due = Some(now);
            }
            if self.inherited_until.take_if(|until| *until <= now).is_some() {
                self.shared.model().end_inheritance();
                due = Some(now);
            }
            if self.compare_at <= now {
                self.rewrite = true;
                self.compare_at = now + SELF_CHECK;
                due = Some(now);
            }
            let is_listed = self.shared.model().is_listed();
            if due.is_some_and(|due| due <= now) && is_listed {
                due = None;
                if let Err(error) = self.flush() {
                    tracing::error!(error = error_chain(&error), "cannot write the rules of services");
                    self.rewrite = true;
                    self.answer(|_| None, Some(&error_chain(&error)));
                    self.try_later();
                }
                last = Instant::now();
            } else if !is_listed {
                // Whatever is asked for goes with the lists.
                due = due.filter(|due| *due > now);
            }
        }
    }

    fn is_damage(&self, notification: &Notification) -> bool {
        match notification {
            Notification::Lost => true,
            Notification::Committed(it) if it.port == self.nftables.port() => false,
            Notification::Committed(it) => {
                let own = [Family::Ip, Family::Ip6].map(|family| table(&self.settings, family));
                it.changes.iter().any(|change| own.contains(&change.table))
            }
        }
    }

    /// Whether rules, chains or sets are not what they were: only elements can be compared.
    fn is_damage_beyond_elements(&self, notification: &Notification) -> bool {
        match notification {
            Notification::Lost => false,
            Notification::Committed(it) => {
                self.is_damage(notification) && it.changes.iter().any(|change| change.kind != ObjectKind::Element)
            }
        }
    }

    /// Takes a request; whether rules have to change at once.
    fn ask(&mut self, request: Request) -> bool {
        match request {
            Request::Cut { pod, mode, answer } => {
                self.waiting.push(Waiting::Cut(pod.uid.clone(), answer));
                self.shared.model().cut(pod, mode);
                true
            }
            Request::Restore { uid, answer } => {
                self.shared.model().restore(&uid);
                self.waiting.push(Waiting::Restore(answer));
                true
            }
            Request::Departed { uid, linger, answer } => match self.depart(&uid) {
                true => {
                    self.lingering.push((Instant::now() + linger, uid, answer));
                    if self.lingering.len() > LINGERING_MAX
                        && let Some(first) = self.lingering.iter_mut().min_by_key(|it| it.0)
                    {
                        first.0 = Instant::now();
                    }
                    true
                }
                false => {
                    let _ = answer.send(());
                    false
                }
            },
            Request::NewConnections { answer } => {
                let _ = answer.send(self.new_connections().map_err(|error| not_applied(&error)));
                false
            }
            Request::Close { answer } => {
                let removed = self.nftables.commit(removal(&self.settings)).map_err(|error| not_applied(&error));
                self.is_closed = removed.is_ok();
                let _ = answer.send(removed);
                false
            }
            #[cfg(test)]
            Request::Break => panic!("asked to break"),
        }
    }

    /// Takes note that a pod is gone; whether its cut has to linger.
    fn depart(&mut self, uid: &str) -> bool {
        let mut model = self.shared.model();
        self.gone.extend(model.addresses_of_cut(uid));
        model.departed(uid)
    }

    fn new_connections(&mut self) -> Result<BTreeMap<String, u64>, nft::Error> {
        let sums = self.sums_of_counters();
        self.shared.model().forget_resolved();
        sums
    }

    fn sums_of_counters(&mut self) -> Result<BTreeMap<String, u64>, nft::Error> {
        let mut sums = BTreeMap::new();
        for family in [Family::Ip, Family::Ip6] {
            let counters = self.nftables.counters(&table(&self.settings, family), "watch")?;
            let model = self.shared.model();
            for (key, count) in counters {
                let at = read_address_key(family, &key);
                if let Some(uid) = at.and_then(|(address, protocol, port)| model.counted_for(address, protocol, port)) {
                    *sums.entry(uid).or_default() += count;
                }
            }
        }
        Ok(sums)
    }

    fn end_lingering(&mut self, now: Instant) -> bool {
        let (over, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.lingering).into_iter().partition(|it| it.0 <= now);
        self.lingering = left;
        let is_any = !over.is_empty();
        for (_, uid, answer) in over {
            self.shared.model().restore(&uid);
            self.waiting.push(Waiting::Gone(answer));
        }
        is_any
    }

    fn hear(&mut self, event: Event) {
        let mut model = self.shared.model();
        let key = |metadata: &kube::api::ObjectMeta| {
            (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
        };
        let revision = |metadata: &kube::api::ObjectMeta| metadata.resource_version.as_ref()?.parse::<u64>().ok();
        match event {
            Event::Service(Change::Listed(all, _)) => {
                model.service_keys().iter().for_each(|key| model.remove_service(key));
                all.into_iter().for_each(|service| model.set_service(service));
                model.services_listed();
            }
            Event::Service(Change::Changed(service)) => model.set_service(service),
            Event::Service(Change::Removed(service)) => model.remove_service(&key(&service.metadata)),
            Event::Service(Change::Reached(_)) => {}
            Event::Slice(Change::Listed(all, reached)) => {
                model.slice_keys().iter().for_each(|key| model.remove_slice(key));
                all.iter().for_each(|slice| model.set_slice(slice));
                model.slices_listed();
                self.revision = self.revision.max(reached.unwrap_or(0));
            }
            Event::Slice(Change::Changed(slice)) => {
                self.revision = self.revision.max(revision(&slice.metadata).unwrap_or(0));
                model.set_slice(&slice);
            }
            Event::Slice(Change::Removed(slice)) => {
                self.revision = self.revision.max(revision(&slice.metadata).unwrap_or(0));
                model.remove_slice(&key(&slice.metadata));
            }
            Event::Slice(Change::Reached(reached)) => self.revision = self.revision.max(reached),
            Event::Node(WatchUpdate::Listed(all)) => all.iter().for_each(|node| model.set_node(node)),
            Event::Node(WatchUpdate::Changed(node)) => model.set_node(&node),
            Event::Node(WatchUpdate::Removed(_)) => {}
        }
    }

    /// After a failure all is read and compared, later each time.
    fn try_later(&mut self) {
        let wait = AGAIN.saturating_mul(1 << self.failures.min(5)).min(AGAIN_MAX);
        self.failures = self.failures.saturating_add(1);
        self.compare_at = Instant::now() + wait;
    }

    /// Makes the kernel have what is wanted.
    fn flush(&mut self) -> Result<(), nft::Error> {
        let Changes { changes, cut_owners, pods } = self.changes();
        changes.iter().for_each(|(owner, wanted)| self.health.set(owner, wanted.health.clone()));
        changes.iter().for_each(|(owner, _)| drop(self.refused.remove(owner)));
        let wanted: BTreeMap<String, Wanted> = match self.rewrite {
            true => {
                let mut all = self.ruleset.wanted().clone();
                all.extend(std::mem::take(&mut self.refused));
                all.extend(changes);
                all.retain(|_, wanted| *wanted != Wanted::default());
                self.health.keep_only(|owner| all.contains_key(owner));
                all
            }
            false => changes.into_iter().collect(),
        };
        if std::mem::take(&mut self.replace) {
            kernel_tables::replace(&mut self.nftables, &self.settings, wanted.clone())
                .inspect_err(|_| self.refused.extend(wanted.clone()))?;
        }
        let (nftables, ruleset) = (&mut self.nftables, &mut self.ruleset);
        let inherited = self.shared.model().inherited().clone();
        let written = match self.rewrite {
            true => kernel_tables::reconcile(nftables, ruleset, &self.settings, wanted.clone(), &inherited),
            false => kernel_tables::apply(nftables, ruleset, &self.settings, wanted.clone(), &inherited),
        };
        // What was to change is not forgotten.
        let written = written.inspect_err(|_| self.refused.extend(wanted.clone()))?;
        self.rewrite = false;
        for (owner, reason) in &written.refused {
            tracing::error!(owner, reason, "the kernel refuses the rules of this one; it keeps those that it has");
            self.refused.extend(wanted.get_key_value(owner).map(|(owner, wanted)| (owner.clone(), wanted.clone())));
        }
        self.flows.clean(StaleFlows { frontends: written.flows, gone: std::mem::take(&mut self.gone) });
        if self.refused.is_empty() {
            self.failures = 0;
            self.applied.send_if_modified(|applied| std::mem::replace(applied, self.revision) != self.revision);
        } else if !written.refused.is_empty() {
            self.try_later();
        }
        // That a pod is cut is said when also those have arrived who were led to it before.
        if self.waiting.iter().any(|waiting| matches!(waiting, Waiting::Cut(..))) {
            self.in_flight.await_delivery();
        }
        let waiting = self.waiting.iter().filter_map(|waiting| match waiting {
            Waiting::Cut(uid, _) => Some(uid),
            Waiting::Restore(_) | Waiting::Gone(_) => None,
        });
        let failures: BTreeMap<_, _> =
            waiting.filter_map(|uid| Some((uid.clone(), refusal(cut_owners.get(uid)?, &self.refused)?))).collect();
        self.answer(|uid| failures.get(uid).cloned(), None);
        self.reaches_changed(pods);
        Ok(())
    }

    fn changes(&mut self) -> Changes {
        let mut model = self.shared.model();
        if model.asks_for_listeners() {
            model.set_listeners(HostListeners::read());
            for taken in model.taken_ports() {
                tracing::warn!(taken, "a program of this machine listens on a port that a Service wants");
            }
        }
        let service = |key: &(String, String)| format!("service {}/{}", key.0, key.1);
        // What is nobody's is found by reading.
        self.rewrite |= model.take_disinherited();
        let (touched, pods) = model.take_touched();
        let mut changes: Vec<_> = touched.iter().map(|key| (service(key), model.wanted(key))).collect();
        let mut cut_owners = BTreeMap::new();
        for uid in &pods {
            let owner = format!("cut {uid}");
            if model.is_cut(uid) {
                let services = model.services_of(uid).into_iter().map(service);
                cut_owners.insert(uid.clone(), services.chain([owner.clone()]).collect());
                changes.push((owner, model.wanted_by_cut(uid)));
            } else if self.ruleset.wanted().contains_key(&owner) || self.refused.contains_key(&owner) {
                changes.push((owner, Wanted::default()));
            }
        }
        Changes { changes, cut_owners, pods }
    }

    /// Answers those who wait: `failure` is why a pod could not be cut, `of_all` why nobody has what they asked for.
    fn answer(&mut self, failure: impl Fn(&str) -> Option<String>, of_all: Option<&str>) {
        let not_applied = |reason: String| ProxyError::NotApplied { reason };
        let of_all = || of_all.map(str::to_owned);
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Cut(uid, answer) => {
                    let failure = of_all().or_else(|| failure(&uid)).map(not_applied);
                    drop(answer.send(failure.map_or(Ok(self.revision), Err)));
                }
                Waiting::Restore(answer) => drop(answer.send(of_all().map(not_applied).map_or(Ok(()), Err))),
                Waiting::Gone(answer) => drop(answer.send(())),
            }
        }
    }

    /// Takes note of pods that may be reached otherwise than was told.
    fn reaches_changed(&mut self, pods: BTreeSet<String>) {
        let mut model = self.shared.model();
        let mut told = self.shared.told();
        told.retain(|_, tell| !tell.is_closed());
        model.keep_known(|uid| told.contains_key(uid));
        self.untold.extend(pods.into_iter().filter(|uid| told.contains_key(uid)));
        // Whoever asked before anything was listed was told nothing yet.
        self.untold.extend(told.iter().filter(|(_, tell)| tell.borrow().is_none()).map(|(uid, _)| uid.clone()));
        model.forget_resolved();
    }

    /// Tells some of those who follow pods how these are reached by now.
    fn tell_some(&mut self) {
        if self.telling.is_empty() {
            self.telling = std::mem::take(&mut self.untold).into_iter().collect();
        }
        let until = Instant::now() + TELL_FOR;
        while let Some(uid) = self.telling.pop() {
            // Both are free between one pod and the next: the node's workers ask them, too.
            let model = self.shared.model();
            if let Some(tell) = self.shared.told().get(&uid) {
                let reach = Some(model.reach(&uid));
                tell.send_if_modified(|known| std::mem::replace(known, reach.clone()) != reach);
            }
            if self.telling.is_empty() {
                model.forget_resolved();
            }
            if Instant::now() >= until {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_rules_fail_only_the_cuts_that_depend_on_them() {
        let owners = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
        let refused = BTreeMap::from([("service shop/web".to_owned(), Wanted::default())]);
        assert_eq!(refusal(&owners(&["cut a", "service shop/api"]), &refused), None);
        let refusal = refusal(&owners(&["cut b", "service shop/api", "service shop/web"]), &refused);
        assert_eq!(refusal.as_deref(), Some("the rules of service shop/web are refused"));
    }
}
