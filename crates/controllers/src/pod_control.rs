//! Pods made from templates and taken away again, for every controller that has pods: names, references, events and refusals.
//!
//! Creates go out in batches of 1, 2, 4 … at once: whatever refuses one pod mostly refuses all, and is then asked once and not five
//! hundred times. A create may be repeated: the name is the caller's, and a pod that is there with our reference is the one that
//! was meant. Deletions name the UID.

use std::collections::BTreeMap;
use std::fmt;

use futures::StreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams, Request};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use supervision::error_chain;

use crate::controller_ref::{Owner, adopt, controller_of, is_current, release};
use crate::events::EventRecorder;
use crate::feed::revision;
use crate::pod::PodView;
use crate::pod_deletion::{Deletion, PodId, delete_pod};
use crate::pod_names;

/// How many pods one pass creates or deletes at most.
pub(crate) const BURST: usize = 500;
/// How many requests are under way at once.
const AT_ONCE: usize = 64;

/// A template of pods, kept as text: there is one of these for every workload, and mostly nobody asks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct PodTemplate {
    metadata: Box<str>,
    spec: Box<str>,
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|template| Self::of(&template))
    }
}

impl PodTemplate {
    /// The template that `value` is.
    pub(crate) fn of(value: &Value) -> Self {
        let text = |part: &Value| if part.is_object() { part.to_string().into() } else { "{}".into() };
        Self { metadata: text(&value["metadata"]), spec: text(&value["spec"]) }
    }

    /// The whole of it, to be looked at or changed.
    pub(crate) fn value(&self) -> Value {
        let part = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!({}));
        json!({ "metadata": part(&self.metadata), "spec": part(&self.spec) })
    }

    /// Its labels.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let metadata: ObjectMeta = serde_json::from_str(&self.metadata).unwrap_or_default();
        metadata.labels.unwrap_or_default()
    }

    /// Whether and when its containers are started again.
    pub(crate) fn restart_policy(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Policy {
            restart_policy: Option<String>,
        }
        serde_json::from_str::<Policy>(&self.spec).ok()?.restart_policy
    }

    /// A pod of this template called `name`, as a value that may be changed before it is created.
    pub(crate) fn pod(&self, owner: &Owner, name: &str) -> Value {
        let spec = serde_json::from_str(&self.spec).unwrap_or_else(|_| json!({}));
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": self.pod_metadata(owner, name), "spec": spec })
    }

    /// The same as it is sent, without reading the spec.
    pub(crate) fn pod_text(&self, owner: &Owner, name: &str) -> Vec<u8> {
        let metadata = self.pod_metadata(owner, name);
        let spec = if self.spec.is_empty() { "{}" } else { &*self.spec };
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{metadata},\"spec\":{spec}}}").into_bytes()
    }

    fn pod_metadata(&self, owner: &Owner, name: &str) -> Value {
        let template: Map<String, Value> = serde_json::from_str(&self.metadata).unwrap_or_default();
        let mut metadata = json!({ "name": name, "generateName": pod_names::prefix(&owner.name),
            "namespace": &*owner.namespace, "ownerReferences": [owner.reference()] });
        for part in ["labels", "annotations", "finalizers"] {
            if let Some(value) = template.get(part).filter(|value| !value.is_null()) {
                metadata[part] = value.clone();
            }
        }
        metadata
    }
}

/// A pod that a controller means, and no other under its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodRef {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What came of one create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Created {
    /// It is there, by a write of this revision or of one before.
    There(Option<u64>),
    /// Somebody else's pod has the name.
    NameTaken,
    /// The namespace is being deleted: nothing more is to be created, and nobody need know.
    NamespaceEnding,
}

/// Why a pod could not be created or deleted, in the server's words.
#[derive(Debug)]
pub(crate) struct PodError(pub(crate) String);

impl fmt::Display for PodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PodError {}

impl From<kube::Error> for PodError {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error
            && !status.message.is_empty()
        {
            return Self(status.message.clone());
        }
        Self(error_chain(&error))
    }
}

/// Whether a refusal says that the namespace is being deleted, or is gone.
pub(crate) fn is_namespace_ending(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let ending = |cause: &kube::core::response::StatusCause| cause.reason == "NamespaceTerminating";
    status.details.as_ref().is_some_and(|details| {
        details.causes.iter().any(ending) || (status.code == 404 && details.kind == "namespaces")
    })
}

