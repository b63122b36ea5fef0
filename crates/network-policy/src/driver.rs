//! Starts the owner of the tables, tells it what the API says, and starts it again when it breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use client::{Change, WatchUpdate};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::core::PartialObjectMeta;
use nft::Nftables;
use supervision::{Backoff, error_chain};
use tokio::sync::{mpsc, watch};

use crate::handle::{PolicyError, PolicyHandle, Request};
use crate::owner::Owner;
use crate::skeleton::{Settings, removal};

const EVENTS_MAX: usize = 1024;

/// Says which pods of this node have which addresses.
pub type Holders = Box<dyn Fn() -> BTreeMap<String, BTreeSet<IpAddr>> + Send>;

/// What the API said.
#[expect(clippy::large_enum_variant, reason = "a queue of a thousand at most")]
#[derive(Debug)]
pub enum Event {
    /// Of namespaces.
    Namespace(Change<PartialObjectMeta<Namespace>>),
    /// Of policies.
    Policy(Change<NetworkPolicy>),
    /// Of pods, wherever they are.
    Pod(Change<Pod>),
}

/// The policies of a node. Their rules stay in the kernel when this is gone.
#[derive(Debug)]
pub struct Policies {
    handle: PolicyHandle,
    settings: Settings,
    events: mpsc::Sender<Event>,
    /// How often the owner of the tables had to begin again, with lists.
    lives: watch::Receiver<u32>,
}

impl Policies {
    /// Takes over the tables of this instance in the network namespace of the calling thread. They are made when namespaces, policies
    /// and pods are known; until then no pod is admitted, and those that `holders` tells of are left as they are.
    pub fn open(settings: Settings, holders: Holders) -> Result<Self, PolicyError> {
        let (requests, asked) = mpsc::unbounded_channel();
        let (events, happened) = mpsc::channel(EVENTS_MAX);
        let (born, lives) = watch::channel(0);
        let (opened, is_open) = std::sync::mpsc::channel();
        let of_owner = settings.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let owner = Owner::open(of_owner, holders);
            let owner = owner.map_err(|error| opened.send(Err(not_applied(&error))));
            let (Ok(runtime), Ok(owner)) = (runtime, owner) else { return };
            let _ = opened.send(Ok(()));
            keep(&runtime, owner, asked, happened, &born);
        };
        let started = std::thread::Builder::new().name("policy".into()).spawn(run);
        started.map_err(|error| PolicyError::NotApplied { reason: error.to_string() })?;
        is_open.recv().unwrap_or(Err(PolicyError::NotRunning))?;
        Ok(Self { handle: PolicyHandle::new(requests), settings, events, lives })
    }

    /// Follows namespaces, policies and pods through `client`, for as long as this lives; of a client that may see the pods of one node
    /// only, those. Whenever the owner of the tables begins again they are listed again. People are told by `recorder`.
    pub fn follow(&self, client: kube::Client, pods_of: Option<String>, recorder: client::Recorder) {
        self.handle.tell_by(recorder);
        let (events, mut lives) = (self.events.clone(), self.lives.clone());
        tokio::spawn(async move {
            loop {
                lives.borrow_and_update();
                tokio::select! {
                    () = follow_once(client.clone(), pods_of.clone(), &events) => return,
                    begun = lives.changed() => if begun.is_err() {
                        return;
                    }
                }
            }
        });
    }

    /// What the rest of the node speaks to.
    pub fn handle(&self) -> PolicyHandle {
        self.handle.clone()
    }

    /// Takes what the API said from whoever hears it otherwise than by [`follow`](Self::follow).
    pub fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    /// Removes the tables and ends: nobody writes them again. Where that cannot be asked for any more, they are removed all the same.
    pub async fn close(&self) -> Result<(), PolicyError> {
        match self.handle.close().await {
            Ok(()) => Ok(()),
            Err(_) => Self::remove(&self.settings),
        }
    }

    /// Removes the tables of an instance that does not run.
    pub fn remove(settings: &Settings) -> Result<(), PolicyError> {
        let removed = Nftables::open().and_then(|mut nftables| nftables.commit(removal(settings)));
        removed.map_err(|error| not_applied(&error))
    }

    #[cfg(test)]
    pub(crate) fn lives(&self) -> watch::Receiver<u32> {
        self.lives.clone()
    }
}

/// Hands on what the API says, until nobody takes it.
async fn follow_once(client: kube::Client, pods_of: Option<String>, events: &mpsc::Sender<Event>) {
    let (namespaces, namespace_changes) = mpsc::channel(EVENTS_MAX);
    let (policies, policy_changes) = mpsc::channel(EVENTS_MAX);
    let (pods, pod_changes) = mpsc::channel(EVENTS_MAX);
    let following_pods = async {
        let api = Api::<Pod>::all(client.clone());
        let Some(node) = pods_of else { return client::follow_changes(api, pods).await };
        let (updates, mut told) = mpsc::channel(EVENTS_MAX);
        let translating = async {
            while let Some(update) = told.recv().await {
                let change = match update {
                    WatchUpdate::Listed(all) => Change::Listed(all, None),
                    WatchUpdate::Changed(pod) => Change::Changed(pod),
                    WatchUpdate::Removed(pod) => Change::Removed(pod),
                };
                if pods.send(change).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = client::follow(api, Some(format!("spec.nodeName={node}")), updates) => {}
            () = translating => {}
        }
    };
    tokio::select! {
        () = client::follow_metadata(Api::<Namespace>::all(client.clone()), namespaces) => {}
        () = client::follow_changes(Api::<NetworkPolicy>::all(client.clone()), policies) => {}
        () = following_pods => {}
        () = hand_on(namespace_changes, events, Event::Namespace) => {}
        () = hand_on(policy_changes, events, Event::Policy) => {}
        () = hand_on(pod_changes, events, Event::Pod) => {}
    }
}

async fn hand_on<T>(mut from: mpsc::Receiver<T>, to: &mpsc::Sender<Event>, event: impl Fn(T) -> Event) {
    while let Some(change) = from.recv().await {
        if to.send(event(change)).await.is_err() {
            return;
        }
    }
}

/// Runs the owner of the tables. One that broke begins again: namespaces, policies and pods are listed anew. The rules stay in the
/// kernel meanwhile, and whoever waits for an answer is told that there is none.
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
        let Err(panic) = supervision::catch_blocking("policy", run) else { return };
        let wait = backoff.after_panic(Instant::now());
        tracing::error!(%panic, in_a_row = backoff.in_a_row(), ?wait, "NetworkPolicies broke; they begin again");
        std::thread::sleep(wait);
        // What broke it may be what it was told of pods here.
        if supervision::catch_blocking("policy", || owner.begin_again()).is_err() {
            owner.model = crate::model::Model::default();
        }
        while events.try_recv().is_ok() {}
        born.send_modify(|lives| *lives += 1);
    }
}

fn not_applied(error: &nft::Error) -> PolicyError {
    PolicyError::NotApplied { reason: error_chain(error) }
}
