//! News that a controller tells about objects: stored by a task of its own, so that nobody waits for them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

/// How many may wait to be stored; more are dropped, for they are only news.
const QUEUE: usize = 256;

/// Tells news in the name of one controller. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    name: &'static str,
    queue: mpsc::Sender<Event>,
}

impl Teller {
    /// A teller called `name`; what it tells is stored by one of `tasks`.
    pub(crate) fn start(client: kube::Client, name: &'static str, tasks: &mut JoinSet<()>) -> Self {
        let (queue, mut events) = mpsc::channel::<Event>(QUEUE);
        tasks.spawn(async move {
            while let Some(event) = events.recv().await {
                let namespace = event.metadata.namespace.clone().unwrap_or_default();
                let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
                if let Err(error) = api.create(&PostParams::default(), &event).await {
                    debug!(%error, reason = event.reason, "an event could not be stored");
                }
            }
        });
        Self { name, queue }
    }

    /// Something a person should know about.
    pub(crate) fn warn(&self, about: ObjectReference, reason: &str, message: &str) {
        self.tell("Warning", about, reason, message);
    }

    fn tell(&self, kind: &str, about: ObjectReference, reason: &str, message: &str) {
        let now = Timestamp::now();
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        // Events about objects without a namespace live in the default one.
        let namespace = about.namespace.clone().filter(|own| !own.is_empty()).unwrap_or_else(|| "default".to_owned());
        let event = Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace), ..ObjectMeta::default() },
            involved_object: about,
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            source: Some(EventSource { component: Some(self.name.to_owned()), host: None }),
            reporting_component: Some(self.name.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        if self.queue.try_send(event).is_err() {
            warn!(reason, "too many events wait to be stored; one is dropped");
        }
    }
}