/// What came of several creates or deletions.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The newest revision that was written.
    pub(crate) revision: Option<u64>,
    /// Names of pods that are there.
    pub(crate) created: Vec<String>,
    /// Names that somebody else's pods have.
    pub(crate) taken: Vec<String>,
    /// The namespace is being deleted: the others were not tried, and nobody need know.
    pub(crate) namespace_ends: bool,
    /// What was in the way of the first that could not be done.
    pub(crate) error: Option<PodError>,
}

/// How a kind of owners words what became of its pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventWording {
    /// `Created pod: web-x7k2q`, as most do.
    Plain,
    /// `create Pod web-0 in StatefulSet web successful`.
    StatefulSet,
}

impl EventWording {
    fn done(self, verb: &str, owner: &Owner, pod: &str) -> String {
        match self {
            Self::Plain if verb == "create" => format!("Created pod: {pod}"),
            Self::Plain => format!("Deleted pod: {pod}"),
            Self::StatefulSet => format!("{verb} Pod {pod} in StatefulSet {} successful", owner.name),
        }
    }

    fn failed(self, verb: &str, owner: &Owner, pod: &str, error: &PodError) -> String {
        match self {
            Self::Plain if verb == "create" => format!("Error creating: {error}"),
            Self::Plain => format!("Error deleting: {error}"),
            Self::StatefulSet => format!("{verb} Pod {pod} in StatefulSet {} failed error: {error}", owner.name),
        }
    }
}

/// Creates and deletes pods in the name of one controller, and tells about it.
#[derive(Clone)]
pub(crate) struct PodControl {
    client: kube::Client,
    recorder: EventRecorder,
    wording: EventWording,
}

/// What is read of a pod that was created.
#[derive(Deserialize)]
struct Answer {
    metadata: ObjectMeta,
}

impl PodControl {
    /// Acts through `client` and tells through `recorder`.
    pub(crate) fn new(client: kube::Client, recorder: EventRecorder) -> Self {
        Self { client, recorder, wording: EventWording::Plain }
    }

    /// The same in other words.
    pub(crate) fn worded(self, wording: EventWording) -> Self {
        Self { wording, ..self }
    }

    /// Adopts pods that nobody has and releases those that are not selected any more. Answers the newest revision that was written.
    pub(crate) async fn claim(
        &self,
        owner: &Owner,
        adopted: &[PodRef],
        released: &[PodRef],
    ) -> Result<Option<u64>, PodError> {
        let pods: Api<PodView> = Api::namespaced(self.client.clone(), &owner.namespace);
        if !adopted.is_empty() && !is_current(&self.client, owner).await? {
            return Err(PodError(format!("{} is not the one that is there any more", owner.name)));
        }
        let adopting = adopted.iter().map(|pod| adopt(&pods, (&pod.name, &pod.uid), owner, None));
        let adopted = try_join_all(adopting).await?;
        let releasing = released.iter().map(|pod| release(&pods, (&pod.name, &pod.uid), owner, None));
        let released = try_join_all(releasing).await?;
        Ok(adopted.into_iter().chain(released).flatten().max())
    }

