//! The one owner of the tables: takes events and requests, and makes each batch of them one transaction.
//!
//! It has a thread of its own, because the kernel works on a transaction within the call that sends it. Pods that wait for their
//! rules come first; nobody is told that they are in force before the kernel has said so.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use client::{Change, Grade};
use k8s_openapi::api::core::v1::ObjectReference;
use nft::{Batch, Flow, Monitor, Nftables, Notification};
use supervision::error_chain;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::denied::{LOOK_EVERY, Told};
use crate::driver::{Event, Holders};
use crate::facts::PodFacts;
use crate::flows::{self, FlowRequest};
use crate::handle::{Answer, PolicyError, Request, version};
use crate::kernel;
use crate::model::Model;
use crate::policy::{Policy, PolicyKey};
use crate::render::FAMILIES;
use crate::skeleton::{DENIED, Settings, own_tables, removal, table};
use crate::wanted::{Tables, Touched};

/// How long events wait for others after a commit.
const COALESCE: Duration = Duration::from_millis(5);
/// How long to wait after a failure: twice as long after each, up to a limit.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// How often what is in the kernel is compared with what should be, although nobody said that it was changed.
const SELF_CHECK: Duration = Duration::from_secs(600);
/// How long to wait before rules that somebody else changed are written again.
const REPAIR: Duration = Duration::from_millis(20);
/// How long after a change flows are looked at that it may end.
const SWEEP: Duration = Duration::from_millis(200);
/// How long tables of another version stay for the sake of pods that are here and not known yet: in new ones they have no way.
const REPLACE_WITHIN: Duration = Duration::from_secs(5);

pub(crate) struct Owner {
    settings: Settings,
    holders: Holders,
    pub(crate) model: Model,
    nftables: Nftables,
    /// What is in the kernel; `None` if that has to be read.
    applied: Option<Tables>,
    /// Pods that have addresses since before this began, and of which nothing is known yet.
    unknown: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Policies that the kernel does not take, as they are written.
    refused: BTreeMap<PolicyKey, Policy>,
    /// Until when tables that have to be made anew wait for pods that are not known yet.
    replaces_by: Option<Instant>,
    waiting: Vec<Answer>,
    failures: u32,
    compare_at: Instant,
    recorder: Option<client::Recorder>,
    problems: BTreeMap<PolicyKey, String>,
    told: Told,
    look_at: Instant,
    flow_requests: std::sync::mpsc::Sender<FlowRequest>,
    flows: mpsc::UnboundedReceiver<Vec<Flow>>,
    sweep_at: Option<Instant>,
    is_closed: bool,
}

impl Owner {
    pub(crate) fn open(settings: Settings, holders: Holders) -> Result<Self, nft::Error> {
        let mut nftables = Nftables::open()?;
        nftables.commit(kernel::trial_of_skeleton(&settings))?;
        let (tell, flows) = mpsc::unbounded_channel();
        let flow_requests = flows::start(move |flows| drop(tell.send(flows)));
        let unknown = holders();
        let is_there = kernel::read(&mut nftables, &settings, &Tables::default())?.is_some();
        Ok(Self {
            model: Model::new(settings.dns_facts()),
            settings,
            holders,
            nftables,
            applied: None,
            unknown,
            refused: BTreeMap::new(),
            replaces_by: (!is_there).then(|| Instant::now() + REPLACE_WITHIN),
            waiting: Vec::new(),
            failures: 0,
            compare_at: Instant::now() + SELF_CHECK,
            recorder: None,
            problems: BTreeMap::new(),
            told: Told::default(),
            look_at: Instant::now() + LOOK_EVERY,
            flow_requests,
            flows,
            sweep_at: None,
            is_closed: false,
        })
    }

    /// After it broke: what it was told may be half understood, but for the pods that are here.
    pub(crate) fn begin_again(&mut self) {
        self.waiting.clear();
        self.refused.clear();
        self.applied = None;
        let locals = self.model.take_locals();
        self.model = Model::new(self.settings.dns_facts());
        for (uid, local) in locals {
            if let Some(facts) = local.facts {
                let addresses: Vec<_> = local.addresses.into_iter().collect();
                self.model.admit(&uid, facts, local.version, &addresses, &local.link);
            }
        }
        if let Ok(nftables) = Nftables::open() {
            self.nftables = nftables;
        }
    }

