//! Load balancers of machines that have none: a Service of that type is reached at the addresses of the nodes themselves.
//!
//! [`plan`] decides which addresses; here they are written into the Service's status, and the proxy of each node takes what
//! comes to its own. No pods and no finalizers: a Service that is gone leaves nothing behind. Services with a
//! `loadBalancerClass` are somebody else's.

mod plan;

use frame::{Applied, Effects, Limits};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use tracing::info;

use crate::clients::Clients;
use crate::feed::{Feed, revision};
use crate::pod_deletion::unless_gone;
use crate::settings::Settings;
use plan::{Input, Key, LoadBalancers, WriteStatus};

const ACCOUNT: &str = "service-controller";
const SERVICES: &str = "services";

/// Follows Services until its feeds end. Followers are `tasks`.
pub(crate) fn run(
    clients: &Clients,
    settings: Settings,
    nodes: &mut Feed<Node>,
    tasks: &mut JoinSet<()>,
) -> impl Future<Output = ()> + Send + use<> {
    let mut services = Feed::new(SERVICES, Api::<Service>::all(clients.read()));
    let mut slices = Feed::new("endpointslices", Api::<EndpointSlice>::all(clients.read()));
    let sources = vec![nodes.source(Input::Nodes), services.source(Input::Services), slices.source(Input::Slices)];
    services.start(tasks);
    slices.start(tasks);
    let effects = LoadBalancerEffects { client: clients.act(ACCOUNT) };
    frame::run(ACCOUNT, LoadBalancers::default(), effects, sources, Limits::default(), settings.clock)
}

struct LoadBalancerEffects {
    client: kube::Client,
}

impl Effects<LoadBalancers> for LoadBalancerEffects {
    type Error = kube::Error;

    async fn apply(&self, (namespace, name): &Key, action: &WriteStatus) -> kube::Result<Applied<()>> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let ingress: Vec<_> = action.addresses.iter().map(|ip| json!({ "ip": ip, "ipMode": "VIP" })).collect();
        let patch = json!({
            "metadata": { "uid": action.uid, "resourceVersion": action.resource_version },
            "status": { "loadBalancer": { "ingress": ingress }, "conditions": action.conditions },
        });
        let written = services.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        // Whoever wrote it meanwhile, or removed it: the watch tells.
        let written = unless_gone(written)?;
        if written.is_some() {
            info!(namespace, service = name, addresses = ?action.addresses, "told where the load balancer is");
        }
        Ok(Applied::wrote((), SERVICES, revision(written.and_then(|service| service.resource_version()))))
    }
}
