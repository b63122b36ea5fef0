//! The reflection of a static pod in the API: made when it is missing, made anew when it shows another pod or is being
//! deleted, and never anybody's way to end the pod itself.

use std::time::Duration;

use api::pod::{self, MIRROR_ANNOTATION, View as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use supervision::BackoffPolicy;
use tracing::{debug, warn};

use super::HASH;

/// How long to wait before a mirror that could not be removed is tried again, at first and at most.
const RETRY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(5));

/// How long the name stays free after somebody asked the mirror to leave. `kubectl delete` looks at the object, then waits until
/// nobody has its name: it would wait for ever if the next one came in between. Nobody waits for one that was removed at once.
const NAME_STAYS_FREE: Duration = Duration::from_millis(500);

/// Whether `mirror` shows `pod` and is to stay.
pub fn shows(mirror: &Pod, pod: &Pod) -> bool {
    !pod::is_terminating(mirror) && mirror.annotation(MIRROR_ANNOTATION) == pod.annotation(HASH)
}

/// The mirror of `pod` as the API has it, made if need be. `None` if its name belongs to an ordinary pod. One that was there
/// and is not any more comes back at once, one that somebody asked to leave after a short pause.
pub async fn ensure(client: &kube::Client, pod: &Pod, node: &str) -> kube::Result<Option<Pod>> {
    let meta = &pod.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), meta.namespace.as_deref().unwrap_or_default());
    match api.get_opt(name).await? {
        Some(found) if !pod::is_mirror(&found) => {
            debug!(pod = name, "the name of a static pod belongs to another pod in the API");
            return Ok(None);
        }
        Some(found) if shows(&found, pod) => return Ok(Some(found)),
        Some(found) => {
            let asked_to_leave = pod::is_terminating(&found);
            delete(&api, name, found.metadata.uid).await?;
            if asked_to_leave {
                tokio::time::sleep(NAME_STAYS_FREE).await;
            }
        }
        None => {}
    }
    let owner = Api::<Node>::all(client.clone()).get(node).await?;
    api.create(&PostParams::default(), &mirror(pod, &owner)).await.map(Some)
}

/// Removes a mirror whose static pod is gone; not asked for again once it is another one or gone.
pub async fn remove(client: kube::Client, mirror: Pod) {
    let meta = mirror.metadata;
    let name = meta.name.unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client, meta.namespace.as_deref().unwrap_or_default());
    let mut retries = RETRY.start();
    while let Err(error) = delete(&api, &name, meta.uid.clone()).await {
        warn!(%error, pod = name, "a mirror pod cannot be removed; trying again");
        tokio::time::sleep(retries.after_failure()).await;
    }
}

async fn delete(api: &Api<Pod>, name: &str, uid: Option<String>) -> kube::Result<()> {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid, resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        // Gone, or another one by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// What the API is to show of `pod`.
fn mirror(pod: &Pod, node: &Node) -> Pod {
    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let hash = annotations.get(HASH).cloned().unwrap_or_default();
    annotations.insert(MIRROR_ANNOTATION.to_owned(), hash);
    let mut spec = pod.spec.clone().unwrap_or_default();
    // Derived from the class by the server, which knows all classes.
    (spec.priority, spec.preemption_policy) = (None, None);
    Pod {
        metadata: ObjectMeta {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            annotations: Some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.metadata.name.clone().unwrap_or_default(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(spec),
        status: None,
    }
}