    pub(crate) async fn run(
        &mut self,
        requests: &mut mpsc::UnboundedReceiver<Request>,
        events: &mut mpsc::Receiver<Event>,
    ) {
        #[expect(
            deprecated,
            reason = "the call in its place is unsafe, and a monitor keeps one descriptor as long as it lives"
        )]
        let mut monitor = Monitor::open().ok().and_then(|it| AsyncFd::with_interest(it, Interest::READABLE).ok());
        let mut last = Instant::now().checked_sub(COALESCE).unwrap_or_else(Instant::now);
        let mut due: Option<Instant> = None;
        loop {
            let look_at = self.model.is_any_active().then_some(self.look_at);
            let wake = due.into_iter().chain(self.sweep_at).chain(look_at).chain([self.compare_at]).min();
            let sleep = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake.into()).await,
                    None => std::future::pending().await,
                }
            };
            let foreign = async {
                let Some(monitor) = &mut monitor else { return std::future::pending().await };
                let Ok(mut ready) = monitor.readable_mut().await else { return std::future::pending().await };
                match ready.get_inner_mut().read() {
                    Ok(Some(told)) => told,
                    Ok(None) => {
                        ready.clear_ready();
                        Vec::new()
                    }
                    Err(_) => vec![Notification::Lost],
                }
            };
            tokio::select! {
                biased;
                request = requests.recv() => {
                    let Some(request) = request else { return };
                    self.ask(request);
                    while let Ok(request) = requests.try_recv() {
                        self.ask(request);
                    }
                    due = Some(Instant::now());
                }
                told = foreign => {
                    if told.iter().any(|it| self.is_damage(it)) {
                        tracing::warn!("another program changed the rules of NetworkPolicies; they are written again");
                        self.applied = None;
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
                flows = self.flows.recv() => self.judge_flows(flows.unwrap_or_default()),
                () = sleep => {}
            }
            if self.is_closed {
                return;
            }
            let now = Instant::now();
            if self.compare_at <= now {
                self.compare();
                due = Some(now);
            }
            if self.look_at <= now && self.model.is_any_active() {
                self.tell_denied(now);
                self.look_at = now + LOOK_EVERY;
            }
            if self.sweep_at.is_some_and(|at| at <= now) {
                self.sweep_at = None;
                let pods = self.model.locals().flat_map(|(_, addresses)| addresses.iter().copied()).collect();
                // Without the thread nobody listens, as was said when it did not start.
                let _ = self.flow_requests.send(FlowRequest::List(pods));
            }
            let is_listed = self.model.is_listed();
            if due.is_some_and(|due| due <= now) && is_listed {
                // Every pod that becomes known asks for a write.
                due = self.replaces_by.filter(|by| now < *by && !self.unknown.is_empty());
                if due.is_none() {
                    self.replaces_by = None;
                    self.write();
                    last = Instant::now();
                }
            } else if !is_listed {
                // Whatever is asked for goes with the lists.
                due = due.filter(|due| *due > now);
            }
        }
    }

    fn compare(&mut self) {
        let holders = (self.holders)();
        self.unknown.retain(|uid, _| holders.contains_key(uid));
        let gone: Vec<_> =
            self.model.locals().map(|(uid, _)| uid).filter(|uid| !holders.contains_key(*uid)).cloned().collect();
        gone.iter().for_each(|uid| self.model.release(uid));
        for (key, policy) in std::mem::take(&mut self.refused) {
            self.model.set_policy(&key, Some(policy));
        }
        for key in self.model.retry_crowded_out() {
            self.tell_problem(&key);
        }
        self.applied = None;
        self.compare_at = Instant::now() + SELF_CHECK;
    }

    fn is_damage(&self, notification: &Notification) -> bool {
        match notification {
            Notification::Lost => true,
            Notification::Committed(it) if it.port == self.nftables.port() => false,
            Notification::Committed(it) => {
                let own = own_tables(&self.settings);
                it.changes.iter().any(|change| own.contains(&change.table))
            }
        }
    }

    fn ask(&mut self, request: Request) {
        match request {
            Request::Admit { uid, facts, version, addresses, link, answer } => {
                self.unknown.remove(&uid);
                // Whoever had one of them has it no longer.
                self.unknown.retain(|_, of| !addresses.iter().any(|address| of.contains(address)));
                self.model.admit(&uid, *facts, version, &addresses, &link);
                self.waiting.extend(answer);
            }
            Request::Release { uid } => {
                self.model.release(&uid);
                if self.unknown.remove(&uid).is_some() {
                    self.applied = None;
                }
            }
            Request::TellBy(recorder) => self.recorder = Some(recorder),
            Request::Close { answer } => {
                let removed = self.nftables.commit(removal(&self.settings));
                self.is_closed = removed.is_ok();
                let _ = answer.send(removed.map_err(|error| not_applied(&error)));
            }
            #[cfg(test)]
            Request::Break => panic!("asked to break"),
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Namespace(Change::Listed(all, _)) => {
                let all = all.into_iter().map(|it| it.metadata);
                let name = |it: &kube::api::ObjectMeta| it.name.clone().unwrap_or_default();
                let facts = |it: kube::api::ObjectMeta| {
                    (name(&it), (it.labels.unwrap_or_default(), it.deletion_timestamp.is_some()))
                };
                self.model.list_namespaces(all.map(facts).collect());
            }
            Event::Namespace(Change::Changed(it)) => {
                let (name, is_leaving) =
                    (it.metadata.name.unwrap_or_default(), it.metadata.deletion_timestamp.is_some());
                self.model.set_namespace(name, it.metadata.labels.unwrap_or_default(), is_leaving);
            }
            Event::Namespace(Change::Removed(it)) => {
                self.model.remove_namespace(it.metadata.name.as_deref().unwrap_or_default());
            }
            Event::Policy(Change::Listed(all, _)) => {
                self.refused.clear();
                self.problems.clear();
                let read = all.iter().map(|policy| (Policy::key(policy), Policy::read(policy)));
                let read: Vec<_> = read.collect();
                self.model.list_policies(read.into_iter().collect());
                all.iter().for_each(|policy| self.tell_problem(&Policy::key(policy)));
            }
            Event::Policy(Change::Changed(policy)) => {
                let key = Policy::key(&policy);
                self.refused.remove(&key);
                let read = Policy::read(&policy);
                self.model.set_policy(&key, Some(read));
                self.tell_problem(&key);
            }
            Event::Policy(Change::Removed(policy)) => {
                let key = Policy::key(&policy);
                self.refused.remove(&key);
                self.problems.remove(&key);
                self.model.set_policy(&key, None);
            }
            Event::Pod(Change::Listed(all, _)) => {
                let known = all.iter().map(|pod| {
                    let metadata = &pod.metadata;
                    let uid = metadata.uid.clone().unwrap_or_default();
                    (uid, (PodFacts::of(pod), version(metadata.resource_version.as_ref())))
                });
                self.model.list_pods(known.collect());
            }
            Event::Pod(Change::Changed(pod)) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                self.model.set_pod(&uid, PodFacts::of(&pod), version(pod.metadata.resource_version.as_ref()));
            }
            Event::Pod(Change::Removed(pod)) => self.model.remove_pod(pod.metadata.uid.as_deref().unwrap_or_default()),
            Event::Namespace(Change::Reached(_))
            | Event::Policy(Change::Reached(_))
            | Event::Pod(Change::Reached(_)) => {}
        }
    }

    /// Says once why a policy lets nobody through.
    fn tell_problem(&mut self, key: &PolicyKey) {
        let Some(problem) = self.model.problem(key) else {
            self.problems.remove(key);
            return;
        };
        if self.problems.insert(key.clone(), problem.clone()).as_ref() == Some(&problem) {
            return;
        }
        tracing::warn!(namespace = key.0, name = key.1, problem, "a NetworkPolicy isolates pods and allows nothing");
        if let Some(recorder) = &self.recorder {
            let about = ObjectReference {
                api_version: Some("networking.k8s.io/v1".to_owned()),
                kind: Some("NetworkPolicy".to_owned()),
                namespace: Some(key.0.clone()),
                name: Some(key.1.clone()),
                ..ObjectReference::default()
            };
            let message = format!("{problem}; the pods that it selects are isolated, and it allows nothing");
            recorder.tell(about, Grade::Warning, "PolicyNotEnforced", message);
        }
    }

    /// Tells whom policies have refused since the last look.
    fn tell_denied(&mut self, now: Instant) {
        let (Some(recorder), true) = (&self.recorder, self.applied.is_some()) else { return };
        let mut refused = Vec::new();
        for family in FAMILIES {
            match self.nftables.elements(&table(&self.settings, family), DENIED) {
                Ok(elements) => refused.extend(elements.into_iter().map(|element| element.key)),
                Err(error) => tracing::debug!(error = error_chain(&error), "cannot read who was refused"),
            }
        }
        for (about, words) in self.told.news(&self.model, &refused, now) {
            recorder.tell(about, Grade::Warning, "PolicyDenied", words);
        }
    }

    /// Makes the kernel have what is wanted, and tells those who wait.
    fn write(&mut self) {
        let mut written = self.flush();
        if let Err(error) = &written {
            tracing::warn!(
                error = error_chain(error),
                "the kernel refused the rules of NetworkPolicies; they are compared"
            );
            // What is there may not be what was thought.
            self.applied = None;
            written = self.flush();
        }
        if written.is_err() {
            self.refuse_policies();
            self.applied = None;
            written = self.flush();
        }
        match written {
            Ok(()) => {
                self.failures = 0;
                if !self.refused.is_empty() {
                    self.compare_at = self.compare_at.min(Instant::now() + AGAIN_MAX);
                }
                self.waiting.drain(..).for_each(|answer| drop(answer.send(Ok(()))));
            }
            Err(error) => {
                tracing::error!(error = error_chain(&error), "cannot write the rules of NetworkPolicies");
                self.applied = None;
                self.compare_at = Instant::now() + AGAIN.saturating_mul(1 << self.failures.min(5)).min(AGAIN_MAX);
                self.failures = self.failures.saturating_add(1);
                self.waiting.drain(..).for_each(|answer| drop(answer.send(Err(not_applied(&error)))));
            }
        }
    }

    fn flush(&mut self) -> Result<(), nft::Error> {
        let kept: BTreeSet<IpAddr> = self.unknown.values().flatten().copied().collect();
        let mut touched = self.model.wanted.touched.clone();
        let wanted = &self.model.wanted.tables;
        let mut applied = match self.applied.take() {
            Some(applied) => applied,
            None => {
                let applied = match kernel::read(&mut self.nftables, &self.settings, wanted)? {
                    Some(applied) => applied,
                    None => kernel::replace(&mut self.nftables, &self.settings, wanted)?,
                };
                touched = Touched::all(wanted, &applied);
                applied
            }
        };
        if !touched.is_empty() {
            let difference = kernel::difference(&self.settings, wanted, &applied, &touched, &kept);
            self.nftables.commit(difference.changes)?;
            if difference.takes_away && self.sweep_at.is_none() {
                self.sweep_at = Some(Instant::now() + SWEEP);
            }
            let removed = self.nftables.commit(difference.removals);
            if let Err(error) = &removed {
                tracing::debug!(error = error_chain(error), "chains that nothing leads to stay for a while");
            }
            kernel::note(wanted, &mut applied, &touched, removed.is_ok() && kept.is_empty(), &kept);
        }
        self.applied = Some(applied);
        self.model.wanted.touched = Touched::default();
        Ok(())
    }

    /// Finds the policies that the kernel does not take. Each of them isolates what it selects and allows nothing; the others are
    /// as they are written.
    fn refuse_policies(&mut self) {
        for key in self.model.active() {
            let mut batch = Batch::new();
            kernel::trial(&mut batch, &self.settings, &self.model.rendered(&key));
            let Err(error) = self.nftables.commit(batch) else { continue };
            let reason = error_chain(&error);
            if let Some(policy) = self.model.policy(&key).cloned() {
                self.model.set_policy(&key, Some(policy.closed(format!("the kernel does not take it: {reason}"))));
                self.refused.insert(key.clone(), policy);
                self.tell_problem(&key);
            }
        }
    }

    /// Forgets flows that policies refuse.
    fn judge_flows(&self, flows: Vec<Flow>) {
        let world = self.model.world();
        let refused: Vec<_> = flows.into_iter().filter(|flow| !world.lets_pass(flows::packet(flow))).collect();
        if !refused.is_empty() {
            let _ = self.flow_requests.send(FlowRequest::Forget(refused));
        }
    }
}

fn not_applied(error: &nft::Error) -> PolicyError {
    PolicyError::NotApplied { reason: error_chain(error) }
}
