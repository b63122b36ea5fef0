//! What a new or changed object needs to know of others: a pod's priority and account, a service's address.
//!
//! Everything that can be decided from the object alone is `api`'s.

use api::quantity::Quantity;
use api::rules::allocation;
use api::{Kind, Status, rules};
use serde_json::{Value, json};

use crate::random;
use crate::request::key;
use crate::state::{State, core_kind};

/// Before a new object is filled in and judged.
pub(crate) fn before_create(state: &State, kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    if kind.collection() == "persistentvolumeclaims" {
        take_default_class(state, object);
    }
    if kind.collection() != "pods" {
        return one_default(state, kind, object);
    }
    let refuse = |object: &Value, text: &str| Status::forbidden(kind, api::meta::name(object), text);
    let class = priority_class(state, object["spec"]["priorityClassName"].as_str().unwrap_or_default());
    let class = class.map(|class| class.value());
    let prioritised = rules::prioritise(object, class.as_deref());
    prioritised.map_err(|text| refuse(object, &text))?;
    let runtime = object["spec"]["runtimeClassName"].as_str().filter(|name| !name.is_empty());
    let runtimes = api::built_in("node.k8s.io", "v1", "runtimeclasses");
    let runtime = runtimes.zip(runtime).and_then(|(kind, name)| state.store.get(&key(kind, "", name)));
    let runtime = runtime.map(|class| class.value());
    rules::take_runtime_class(object, runtime.as_deref()).map_err(|text| refuse(object, &text))?;
    if api::pod::is_mirror(object) {
        return Ok(());
    }
    account(state, namespace, object).map_err(|text| refuse(object, &text))
}

