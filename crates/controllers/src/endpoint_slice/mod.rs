//! Endpoints: where the pods behind each service are, as EndpointSlices and, for those who read nothing newer, as Endpoints.
//! Endpoints that somebody keeps by hand are mirrored into slices.
//!
//! Three controllers upstream, each with an account of its own here too; one frame and one memory, because they depend on the same pods.

mod controller;
mod endpoint;
mod legacy;
mod mirroring;
mod packing;
mod views;

use std::time::Duration;

use frame::{Applied, Effects, Limits};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Endpoints, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use tokio::task::JoinSet;

use crate::clients::Clients;
use crate::feed::{Feed, revision};
use crate::pod::PodView;
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use controller::{Action, EndpointController, Input, Key};
use views::ServiceView;

const SLICE_ACCOUNT: &str = "endpointslice-controller";
const MIRRORING_ACCOUNT: &str = "endpointslicemirroring-controller";
const ENDPOINTS_ACCOUNT: &str = "endpoint-controller";
const SLICES: &str = "endpointslices";
const ENDPOINTS: &str = "endpoints";

/// Follows pods until its feeds end. Followers are `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    pods: &mut Feed<PodView>,
    nodes: &mut Feed<Node>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut services = Feed::new("services", Api::<ServiceView>::all(clients.read()));
    let mut slices = Feed::new(SLICES, Api::<EndpointSlice>::all(clients.read()));
    let mut endpoints = Feed::new(ENDPOINTS, Api::<Endpoints>::all(clients.read()));
    let sources = vec![
        pods.source(Input::Pods),
        nodes.source(Input::Nodes),
        services.source(Input::Services),
        slices.source(Input::Slices),
        endpoints.source(Input::Endpoints),
    ];
    services.start(tasks);
    slices.start(tasks);
    endpoints.start(tasks);
    let effects = EndpointEffects {
        slices: clients.act(SLICE_ACCOUNT),
        mirroring: clients.act(MIRRORING_ACCOUNT),
        endpoints: clients.act(ENDPOINTS_ACCOUNT),
    };
    let limits = Limits { at_once: 32, action_max: Duration::from_secs(30), ..Limits::default() };
    frame::run(SLICE_ACCOUNT, EndpointController::default(), effects, sources, limits, settings.clock)
}

struct EndpointEffects {
    slices: kube::Client,
    mirroring: kube::Client,
    endpoints: kube::Client,
}

/// The revision of what was written; nothing, if it is another by now, or is in a namespace that is going: the watch tells.
fn outcome<T: kube::Resource>(written: kube::Result<T>) -> kube::Result<Option<u64>> {
    match unless_gone(written) {
        Ok(object) => Ok(object.and_then(|object| revision(object.meta().resource_version.clone()))),
        Err(kube::Error::Api(status)) if status.has_cause("NamespaceTerminating") => Ok(None),
        Err(error) => Err(error),
    }
}

trait HasCause {
    fn has_cause(&self, reason: &str) -> bool;
}

impl HasCause for kube::core::Status {
    fn has_cause(&self, reason: &str) -> bool {
        self.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
    }
}

/// Only the object that is meant.
fn this_one(uid: Option<String>) -> DeleteParams {
    DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() }
}

impl Effects<EndpointController> for EndpointEffects {
    type Error = kube::Error;

    async fn apply(&self, key: &Key, action: &Action) -> kube::Result<Applied<()>> {
        match action {
            Action::Slices { creates, updates, deletes } => {
                let client = if matches!(key, Key::Mirrored(_)) { &self.mirroring } else { &self.slices };
                let api = |slice: &EndpointSlice| {
                    Api::<EndpointSlice>::namespaced(client.clone(), &slice.namespace().unwrap_or_default())
                };
                let post = PostParams::default();
                let created =
                    join_all(creates.iter().map(|slice| async { outcome(api(slice).create(&post, slice).await) }));
                let updated = join_all(
                    updates
                        .iter()
                        .map(|slice| async { outcome(api(slice).replace(&slice.name_any(), &post, slice).await) }),
                );
                let (created, updated) = futures::join!(created, updated);
                let mut last = None;
                for written in created.into_iter().chain(updated) {
                    last = last.max(written?);
                }
                for slice in deletes {
                    unless_gone(api(slice).delete(&slice.name_any(), &this_one(slice.uid())).await)?;
                }
                Ok(Applied::wrote((), SLICES, last))
            }
            Action::WriteEndpoints(endpoints) => {
                let api: Api<Endpoints> =
                    Api::namespaced(self.endpoints.clone(), &endpoints.namespace().unwrap_or_default());
                let written = match endpoints.metadata.resource_version {
                    None => api.create(&PostParams::default(), endpoints).await,
                    Some(_) => api.replace(&endpoints.name_any(), &PostParams::default(), endpoints).await,
                };
                Ok(Applied::wrote((), ENDPOINTS, outcome(written)?))
            }
            Action::DeleteEndpoints(endpoints) => {
                let api: Api<Endpoints> =
                    Api::namespaced(self.endpoints.clone(), &endpoints.namespace().unwrap_or_default());
                unless_gone(api.delete(&endpoints.name_any(), &this_one(endpoints.uid())).await)?;
                Ok(Applied::new(()))
            }
        }
    }
}
