//! The quality-of-service class: who gives way first when memory is short.

use serde_json::Value;

use super::list;
use crate::quantity::Quantity;

const COMPUTE: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed` when every container limits what it requests, in both resources; `BestEffort` when none says
/// anything; `Burstable` otherwise. Pod-level resources, where given, speak for the containers.
pub fn class(spec: &Value) -> &'static str {
    let holders: Vec<&Value> = if says_something(&spec["resources"]) {
        vec![&spec["resources"]]
    } else {
        let containers = list(spec, "initContainers").iter().chain(list(spec, "containers"));
        containers.map(|container| &container["resources"]).collect()
    };
    if !holders.iter().any(|resources| says_something(resources)) {
        "BestEffort"
    } else if holders.iter().all(|resources| is_guaranteed(resources)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn amount(resources: &Value, side: &str, name: &str) -> Option<Quantity> {
    resources[side][name].as_str()?.parse::<Quantity>().ok().filter(|q| !q.is_zero())
}

fn says_something(resources: &Value) -> bool {
    COMPUTE.iter().any(|name| ["limits", "requests"].iter().any(|side| amount(resources, side, name).is_some()))
}

fn is_guaranteed(resources: &Value) -> bool {
    COMPUTE.iter().all(|name| {
        let limit = amount(resources, "limits", name);
        limit.is_some() && amount(resources, "requests", name).is_none_or(|request| Some(request) == limit)
    })
}
