//! Accounts that say which secrets their pods may use (`kubernetes.io/enforce-mountable-secrets`), and pods held to it.
//!
//! Every way into a pod counts: volumes, projected ones too, environments of every kind of container, and what images are
//! pulled with. Containers that are added to a running pod are judged when they come.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::policies::Arrival;
use crate::request::key;
use crate::state::{State, core_kind};

const ENFORCED: &str = "kubernetes.io/enforce-mountable-secrets";

/// Says why the account of a pod that is about to be stored does not let it have one of its secrets.
pub(crate) fn check(state: &State, arrival: &Arrival<'_>) -> Result<(), String> {
    let Arrival { kind, namespace, subresource, old, new: pod, .. } = *arrival;
    let is_new = old.is_none();
    let adds_containers = subresource == Some("ephemeralcontainers");
    if kind.collection() != "pods" || !(is_new || adds_containers) || api::pod::is_mirror(pod) {
        return Ok(());
    }
    let name = pod["spec"]["serviceAccountName"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
    let account = state.store.get(&key(core_kind("serviceaccounts"), namespace, name)).map(|account| account.value());
    let Some(account) = account.filter(|account| is_enforced(account)) else { return Ok(()) };
    let mountable = names(&account["secrets"]);
    let foreign = |name: &Value| name.as_str().filter(|name| !mountable.contains(name)).map(ToOwned::to_owned);
    // What a pod has already it keeps.
    let containers = if is_new { &CONTAINERS[..] } else { &CONTAINERS[2..] };
    let refused = if is_new { foreign_volume(pod, &foreign) } else { None };
    if let Some(refused) = refused.or_else(|| foreign_environment(pod, containers, &foreign)) {
        return Err(format!("{refused} is not allowed because service account {name} does not reference that secret"));
    }
    if !is_new {
        return Ok(());
    }
    let pulls = names(&account["imagePullSecrets"]);
    for (index, secret) in list(&pod["spec"]["imagePullSecrets"]).enumerate() {
        let secret = secret["name"].as_str().unwrap_or_default();
        if !pulls.contains(secret) {
            return Err(format!(
                "imagePullSecrets[{index}].name={secret:?} is not allowed because service account {name} does not \
                 reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

fn is_enforced(account: &Value) -> bool {
    let said = api::meta::annotations(account).find(|(key, _)| *key == ENFORCED).map(|(_, value)| value);
    said.is_some_and(|value| matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn names(list_of: &Value) -> BTreeSet<&str> {
    list(list_of).filter_map(|entry| entry["name"].as_str()).collect()
}

/// Where a pod has containers, and what one of them is called.
const CONTAINERS: [(&str, &str); 3] =
    [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")];

/// The first volume that needs a secret which is `foreign` to the account, as words of a sentence.
fn foreign_volume(pod: &Value, foreign: &dyn Fn(&Value) -> Option<String>) -> Option<String> {
    list(&pod["spec"]["volumes"]).find_map(|volume| {
        let projected = list(&volume["projected"]["sources"]).map(|source| &source["secret"]["name"]);
        let name = std::iter::once(&volume["secret"]["secretName"]).chain(projected).find_map(foreign)?;
        Some(format!("volume with secret.secretName={name:?}"))
    })
}

/// The same of the environment of containers.
fn foreign_environment(
    pod: &Value,
    containers: &[(&str, &str)],
    foreign: &dyn Fn(&Value) -> Option<String>,
) -> Option<String> {
    let all =
        containers.iter().flat_map(|(key, word)| list(&pod["spec"][*key]).map(move |container| (word, container)));
    all.into_iter().find_map(|(word, container)| {
        let own = container["name"].as_str().unwrap_or_default();
        let variable = list(&container["env"]).find_map(|variable| {
            let name = foreign(&variable["valueFrom"]["secretKeyRef"]["name"])?;
            Some((format!("envVar {}", variable["name"].as_str().unwrap_or_default()), name))
        });
        let source = || list(&container["envFrom"]).find_map(|source| foreign(&source["secretRef"]["name"]));
        let (way, name) = variable.or_else(|| source().map(|name| ("envFrom".to_owned(), name)))?;
        Some(format!("{word} {own} with {way} referencing secret.secretName={name:?}"))
    })
}