/// The storage class of claims that name none: the youngest that is marked, then by name.
fn default_class(state: &State) -> Option<String> {
    let classes = api::built_in("storage.k8s.io", "v1", "storageclasses")?;
    let all = state.store.list(classes.collection(), "", None).ok()?.items;
    let marked =
        all.into_iter().filter(|class| class.value()["metadata"]["annotations"][api::volume::DEFAULT_CLASS] == "true");
    let born = |class: &store::Object| class.value()["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    let youngest = marked.reduce(|best, other| if born(&other) > born(&best) { other } else { best });
    youngest.map(|class| class.key.name.to_string())
}

/// A claim that says nothing of a class gets the cluster's; one that says "none" does not.
fn take_default_class(state: &State, claim: &mut Value) {
    let beta = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    if claim["spec"].is_object()
        && claim["spec"]["storageClassName"].is_null()
        && beta.is_null()
        && let Some(class) = default_class(state)
    {
        claim["spec"]["storageClassName"] = class.into();
    }
}

/// A bound claim may ask for more where its class lets volumes grow; a claim that is not bound asks for whatever it likes.
pub(crate) fn may_grow(state: &State, kind: &Kind, old: &Value, new: &Value) -> Result<(), Status> {
    if kind.collection() != "persistentvolumeclaims" || old["status"]["phase"] != "Bound" {
        return Ok(());
    }
    let asked = |claim: &Value| claim["spec"]["resources"]["requests"]["storage"].as_str()?.parse::<Quantity>().ok();
    let (Some(before), Some(after)) = (asked(old), asked(new)) else { return Ok(()) };
    if after <= before {
        return Ok(());
    }
    let class = new["spec"]["storageClassName"].as_str().filter(|name| !name.is_empty());
    let classes = api::built_in("storage.k8s.io", "v1", "storageclasses");
    let class = classes.zip(class).and_then(|(kind, name)| state.store.get(&key(kind, "", name)));
    if class.is_some_and(|class| class.value()["allowVolumeExpansion"] == Value::Bool(true)) {
        return Ok(());
    }
    let text = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                support resize";
    Err(Status::forbidden(kind, api::meta::name(new), text))
}

/// Of all priority classes one may be everybody's. Also asked of updates.
pub(crate) fn one_default(state: &State, kind: &Kind, object: &Value) -> Result<(), Status> {
    if kind.collection() != "priorityclasses.scheduling.k8s.io" || object["globalDefault"] != Value::Bool(true) {
        return Ok(());
    }
    let name = api::meta::name(object);
    match priority_class(state, "").filter(|class| *class.key.name != *name) {
        None => Ok(()),
        Some(other) => {
            let text =
                format!("PriorityClass {} is already marked as default. Only one default can exist", other.key.name);
            Err(Status::forbidden(kind, name, &text))
        }
    }
}

/// The class called `name`; without a name, the cluster's default if there is one.
fn priority_class(state: &State, name: &str) -> Option<std::sync::Arc<store::Object>> {
    let classes = api::built_in("scheduling.k8s.io", "v1", "priorityclasses")?;
    if !name.is_empty() {
        return state.store.get(&key(classes, "", name));
    }
    let all = state.store.list(classes.collection(), "", None).ok()?.items;
    all.into_iter()
        .filter(|class| class.value()["globalDefault"] == Value::Bool(true))
        .min_by_key(|class| class.value()["value"].as_i64())
}

/// A pod needs its account, and pulls images with the account's secrets. The default account is on its way wherever
/// it is missing, so it is not waited for.
fn account(state: &State, namespace: &str, pod: &mut Value) -> Result<(), String> {
    let spec = &pod["spec"];
    let named =
        ["serviceAccountName", "serviceAccount"].iter().find_map(|key| spec[*key].as_str().filter(|n| !n.is_empty()));
    let name = named.unwrap_or("default").to_owned();
    let Some(account) = state.store.get(&key(core_kind("serviceaccounts"), namespace, &name)) else {
        if name == "default" {
            mount_access(state, &Value::Null, pod);
            return Ok(());
        }
        return Err(format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"));
    };
    let account = account.value();
    let secrets = &account["imagePullSecrets"];
    let own = spec["imagePullSecrets"].as_array().is_some_and(|own| !own.is_empty());
    if !own && secrets.as_array().is_some_and(|secrets| !secrets.is_empty()) && pod["spec"].is_object() {
        pod["spec"]["imagePullSecrets"] = secrets.clone();
    }
    mount_access(state, &account, pod);
    Ok(())
}

/// Where programs look for their account's token.
const ACCESS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Asked for by the volume; the odd seconds tell these tokens from others.
const ACCESS_SECONDS: i64 = 3607;

/// Gives every container its account's token, the CA and the namespace, unless the pod or the account says no. A server
/// that has no CA to tell leaves it: a pod would wait for that file for ever.
fn mount_access(state: &State, account: &Value, pod: &mut Value) {
    let said = pod["spec"]["automountServiceAccountToken"].as_bool();
    let wanted = said.or_else(|| account["automountServiceAccountToken"].as_bool()).unwrap_or(true);
    if !wanted || api::pod::is_mirror(pod) || state.root_ca.get().is_none() {
        return;
    }
    let volume = format!("kube-api-access-{}", random::suffix());
    let mut mounted = false;
    for key in ["initContainers", "containers"] {
        // Not by index: that would leave an explicit null where the pod says nothing, which reads back as a change.
        let containers = pod["spec"].get_mut(key).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|c| c.is_object()) {
            let mounts = container["volumeMounts"].take();
            let mut mounts = mounts.as_array().cloned().unwrap_or_default();
            if !mounts.iter().any(|mount| mount["mountPath"] == ACCESS) {
                mounts.push(json!({ "name": volume, "mountPath": ACCESS, "readOnly": true }));
                mounted = true;
            }
            container["volumeMounts"] = Value::Array(mounts);
        }
    }
    if !mounted {
        return;
    }
    let sources = json!([
        { "serviceAccountToken": { "path": "token", "expirationSeconds": ACCESS_SECONDS } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        { "downwardAPI": { "items": [
            { "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } },
        ] } },
    ]);
    let access = json!({ "name": volume, "projected": { "defaultMode": 0o644, "sources": sources } });
    match pod["spec"]["volumes"].as_array_mut() {
        Some(volumes) => volumes.push(access),
        None => pod["spec"]["volumes"] = json!([access]),
    }
}

/// A node keeps new pods away, or lets them come, in the same write that says how it is.
pub(crate) fn taint(state: &State, kind: &Kind, old: Option<&Value>, new: &mut Value) {
    if kind.collection() == "nodes" {
        rules::taint_by_condition(old, new, state.now());
    }
}

/// Gives a service the address and ports it needs; the caller holds the ticket of services ([`crate::tickets`]).
pub(crate) fn allocate(state: &State, kind: &Kind, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    if kind.collection() != "services" {
        return Ok(());
    }
    let causes = state
        .service_allocations
        .ask(&state.store, |taken| allocation::allocate(object, old, taken, state.service_range, random::number()));
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(kind, api::meta::name(object), causes)) }
}
