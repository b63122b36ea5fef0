//! What people are told, as Kubernetes Events: one recorder for every part that has something to say.
//!
//! Told in order, by one task, off the path of any deadline: an API that is slow or away delays the telling and nothing
//! else. What is said again is counted on the event that said it first.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use supervision::BackoffPolicy;
use tokio::sync::mpsc::{self, error::TrySendError};
use tracing::{debug, warn};

/// How many events may wait to be stored before new ones are dropped.
const BACKLOG: usize = 4096;

/// How many events are remembered, so that they can be counted.
const REMEMBERED: usize = 4096;

/// How long a server that is not there is waited for before it is asked again, at first and at most.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(5));

/// How often a server may fail to store an event before the next one has its turn.
const REFUSALS_MOST: u32 = 8;

/// Where events about things without a namespace are kept.
const NAMESPACE_OF_NODES: &str = "default";

/// How loud an event is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Grade {
    /// As it should be.
    Normal,
    /// Someone may want to look.
    Warning,
}

/// Tells the time on the wall.
pub type Wall = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Takes events; cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Event>,
    component: &'static str,
    host: Option<String>,
    wall: Wall,
    /// What the last event was named by: several may be told at one moment.
    named: Arc<AtomicI64>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("component", &self.component).field("host", &self.host).finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder that speaks as `component` (on `host`) and dates events by `wall`, and the work of storing what it is given, which ends with
    /// the last recorder.
    pub fn start(
        client: kube::Client,
        component: &'static str,
        host: Option<String>,
        wall: Wall,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (queue, events) = mpsc::channel(BACKLOG);
        let storing =
            supervision::keep_on("events", (client, events, SeenEvents::default()), |(client, events, seen)| {
                store(client, events, seen).boxed()
            });
        (Self { queue, component, host, wall, named: Arc::default() }, storing)
    }

    /// Tells people something about an object.
    pub fn tell(&self, about: ObjectReference, grade: Grade, reason: &str, message: String) {
        let event = self.event(about, grade, reason, message, (self.wall)());
        match self.queue.try_send(event) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => warn!("too many events wait to be stored; one is dropped"),
            // Who stores them has ended with the process that we are in; a node's are in its journal.
            Err(TrySendError::Closed(event)) => debug!(reason = event.reason, "an event came too late to be stored"),
        }
    }

    /// The nanosecond of `now`, or the next one that no event is named by.
    fn number(&self, now: Timestamp) -> i64 {
        let nanos = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        let later = |last: i64| Some(nanos.max(last.saturating_add(1)));
        let before = self.named.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        before.ok().and_then(later).unwrap_or(nanos)
    }

    fn event(&self, about: ObjectReference, grade: Grade, reason: &str, message: String, now: Timestamp) -> Event {
        let own = about.namespace.clone().filter(|own| !own.is_empty());
        let namespace = own.unwrap_or_else(|| NAMESPACE_OF_NODES.to_owned());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), self.number(now))),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: about,
            type_: Some(if grade == Grade::Normal { "Normal" } else { "Warning" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource { component: Some(self.component.to_owned()), host: self.host.clone() }),
            reporting_component: Some(self.component.to_owned()),
            reporting_instance: self.host.clone(),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        }
    }
}

/// A pod, or one of its containers by its place in the spec.
pub fn about_pod(pod: &impl kube::Resource, field_path: Option<String>) -> ObjectReference {
    let meta = pod.meta();
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path,
    }
}

