//! What the tasks of one pod share.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{ContainerName, Event, EventKind, Input};
use runtime_api::{PodUid, Runtime};
use tokio::sync::{Mutex, Notify, watch};

use super::Tools;
use super::events::EventQueue;
use crate::driver::Answers;
use crate::record::{PodRecord, RecordReader};
use crate::translate::container::{Lookups, RunFacts};
use crate::volumes::{Changes, Prepared};

/// What one task of a pod has: all that they share, and the life of the driver that it works for.
pub(super) struct PodContext<R: Runtime> {
    shared: Arc<Shared<R>>,
    pub(super) answers: Answers,
}

/// What the tasks of one pod share.
pub(super) struct Shared<R: Runtime> {
    pub(super) tools: Arc<Tools<R>>,
    pub(super) uid: PodUid,
    pub(super) record: RecordReader,
    /// Where each volume is, once made. Held while they are being made, so that they are made once.
    pub(super) volumes: Mutex<Option<BTreeMap<String, Prepared>>>,
    /// They were made; images are of no use before.
    pub(super) has_volumes: watch::Sender<bool>,
    /// What environments referred to when a container was last started.
    pub(super) lookups: Mutex<Option<Lookups>>,
    /// What happened to the volumes' sources since they were made; taken by whoever keeps them fresh.
    pub(super) changes: std::sync::Mutex<Option<Changes>>,
    /// Told when other resources were granted, or a run was started that may not have the newest.
    pub(super) granted: Notify,
    pub(super) event_queue: EventQueue,
}

impl<R: Runtime> Clone for PodContext<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), answers: self.answers.clone() }
    }
}

impl<R: Runtime> Deref for PodContext<R> {
    type Target = Shared<R>;

    fn deref(&self) -> &Shared<R> {
        &self.shared
    }
}

impl<R: Runtime> PodContext<R> {
    pub(super) fn new(shared: Shared<R>, answers: Answers) -> Self {
        Self { shared: Arc::new(shared), answers }
    }

    pub(super) fn downgrade(&self) -> Weak<Shared<R>> {
        Arc::downgrade(&self.shared)
    }

    /// Answers an effect.
    pub(super) async fn answer(&self, input: Input) {
        self.answers.send(input).await;
    }

    /// Resolves when the pod is asked to leave: nothing is started any more, however far its preparation is.
    pub(super) async fn leaving(&self) {
        self.record.clone().wait_until(PodRecord::is_leaving).await;
    }

    pub(super) fn pod(&self) -> Arc<Pod> {
        self.record.pod()
    }

    pub(super) fn run_facts(&self) -> RunFacts {
        RunFacts {
            pod_ip: self.record.get().pod_ip.clone(),
            host_ip: self.tools.host_ip.clone(),
            node_name: self.tools.node_name.clone(),
            memory_bytes: self.tools.machine.memory_bytes(),
            cpu_millis: self.tools.machine.cpus * 1000,
        }
    }
}

impl<R: Runtime> Shared<R> {
    pub(super) fn emit(&self, container: Option<&ContainerName>, kind: EventKind, reason: &str, message: String) {
        let event = Event { container: container.cloned(), kind, reason: reason.to_owned(), message };
        self.say(event);
    }
}
