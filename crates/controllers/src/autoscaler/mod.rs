//! HorizontalPodAutoscalers: as many replicas as the work of the pods asks for. Resource metrics come from `metrics.k8s.io`; custom
//! and external metrics are not served here, and a metric of that kind says so in the autoscaler's conditions.

mod controller;
mod proposal;
mod rates;
mod view;

use std::collections::BTreeMap;
use std::time::Duration;

use api::quantity::Quantity;
use frame::{Applied, Effects, Limits};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::clients::Clients;
use crate::events::EventRecorder;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_control::PodError;
use crate::settings::Settings;
use controller::{Action, Answer, Autoscalers, Measurement, Scale};
use proposal::{ScaledPod, Usage};
use view::{AutoscalerView, ScaleTarget};

/// What the source of autoscalers is called.
const AUTOSCALERS: &str = "horizontalpodautoscalers";
const ACCOUNT: &str = "horizontal-pod-autoscaler";

/// Sees to autoscalers until its feed ends.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut scalers = Feed::new(AUTOSCALERS, Api::<AutoscalerView>::all(clients.read()));
    let sources = vec![scalers.source(|update| update)];
    scalers.start(tasks);
    let client = clients.act(ACCOUNT);
    let recorder = EventRecorder::start(client.clone(), ACCOUNT, settings.clock, tasks);
    let effects = AutoscalerEffects { client, recorder };
    frame::run(ACCOUNT, Autoscalers::default(), effects, sources, Limits::default(), settings.clock)
}

struct AutoscalerEffects {
    client: kube::Client,
    recorder: EventRecorder,
}

impl Effects<Autoscalers> for AutoscalerEffects {
    type Error = PodError;

    async fn apply(&self, _: &std::sync::Arc<str>, action: &Action) -> Result<Applied<Answer>, PodError> {
        match action {
            Action::Measure { namespace, target } => {
                let measured = self.measure(namespace, target).await;
                Ok(Applied::new(Answer::Measured(Box::new(measured))))
            }
            Action::Rescale { owner, target, resource_version, replicas, why } => {
                let objects = self.target(&owner.namespace, target).await?;
                let metadata = json!({ "resourceVersion": resource_version });
                let patch = Patch::Merge(json!({ "metadata": metadata, "spec": { "replicas": replicas } }));
                match objects.patch_subresource("scale", &target.name, &PatchParams::default(), &patch).await {
                    Ok(_) => {
                        let message = format!("New size: {replicas}; reason: {why}");
                        self.recorder.tell(owner.object_reference(), "SuccessfulRescale", &message);
                        Ok(Applied::new(Answer::Done))
                    }
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(Applied::new(Answer::Conflict)),
                    Err(error) => {
                        let error = PodError::from(error).to_string();
                        let message = format!("New size: {replicas}; reason: {why}; error: {error}");
                        self.recorder.warn(owner.object_reference(), "FailedRescale", &message);
                        Ok(Applied::new(Answer::Refused(error)))
                    }
                }
            }
            Action::Report { owner, resource_version, status, warnings } => {
                let api: Api<AutoscalerView> = Api::namespaced(self.client.clone(), &owner.namespace);
                let metadata = json!({ "uid": &*owner.uid, "resourceVersion": resource_version });
                let patch = Patch::Merge(json!({ "metadata": metadata, "status": status }));
                let written = api.patch_status(&owner.name, &PatchParams::default(), &patch).await?;
                for warning in warnings {
                    self.recorder.warn(owner.object_reference(), warning.reason, &warning.message);
                }
                Ok(Applied::wrote(Answer::Done, AUTOSCALERS, revision(written.resource_version())))
            }
        }
    }
}

impl AutoscalerEffects {
    /// Where the target is served.
    async fn target(&self, namespace: &str, target: &ScaleTarget) -> Result<Api<DynamicObject>, PodError> {
        let (group, version) = target.api_version.rsplit_once('/').unwrap_or(("", &target.api_version));
        let kind = GroupVersionKind::gvk(group, version, &target.kind);
        let (resource, _) = discovery::pinned_kind(&self.client, &kind)
            .await
            .map_err(|_| PodError(format!("no matches for kind {:?} in group {group:?}", target.kind)))?;
        Ok(Api::namespaced_with(self.client.clone(), namespace, &resource))
    }

