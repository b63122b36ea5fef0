//! What a new or changed object needs to know of others: a pod's priority and account, a service's address.
//!
//! Everything that can be decided from the object alone is `api`'s.

use api::rules::allocation::{self, Taken};
use api::{Kind, Status, rules};
use serde_json::Value;
use tokio::sync::MutexGuard;

use crate::random;
use crate::request::key;
use crate::state::{State, core_kind};

/// Before a new object is filled in and judged.
pub(crate) fn before_create(state: &State, kind: &Kind, namespace: &str, object: &mut Value) -> Result<(), Status> {
    if kind.collection() != "pods" {
        return Ok(());
    }
    let refuse = |object: &Value, text: &str| Status::forbidden(kind, api::meta::name(object), text);
    let class = priority_class(state, object["spec"]["priorityClassName"].as_str().unwrap_or_default());
    let class = class.map(|class| class.value());
    let prioritised = rules::prioritise(object, class.as_deref());
    prioritised.map_err(|text| refuse(object, &text))?;
    if rules::is_mirror(object) {
        return Ok(());
    }
    account(state, namespace, object).map_err(|text| refuse(object, &text))
}

/// The class called `name`; without a name, the cluster's default if there is one.
fn priority_class(state: &State, name: &str) -> Option<std::sync::Arc<store::Object>> {
    let classes = api::find("scheduling.k8s.io", "v1", "priorityclasses")?;
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
            return Ok(());
        }
        return Err(format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"));
    };
    let secrets = &account.value()["imagePullSecrets"];
    let own = spec["imagePullSecrets"].as_array().is_some_and(|own| !own.is_empty());
    if !own && secrets.as_array().is_some_and(|secrets| !secrets.is_empty()) && pod["spec"].is_object() {
        pod["spec"]["imagePullSecrets"] = secrets.clone();
    }
    Ok(())
}

/// Held while an address is chosen and stored, so that no two services choose the same one. Other kinds need none.
pub(crate) async fn allocating<'a>(state: &'a State, kind: &Kind) -> Option<MutexGuard<'a, ()>> {
    if kind.collection() == "services" { Some(state.allocating.lock().await) } else { None }
}

/// Gives a service the address and ports it needs; the caller holds [`allocating`].
pub(crate) fn allocate(state: &State, kind: &Kind, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    if kind.collection() != "services" {
        return Ok(());
    }
    let mut taken = Taken::default();
    for service in state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default() {
        taken.add(&service.value());
    }
    let causes = allocation::allocate(object, old, &taken, state.service_range, random::number());
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(kind, api::meta::name(object), causes)) }
}