/// A node. Its events carry its name for a UID, which is what `kubectl describe node` looks for.
pub fn about_node(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some(<Node as k8s_openapi::Resource>::KIND.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// The events stored so far, so that a repeated one is counted instead of stored again.
#[derive(Default)]
struct SeenEvents {
    said: HashMap<String, (String, i32)>,
}

impl SeenEvents {
    /// The same thing about the same object is the same event.
    fn key(event: &Event) -> String {
        let about = &event.involved_object;
        let parts = [&about.kind, &about.namespace, &about.name, &about.uid, &about.field_path];
        let words = [&event.type_, &event.reason, &event.message];
        parts
            .into_iter()
            .chain(words)
            .map(|part| part.as_deref().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("\u{1f}")
    }

    /// Stores an event, or counts it on the one that said the same.
    async fn store(&mut self, client: &kube::Client, event: &Event) -> kube::Result<()> {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let key = Self::key(event);
        if let Some((name, count)) = self.said.get(&key).cloned() {
            let again = json!({ "count": count + 1, "lastTimestamp": event.last_timestamp });
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(again)).await {
                Ok(_) => {
                    self.remember(key, name, count + 1);
                    return Ok(());
                }
                Err(error) if is_worth_another_try(&error) => return Err(error),
                // Most likely it was old and is gone: then it is told anew.
                Err(error) => debug!(%error, "an event could not be counted"),
            }
        }
        match api.create(&PostParams::default(), event).await {
            Ok(_) => {}
            // It was stored when nobody was left to say so.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error),
        }
        self.remember(key, event.metadata.name.clone().unwrap_or_default(), 1);
        Ok(())
    }

    fn remember(&mut self, key: String, name: String, count: i32) {
        if self.said.len() >= REMEMBERED {
            // What is forgotten is told anew instead of being counted.
            self.said.clear();
        }
        self.said.insert(key, (name, count));
    }
}

async fn store(client: &kube::Client, events: &mut mpsc::Receiver<Event>, seen: &mut SeenEvents) {
    while let Some(event) = events.recv().await {
        let mut retries = RETRY.start();
        let mut refusals = 0;
        // One at a time: whoever reads them later reads them in the order in which things happened.
        while let Err(error) = seen.store(client, &event).await {
            refusals += u32::from(matches!(error, kube::Error::Api(_)));
            if !is_worth_another_try(&error) || refusals >= REFUSALS_MOST {
                debug!(%error, reason = event.reason, "an event could not be stored");
                break;
            }
            tokio::time::sleep(retries.after_failure()).await;
        }
    }
}

/// Whether the server was not there, or busy; what it says of the event itself will not change.
fn is_worth_another_try(error: &kube::Error) -> bool {
    !matches!(error, kube::Error::Api(status) if status.code != 429 && status.code < 500)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn epoch() -> Wall {
        Arc::new(|| Timestamp::UNIX_EPOCH)
    }

    fn recorder() -> Recorder {
        let (queue, host) = (mpsc::channel(1).0, Some("n1".to_owned()));
        Recorder { queue, component: "kubelet", host, wall: epoch(), named: Arc::default() }
    }

    #[test]
    fn an_event_about_a_node_is_found_by_kubectl_describe() {
        let event = recorder().event(about_node("n1"), Grade::Warning, "Why", "because".into(), Timestamp::UNIX_EPOCH);
        assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(event.involved_object.uid.as_deref(), Some("n1"));
        assert_eq!(event.source.and_then(|s| s.host).as_deref(), Some("n1"));
    }

    #[test]
    fn events_told_at_one_moment_have_different_names() {
        let recorder = recorder();
        let name = |at: Timestamp| recorder.event(about_node("n1"), Grade::Normal, "Why", "x".into(), at).metadata.name;
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let names = [now, now, Timestamp::UNIX_EPOCH, now].map(name);
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    #[test]
    fn event_repeated_about_the_same_container_is_counted() {
        let about = |path: &str| ObjectReference { field_path: Some(path.to_owned()), ..about_node("p") };
        let said = |path: &str, words: &str, at: i64| {
            let now = Timestamp::from_second(at).expect("a time");
            SeenEvents::key(&recorder().event(about(path), Grade::Normal, "Killing", words.into(), now))
        };
        assert_eq!(said("a", "x", 1), said("a", "x", 2));
        assert_ne!(said("a", "x", 1), said("b", "x", 1));
        assert_ne!(said("a", "x", 1), said("a", "y", 1));
    }

    /// A server that is away, and then busy, is told everything in order when it is there; what it refuses is given up.
    #[tokio::test]
    async fn events_recorded_while_the_server_is_away_are_stored_in_order_later() {
        let (stored_told, mut stored) = mpsc::unbounded_channel();
        let calls = Arc::new(AtomicU32::new(0));
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (call, stored) = (calls.fetch_add(1, Ordering::Relaxed), stored_told.clone());
            async move {
                let body = request.into_body().collect_bytes().await.expect("a body");
                let event: Event = serde_json::from_slice(&body).expect("an event");
                let answer = |code: u16, body: Vec<u8>| {
                    let answer = http::Response::builder().status(code).body(kube::client::Body::from(body));
                    Ok::<_, std::io::Error>(answer.expect("an answer"))
                };
                let failure = |code| serde_json::to_vec(&kube::core::Status::failure("no", "No").with_code(code));
                match (call, event.reason.as_deref()) {
                    (0, _) => Err(std::io::ErrorKind::ConnectionRefused.into()),
                    (1, _) => answer(503, failure(503).expect("a status")),
                    (_, Some("Refused")) => answer(422, failure(422).expect("a status")),
                    (_, reason) => {
                        let _ = stored.send(reason.unwrap_or_default().to_owned());
                        answer(201, body.to_vec())
                    }
                }
            }
        });
        let (recorder, storing) = Recorder::start(kube::Client::new(server, "default"), "kubelet", None, epoch());
        for reason in ["Scheduled", "Refused", "Killing", "StopSignalSent"] {
            recorder.tell(about_node("n1"), Grade::Normal, reason, "words".into());
        }
        drop(recorder);
        storing.await;
        let told: Vec<String> = std::iter::from_fn(|| stored.try_recv().ok()).collect();
        assert_eq!(told, ["Scheduled", "Killing", "StopSignalSent"]);
    }
}