    async fn measure(&self, namespace: &str, target: &ScaleTarget) -> Measurement {
        let scale = self.scale(namespace, target).await.map_err(|error| error.to_string());
        let pods = match &scale {
            Ok(scale) if scale.selector.is_empty() => Err("the target has no selector".to_owned()),
            Ok(scale) => self.pods(namespace, &scale.selector).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        Measurement { scale, pods }
    }

    async fn scale(&self, namespace: &str, target: &ScaleTarget) -> Result<Scale, PodError> {
        let scale = self.target(namespace, target).await?.get_subresource("scale", &target.name).await?;
        let number = |value: &Value| i32::try_from(value.as_i64().unwrap_or(0)).unwrap_or(0);
        Ok(Scale {
            replicas: number(&scale.data["spec"]["replicas"]),
            current: number(&scale.data["status"]["replicas"]),
            selector: scale.data["status"]["selector"].as_str().unwrap_or_default().to_owned(),
            resource_version: scale.resource_version().unwrap_or_default(),
        })
    }

    /// The pods of a selector, and what they use as far as anybody knows.
    async fn pods(&self, namespace: &str, selector: &str) -> Result<Vec<ScaledPod>, PodError> {
        let params = ListParams::default().labels(selector);
        let pods: Api<PodView> = Api::namespaced(self.client.clone(), namespace);
        let pods = pods.list(&params).await?;
        let resource = ApiResource {
            group: "metrics.k8s.io".to_owned(),
            version: "v1beta1".to_owned(),
            api_version: "metrics.k8s.io/v1beta1".to_owned(),
            kind: "PodMetrics".to_owned(),
            plural: "pods".to_owned(),
        };
        let metrics: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let metrics = metrics.list(&params).await?;
        let used: BTreeMap<String, Usage> =
            metrics.items.iter().filter_map(|it| Some((it.metadata.name.clone()?, usage(&it.data)?))).collect();
        Ok(pods.items.iter().map(|pod| scaled_pod(pod, &used)).collect())
    }
}

fn amounts(list: &Value) -> BTreeMap<String, i64> {
    let amount = |value: &Value| Some(value.as_str()?.parse::<Quantity>().ok()?.milli_ceil());
    list.as_object().into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), amount(value)?))).collect()
}

fn usage(metrics: &Value) -> Option<Usage> {
    let window = metrics["window"].as_str()?.strip_suffix('s')?.parse::<f64>().ok()?;
    let containers = metrics["containers"].as_array()?.iter();
    Some(Usage {
        at: api::time::parse(metrics["timestamp"].as_str()?)?,
        window: Duration::try_from_secs_f64(window).ok()?,
        containers: containers
            .filter_map(|it| Some((it["name"].as_str()?.to_owned(), amounts(&it["usage"]))))
            .collect(),
    })
}

fn scaled_pod(pod: &PodView, used: &BTreeMap<String, Usage>) -> ScaledPod {
    let name = pod.name_any();
    let requests = |container: &crate::pod::ContainerView| {
        let requests = container.resources.as_ref().and_then(|it| it.requests.as_ref());
        let amount = |text: &str| text.parse::<Quantity>().ok().map(Quantity::milli_ceil);
        requests.into_iter().flatten().filter_map(|(name, it)| Some((name.clone(), amount(&it.0)?))).collect()
    };
    let ready = pod.status.conditions.iter().find(|it| it.type_ == "Ready");
    ScaledPod {
        is_over: pod.metadata.deletion_timestamp.is_some() || pod.status.phase.as_deref() == Some("Failed"),
        is_pending: pod.status.phase.as_deref() == Some("Pending"),
        started: pod.status.start_time.as_ref().map(|time| time.0),
        ready: ready.map(|it| (it.status == "True", it.last_transition_time.as_ref().map(|time| time.0))),
        requests: pod.spec.containers.iter().map(|it| (it.name.clone(), requests(it))).collect(),
        usage: used.get(&name).cloned(),
        name,
    }
}
