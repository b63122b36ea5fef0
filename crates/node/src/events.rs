//! What people are told about a pod, as Kubernetes Events.
//!
//! Told in order, by one task, off the path of any deadline: a slow API delays the telling and nothing else.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as ApiEvent, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::{Api, PostParams};
use lifecycle::{Event, EventKind};
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// How many events may wait to be stored before new ones are dropped.
const BACKLOG: usize = 4096;

/// Takes events for pods; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<ApiEvent>,
    node: String,
}

impl Recorder {
    /// A recorder and the work of storing what it is given, which ends with the last recorder.
    pub fn start(client: kube::Client, node: String) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, events) = mpsc::channel(BACKLOG);
        (Self { queue, node }, store(client, events))
    }

    /// Tells people `event` about `pod`.
    pub fn record(&self, pod: &Pod, event: Event) {
        let api_event = self.api_event(pod, event, Timestamp::now());
        if self.queue.try_send(api_event).is_err() {
            warn!("too many events wait to be stored; one is dropped");
        }
    }

    fn api_event(&self, pod: &Pod, event: Event, now: Timestamp) -> ApiEvent {
        let meta = &pod.metadata;
        let name = meta.name.clone().unwrap_or_default();
        ApiEvent {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: meta.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
                field_path: event.container.as_ref().map(|c| field_path(pod, &c.0)),
            },
            type_: Some(
                match event.kind {
                    EventKind::Normal => "Normal",
                    EventKind::Warning => "Warning",
                }
                .to_owned(),
            ),
            reason: Some(event.reason),
            message: Some(event.message),
            source: Some(EventSource { component: Some("kubelet".to_owned()), host: Some(self.node.clone()) }),
            reporting_component: Some("kubelet".to_owned()),
            reporting_instance: Some(self.node.clone()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            event_time: None::<MicroTime>,
            count: Some(1),
            ..ApiEvent::default()
        }
    }
}

fn field_path(pod: &Pod, container: &str) -> String {
    let spec = pod.spec.as_ref();
    let is_init = spec.is_some_and(|s| s.init_containers.iter().flatten().any(|c| c.name == container));
    let is_ephemeral = spec.is_some_and(|s| s.ephemeral_containers.iter().flatten().any(|c| c.name == container));
    let list = match (is_init, is_ephemeral) {
        (true, _) => "initContainers",
        (_, true) => "ephemeralContainers",
        (false, false) => "containers",
    };
    format!("spec.{list}{{{container}}}")
}

async fn store(client: kube::Client, mut events: mpsc::Receiver<ApiEvent>) {
    while let Some(event) = events.recv().await {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<ApiEvent> = Api::namespaced(client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            debug!(%error, reason = event.reason, "an event could not be stored");
        }
    }
}
