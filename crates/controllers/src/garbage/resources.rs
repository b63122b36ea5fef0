//! Which resources there are to collect: everything that can be listed, watched and deleted, except events.

use std::sync::Arc;

use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};

/// One resource: how to reach it, and whether its objects live in namespaces.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) api: ApiResource,
    pub(super) namespaced: bool,
}

/// A shared [`Resource`]; equal when it names the same kind.
#[derive(Clone, Debug)]
pub(super) struct ResourceId(pub(super) Arc<Resource>);

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0.api.group, &other.0.api.kind)
    }
}

impl Eq for ResourceId {}

impl ResourceId {
    /// Whether this is `kind` of `group`. Versions are faces of one thing, so they do not count.
    pub(super) fn is(&self, group: &str, kind: &str) -> bool {
        self.0.api.group == group && self.0.api.kind == kind
    }

    /// Its objects in `namespace`; in all, or without one, if that is empty.
    pub(super) fn objects(&self, client: &kube::Client, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            Api::all_with(client.clone(), &self.0.api)
        } else {
            Api::namespaced_with(client.clone(), namespace, &self.0.api)
        }
    }
}

/// Asks the server what it serves.
pub(super) async fn discover(client: &kube::Client) -> kube::Result<Vec<ResourceId>> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let all = discovery.groups().flat_map(|group| group.recommended_resources());
    let collected = all.filter(|(api, can)| {
        let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
        api.kind != "Event" && needed.iter().all(|verb| can.supports_operation(verb))
    });
    let shared = collected.map(|(api, can)| Resource { api, namespaced: can.scope == Scope::Namespaced });
    Ok(shared.map(|resource| ResourceId(Arc::new(resource))).collect())
}
