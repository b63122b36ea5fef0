//! What the tasks of one pod share.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{ContainerName, Event, EventKind, Input, Instance};
use runtime_api::{PodUid, Runtime};
use tokio::sync::{Mutex, Notify, mpsc, watch};

use super::events::EventQueue;
use super::{Tools, lock};
use crate::publisher::SharedFacts;
use crate::translate::container::{Lookups, RunFacts};
use crate::volumes::{Changes, Prepared};

/// What the tasks of one pod share.
pub(super) struct PodContext<R: Runtime> {
    pub(super) tools: Arc<Tools<R>>,
    pub(super) uid: PodUid,
    pub(super) facts: SharedFacts,
    pub(super) inbox: mpsc::Sender<Input>,
    /// Where each volume is, once made. Held while they are being made, so that they are made once.
    pub(super) volumes: Mutex<Option<BTreeMap<String, Prepared>>>,
    /// They were made; images are of no use before.
    pub(super) has_volumes: watch::Sender<bool>,
    /// What environments referred to when a container was last started.
    pub(super) lookups: Mutex<Option<Lookups>>,
    /// What happened to the volumes' sources since they were made; taken by whoever keeps them fresh.
    pub(super) changes: std::sync::Mutex<Option<Changes>>,
    /// The pod was asked to leave: nothing is started any more, however far its preparation is.
    pub(super) leaving: watch::Sender<bool>,
    /// Told when other resources were granted, or a run was started that may not have the newest.
    pub(super) granted: Arc<Notify>,
    /// Runs whose start was asked for and not answered, each with its end if that was seen already.
    pub(super) starting: std::sync::Mutex<BTreeMap<Instance, Option<Input>>>,
    pub(super) event_queue: EventQueue,
}

impl<R: Runtime> PodContext<R> {
    /// A driver that is gone needs no answer.
    pub(super) async fn tell(&self, input: Input) {
        let _ = self.inbox.send(input).await;
    }

    pub(super) fn pod(&self) -> Arc<Pod> {
        lock(&self.facts).pod.clone()
    }

    pub(super) fn run_facts(&self) -> RunFacts {
        RunFacts {
            pod_ip: lock(&self.facts).pod_ip.clone(),
            host_ip: self.tools.host_ip.clone(),
            node_name: self.tools.node_name.clone(),
            memory_bytes: self.tools.machine.memory_bytes(),
            cpu_millis: self.tools.machine.cpus * 1000,
        }
    }

    pub(super) fn emit(&self, container: Option<&ContainerName>, kind: EventKind, reason: &str, message: String) {
        let event = Event { container: container.cloned(), kind, reason: reason.to_owned(), message };
        self.say(event);
    }
}