    /// Creates one pod, whose text names `owner` as its controller.
    pub(crate) async fn create(&self, owner: &Owner, name: &str, pod: Vec<u8>) -> Result<Created, PodError> {
        let pods: Api<PodView> = Api::namespaced(self.client.clone(), &owner.namespace);
        let request = Request::new(pods.resource_url()).create(&PostParams::default(), pod);
        let request = request.map_err(|error| PodError(error_chain(&error)))?;
        let error = match self.client.request::<Answer>(request).await {
            Ok(Answer { metadata }) => {
                let message = self.wording.done("create", owner, name);
                self.recorder.tell(owner.object_reference(), "SuccessfulCreate", &message);
                return Ok(Created::There(revision(metadata.resource_version)));
            }
            Err(error) => error,
        };
        if is_namespace_ending(&error) {
            return Ok(Created::NamespaceEnding);
        }
        if matches!(&error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
            && let Some(there) = pods.get_metadata_opt(name).await?
        {
            let ours = controller_of(&there.metadata).is_some_and(|it| it.uid == *owner.uid);
            return Ok(if ours { Created::There(revision(there.resource_version())) } else { Created::NameTaken });
        }
        let error = PodError::from(error);
        let message = self.wording.failed("create", owner, name, &error);
        self.recorder.warn(owner.object_reference(), "FailedCreate", &message);
        Err(error)
    }

    async fn create_named(&self, owner: &Owner, name: String, pod: Vec<u8>) -> (String, Result<Created, PodError>) {
        let created = self.create(owner, &name, pod).await;
        (name, created)
    }

    /// Creates pods in growing batches, until one is refused.
    pub(crate) async fn create_all(&self, owner: &Owner, pods: Vec<(String, Vec<u8>)>) -> Batch {
        let mut batch = Batch::default();
        let mut pods = pods.into_iter().take(BURST);
        let mut size = 1;
        loop {
            let next: Vec<(String, Vec<u8>)> = pods.by_ref().take(size).collect();
            if next.is_empty() {
                return batch;
            }
            let creates = next.into_iter().map(|(name, pod)| self.create_named(owner, name, pod)).collect::<Vec<_>>();
            let done: Vec<_> = futures::stream::iter(creates).buffer_unordered(AT_ONCE).collect().await;
            for (name, created) in done {
                match created {
                    Ok(Created::There(revision)) => {
                        batch.revision = batch.revision.max(revision);
                        batch.created.push(name);
                    }
                    Ok(Created::NameTaken) => batch.taken.push(name),
                    Ok(Created::NamespaceEnding) => batch.namespace_ends = true,
                    Err(error) => batch.error = batch.error.or(Some(error)),
                }
            }
            if batch.error.is_some() || batch.namespace_ends {
                return batch;
            }
            size *= 2;
        }
    }

    /// Asks one pod to leave with its own grace. One that is gone or another by now is fine.
    pub(crate) async fn delete(&self, owner: &Owner, pod: &PodRef) -> Result<Option<u64>, PodError> {
        let id = PodId { namespace: &owner.namespace, name: &pod.name, uid: &pod.uid };
        match delete_pod(&self.client, &id, None, None).await {
            Ok(Deletion::Asked(revision)) => {
                let message = self.wording.done("delete", owner, &pod.name);
                self.recorder.tell(owner.object_reference(), "SuccessfulDelete", &message);
                Ok(revision)
            }
            Ok(Deletion::Gone) => Ok(None),
            Err(error) => {
                let error = PodError::from(error);
                let message = self.wording.failed("delete", owner, &pod.name, &error);
                self.recorder.warn(owner.object_reference(), "FailedDelete", &message);
                Err(error)
            }
        }
    }

    /// Asks pods to leave, all at once.
    pub(crate) async fn delete_all(&self, owner: &Owner, pods: &[PodRef]) -> Batch {
        let deletions = pods.iter().take(BURST).map(|pod| self.delete(owner, pod)).collect::<Vec<_>>();
        let done: Vec<_> = futures::stream::iter(deletions).buffer_unordered(AT_ONCE).collect().await;
        let mut batch = Batch::default();
        for deleted in done {
            match deleted {
                Ok(revision) => batch.revision = batch.revision.max(revision),
                Err(error) => batch.error = batch.error.or(Some(error)),
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn pod_of_a_template_has_its_labels_annotations_finalizers_and_one_controller() {
        let template = PodTemplate::of(&json!({
            "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" }, "finalizers": ["x/y"],
                "name": "ignored", "creationTimestamp": null },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } }));
        let owner = Owner {
            api_version: "apps/v1",
            kind: "ReplicaSet",
            namespace: "ns".into(),
            name: "web".into(),
            uid: "u".into(),
        };
        let pod: Value = serde_json::from_slice(&template.pod_text(&owner, "web-1")).unwrap();
        assert_eq!(pod, template.pod(&owner, "web-1"));
        assert_eq!(
            pod["metadata"],
            json!({ "name": "web-1", "generateName": "web-", "namespace": "ns",
            "labels": { "app": "web" }, "annotations": { "a": "b" }, "finalizers": ["x/y"],
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                "controller": true, "blockOwnerDeletion": true }] })
        );
        assert_eq!(pod["spec"]["containers"][0]["image"], "i");
        assert_eq!(template.labels(), BTreeMap::from([("app".to_owned(), "web".to_owned())]));
        let odd: PodTemplate = serde_json::from_value(json!("text")).unwrap();
        assert_eq!(odd.value(), json!({ "metadata": {}, "spec": {} }), "whatever is stored is no panic");
    }
}
