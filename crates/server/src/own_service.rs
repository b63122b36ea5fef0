//! The service `kubernetes`, by which pods find the API: the first address of the range, and where it leads.
//!
//! Its name and its address are the server's own. Whatever others make of it, or of its endpoints, is put right as soon
//! as the store tells; labels and annotations that people add stay.

use std::sync::Arc;

use api::{Kind, Status};
use futures::FutureExt as _;
use serde_json::{Value, json};
use store::Object;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::background::{keep_right, source};
use crate::bootstrap::{is_stored, known, make};
use crate::change::Outcome;
use crate::request::key;
use crate::state::{State, core_kind};
use crate::tickets::Held;
use crate::{admission, change};

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
/// Keeps the service and its endpoints as they should be until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let watch = |kind: &'static Kind, namespace| source(&state.store, kind.collection(), namespace, |_| ());
    let sources = vec![
        // Of every namespace: the service that goes may be the one that has our address.
        watch(core_kind("services"), ""),
        watch(core_kind("endpoints"), NAMESPACE),
        watch(known("discovery.k8s.io", "endpointslices"), NAMESPACE),
    ];
    let (clock, told) = (state.clock, Arc::new(Mutex::new(None)));
    let restore = move || {
        let (state, told) = (Arc::clone(&state), Arc::clone(&told));
        async move { restore(&state, &mut *told.lock().await).await }.boxed()
    };
    keep_right("kubernetes-service", (clock, stop), sources, restore).await;
}

/// Puts back what is missing or different. `told` is who has our address, so that a person is told once.
pub(crate) async fn restore(state: &State, told: &mut Option<String>) -> Result<(), Status> {
    service(state, told).await?;
    let (address, port) = (state.advertise.ip().to_string(), state.advertise.port());
    let endpoints = json!({
        "metadata": { "name": NAME, "labels": { "endpointslice.kubernetes.io/skip-mirror": "true" } },
        "subsets": [{ "addresses": [{ "ip": address }], "ports": [{ "name": "https", "port": port, "protocol": "TCP" }] }],
    });
    ensure(state, core_kind("endpoints"), endpoints).await?;
    let family = if state.advertise.is_ipv4() { "IPv4" } else { "IPv6" };
    let slice = json!({
        "metadata": { "name": NAME, "labels": { "kubernetes.io/service-name": NAME } },
        "addressType": family,
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "port": port, "protocol": "TCP" }],
    });
    ensure(state, known("discovery.k8s.io", "endpointslices"), slice).await
}

async fn service(state: &State, told: &mut Option<String>) -> Result<(), Status> {
    let kind = core_kind("services");
    is_stored(state, &key(kind, NAMESPACE, NAME)).await?;
    let own = state.store.get(&key(kind, NAMESPACE, NAME));
    let first = state.service_range.first().to_string();
    let address = if own.as_deref().is_some_and(|own| has(own, &first)) {
        Some(first)
    } else {
        // Nobody is given this address; only a store that was filled in another way can have it somewhere else.
        let all = state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default();
        let holder = all.iter().find(|service| service.key != key(kind, NAMESPACE, NAME) && has(service, &first));
        let holder = holder.map(|holder| format!("{}/{}", holder.key.namespace, holder.key.name));
        if let Some(service) = holder.as_deref().filter(|_| *told != holder) {
            tracing::warn!(
                service,
                address = first,
                "this service has the address that is reserved for the API's own \
                service, default/kubernetes, which has another one until it is deleted"
            );
        }
        *told = holder;
        let stored = || own.as_deref().and_then(|own| own.value()["spec"]["clusterIP"].as_str().map(ToOwned::to_owned));
        if told.is_none() { Some(first) } else { stored().filter(|address| !matches!(&**address, "" | "None")) }
    };
    let mut spec = json!({
        "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": state.advertise.port() }],
    });
    if let Some(address) = address {
        spec["clusterIPs"] = json!([&address]);
        spec["clusterIP"] = json!(address);
    }
    let labels = json!({ "component": "apiserver", "provider": "kubernetes" });
    let wanted = json!({ "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": labels }, "spec": spec });
    let Some(own) = own else { return make(state, kind, NAMESPACE, wanted).await };
    if is_right(&own, &wanted) {
        return Ok(());
    }
    // What has no right address gets any that is free.
    let mut held = Held::of(state, kind, NAMESPACE, None, false).await;
    let adjusted = change::modify_holding(state, kind, &own.key, false, &mut held, |current| {
        let mut allocated = wanted.clone();
        admission::allocate(state, kind, &mut allocated, Some(&wanted))?;
        Ok(put_right(current.to_value(), &allocated))
    });
    unless_gone(adjusted.await)
}

fn has(service: &Object, address: &str) -> bool {
    let value = service.value();
    let all = value["spec"]["clusterIPs"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).any(|own| own == address)
}

/// Makes `wanted` in its namespace, or makes the one that is there like it.
async fn ensure(state: &State, kind: &Arc<Kind>, wanted: Value) -> Result<(), Status> {
    let key = key(kind, NAMESPACE, NAME);
    is_stored(state, &key).await?;
    match state.store.get(&key) {
        None => make(state, kind, NAMESPACE, wanted).await,
        Some(found) if is_right(&found, &wanted) => Ok(()),
        Some(_) => adjust(state, kind, &wanted).await,
    }
}

fn is_right(found: &Object, wanted: &Value) -> bool {
    *found.value() == put_right(found.to_value(), wanted)
}

/// Makes the one that is there like `wanted`.
async fn adjust(state: &State, kind: &Kind, wanted: &Value) -> Result<(), Status> {
    let key = key(kind, NAMESPACE, NAME);
    let changed = change::modify(state, kind, &key, false, |current| Ok(put_right(current.to_value(), wanted)));
    unless_gone(changed.await)
}

/// What is deleted in between is told as well, and made anew then.
fn unless_gone(changed: Result<Outcome, Status>) -> Result<(), Status> {
    match changed {
        Err(status) if status.code == 404 => Ok(()),
        changed => changed.map(|_| ()),
    }
}

/// `value` with everything that `wanted` says, and nothing else beside it in what is not metadata.
fn put_right(mut value: Value, wanted: &Value) -> Value {
    for (name, part) in wanted.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata") {
        value[name] = part.clone();
    }
    let labels = wanted["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let stored = &mut value["metadata"]["labels"];
    if !stored.is_object() {
        *stored = json!({});
    }
    if let Some(stored) = stored.as_object_mut() {
        stored.extend(labels);
    }
    value
}
