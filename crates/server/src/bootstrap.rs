//! The objects every cluster has from its first start (api-surface 22). What a person changes is left alone, except
//! what only the server knows: where it is reached.

use api::{Kind, Status, rules};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::change;
use crate::create::{self, Creation};
use crate::namespaces;
use crate::rbac;
use crate::request::key;
use crate::state::{State, core_kind};

/// Recorded as the writer of what the server makes by itself.
pub(crate) const MANAGER: &str = "adieu";

pub(crate) async fn run(state: &State) -> Result<(), Status> {
    namespaces::bootstrap(state).await?;
    priority_classes(state).await?;
    rbac::bootstrap(state).await?;
    own_service(state).await
}

/// Creates an object unless it is there, or its namespace leaves.
pub(crate) async fn make(state: &State, kind: &'static Kind, namespace: &str, value: Value) -> Result<(), Status> {
    if state.store.get(&key(kind, namespace, api::meta::name(&value))).is_some() {
        return Ok(());
    }
    let creation = Creation { kind, namespace, manager: Some(MANAGER), dry_run: false };
    match create::create(state, &creation, value, &mut Vec::new()).await {
        Ok(_) => Ok(()),
        Err(status) if matches!(status.code, 403 | 404 | 409) => Ok(()),
        Err(status) => Err(status),
    }
}

async fn priority_classes(state: &State) -> Result<(), Status> {
    let kind = known("scheduling.k8s.io", "priorityclasses");
    let classes = rules::SYSTEM_CLASSES.map(|(name, value, description)| {
        make(state, kind, "", json!({ "metadata": { "name": name }, "value": value, "description": description }))
    });
    try_join_all(classes).await.map(|_| ())
}

/// A row of the table that is always there.
pub(crate) fn known(group: &str, plural: &str) -> &'static Kind {
    api::find(group, "v1", plural).expect("the table of kinds has what the server itself makes")
}

/// The service `kubernetes`, by which pods find the API: the first address of the range, and where it leads.
async fn own_service(state: &State) -> Result<(), Status> {
    let (address, port) = (state.advertise.ip().to_string(), state.advertise.port());
    let metadata = || json!({ "name": "kubernetes", "labels": { "component": "apiserver", "provider": "kubernetes" } });
    let service = json!({ "metadata": metadata(), "spec": {
        "type": "ClusterIP", "clusterIP": state.service_range.first().to_string(),
        "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
    }});
    ensure(state, core_kind("services"), service, "/spec/ports").await?;
    let endpoints = json!({
        "metadata": { "name": "kubernetes", "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } },
        "subsets": [{ "addresses": [{ "ip": address }], "ports": [{ "name": "https", "port": port, "protocol": "TCP" }] }],
    });
    ensure(state, core_kind("endpoints"), endpoints, "/subsets").await?;
    let family = if state.advertise.is_ipv4() { "IPv4" } else { "IPv6" };
    let slice = json!({
        "metadata": { "name": "kubernetes", "labels": { "kubernetes.io/service-name": "kubernetes" } },
        "addressType": family,
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": port, "protocol": "TCP" }],
    });
    let slices = known("discovery.k8s.io", "endpointslices");
    ensure(state, slices, slice.clone(), "/endpoints").await?;
    ensure(state, slices, slice, "/ports").await
}

/// Makes `value` in `default`, or brings the one part of it that moves with the server up to date.
async fn ensure(state: &State, kind: &'static Kind, value: Value, moving: &str) -> Result<(), Status> {
    let key = key(kind, "default", api::meta::name(&value));
    let wanted = value.pointer(moving).cloned().unwrap_or_default();
    if state.store.get(&key).is_none() {
        return make(state, kind, "default", value).await;
    }
    change::modify(state, kind, &key, false, |current| {
        let mut new = current.to_value();
        if let Some(part) = new.pointer_mut(moving) {
            *part = wanted.clone();
        }
        Ok(new)
    })
    .await
    .map(|_| ())
}
