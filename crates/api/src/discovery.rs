//! What a client learns before it asks for anything: groups, versions, resources, paths and schemas.
//!
//! Everything is derived from one [`Registry`], so the legacy and the aggregated answers cannot disagree.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kinds::{Kind, Registry, Subresource, group_version};

mod openapi;
mod paths;
mod schemas;
mod swagger;
mod usage;

pub use openapi::{Document, fingerprint, openapi_v3, openapi_v3_index};
pub use swagger::{OpenApiV2, protobuf as openapi_v2_protobuf};

/// The content type of the aggregated documents; clients decide by it.
pub const AGGREGATED_CONTENT_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Every served group and version, the core group first; of two versions the newer one, which clients prefer.
pub fn group_versions(registry: &Registry) -> Vec<(&str, &str)> {
    let kinds = registry.kinds().iter();
    let all: BTreeSet<_> = kinds.map(|kind| (kind.group.as_str(), Reverse(kind.version.as_str()))).collect();
    all.into_iter().map(|(group, version)| (group, version.0)).collect()
}

/// The group and version of what pods and nodes use. Nothing of it is stored, and it is in no [`Registry`].
pub const METRICS: (&str, &str) = ("metrics.k8s.io", "v1beta1");

/// Plural, kind, and whether it lives in a namespace.
const METRICS_KINDS: [(&str, &str, bool); 2] = [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)];
const METRICS_VERBS: [&str; 2] = ["get", "list"];

fn groups(registry: &Registry) -> BTreeSet<&str> {
    registry.kinds().iter().map(|kind| kind.group.as_str()).filter(|group| !group.is_empty()).collect()
}

fn kinds_of<'a>(registry: &'a Registry, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Kind> {
    let kinds = registry.kinds().iter().filter(move |kind| kind.group == group && kind.version == version);
    kinds.map(|kind| &**kind)
}

/// `GET /api`; `address` is where the server was reached.
pub fn api_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// `GET /apis`.
pub fn api_group_list(registry: &Registry) -> Value {
    let groups = groups(registry).into_iter().chain([METRICS.0]);
    let groups: Vec<Value> = groups.map(|group| group_entry(registry, group)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `GET /apis/{group}`.
pub fn api_group(registry: &Registry, group: &str) -> Option<Value> {
    let group = groups(registry).into_iter().chain([METRICS.0]).find(|g| *g == group)?;
    let mut entry = group_entry(registry, group);
    entry["kind"] = json!("APIGroup");
    entry["apiVersion"] = json!("v1");
    Some(entry)
}

fn group_entry(registry: &Registry, group: &str) -> Value {
    let versions: Vec<Value> = group_versions(registry)
        .into_iter()
        .chain([METRICS])
        .filter(|(g, _)| *g == group)
        .map(|(g, version)| json!({ "groupVersion": group_version(g, version), "version": version }))
        .collect();
    json!({ "name": group, "versions": versions, "preferredVersion": versions.first() })
}

/// `GET /api/v1`, `GET /apis/{group}/{version}`.
pub fn api_resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let metrics = METRICS_KINDS.iter().filter(|_| (group, version) == METRICS).map(|(plural, kind, namespaced)| {
        json!({ "name": plural, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": METRICS_VERBS })
    });
    let resources: Vec<Value> = kinds_of(registry, group, version)
        .flat_map(|kind| {
            let subresources = kind.subresources.iter().map(|sub| legacy_subresource(kind, sub));
            std::iter::once(legacy_resource(kind)).chain(subresources)
        })
        .chain(metrics)
        .collect();
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": group_version(group, version), "resources": resources,
    }))
}

fn legacy_resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    entry
}

fn legacy_subresource(kind: &Kind, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", kind.plural, sub.name), "singularName": "", "namespaced": kind.namespaced,
        "kind": sub.kind, "verbs": sub.verbs,
    });
    // Only where they differ from the list they stand in.
    if (&*sub.group, &*sub.version) != (&*kind.group, &*kind.version) {
        entry["group"] = json!(sub.group);
        entry["version"] = json!(sub.version);
    }
    entry
}

/// `GET /api`, aggregated.
pub fn aggregated_core(registry: &Registry) -> Value {
    aggregated(vec![json!({ "metadata": {}, "versions": aggregated_versions(registry, "") })])
}

/// `GET /apis`, aggregated.
pub fn aggregated_groups(registry: &Registry) -> Value {
    let items = groups(registry)
        .into_iter()
        .map(|group| json!({ "metadata": { "name": group }, "versions": aggregated_versions(registry, group) }))
        .chain([aggregated_metrics()])
        .collect();
    aggregated(items)
}

fn aggregated_metrics() -> Value {
    let resource = |(plural, kind, namespaced): &(&str, &str, bool)| {
        json!({
            "resource": plural, "responseKind": { "group": "", "version": "", "kind": kind },
            "scope": if *namespaced { "Namespaced" } else { "Cluster" }, "singularResource": "", "verbs": METRICS_VERBS,
        })
    };
    let resources: Vec<Value> = METRICS_KINDS.iter().map(resource).collect();
    let version = json!({ "version": METRICS.1, "freshness": "Current", "resources": resources });
    json!({ "metadata": { "name": METRICS.0 }, "versions": [version] })
}

fn aggregated(items: Vec<Value>) -> Value {
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_versions(registry: &Registry, group: &str) -> Vec<Value> {
    group_versions(registry)
        .into_iter()
        .filter(|(g, _)| *g == group)
        .map(|(group, version)| {
            let resources: Vec<Value> = kinds_of(registry, group, version).map(aggregated_resource).collect();
            json!({ "version": version, "freshness": "Current", "resources": resources })
        })
        .collect()
}

fn aggregated_resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "resource": kind.plural, "responseKind": response_kind(kind, &kind.group, &kind.version, &kind.kind),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        entry["categories"] = json!(kind.categories);
    }
    if !kind.subresources.is_empty() {
        entry["subresources"] = kind
            .subresources
            .iter()
            .map(|sub| {
                json!({
                    "subresource": sub.name, "verbs": sub.verbs,
                    "responseKind": response_kind(kind, &sub.group, &sub.version, &sub.kind),
                })
            })
            .collect();
    }
    entry
}

/// Group and version are left empty where they equal the enclosing ones.
fn response_kind(enclosing: &Kind, group: &str, version: &str, kind: &str) -> Value {
    if (group, version) == (enclosing.group.as_str(), enclosing.version.as_str()) {
        json!({ "group": "", "version": "", "kind": kind })
    } else {
        json!({ "group": group, "version": version, "kind": kind })
    }
}

#[cfg(test)]
mod tests;
