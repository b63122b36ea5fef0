//! Objects of the API told in steps, and what names lead to after each.

#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn service(name: &str, spec: Value) -> ApiService {
    read(json!({ "metadata": { "namespace": "shop", "name": name }, "spec": spec }))
}

fn slice(name: &str, service: &str, endpoints: Value) -> EndpointSlice {
    read(json!({
        "metadata": { "namespace": "shop", "name": name, "labels": { SERVICE_NAME: service } },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }, { "name": "", "port": 9 }],
    }))
}

fn pod(name: &str, phase: &str, address: &str) -> Pod {
    read(json!({
        "metadata": { "namespace": "shop", "name": name },
        "status": { "phase": phase, "podIP": address, "podIPs": [{ "ip": address }] },
    }))
}

fn headless() -> Value {
    json!({ "clusterIP": "None", "clusterIPs": ["None"], "ports": [{ "name": "http", "port": 80 }] })
}

fn empty() -> Cluster {
    let mut cluster = Cluster::new(PodRecords::Verified);
    cluster.hear(Event::Service(Change::Listed(vec![], None)));
    cluster.hear(Event::Slice(Change::Listed(vec![], None)));
    cluster.hear(Event::Pod(Change::Listed(vec![], None)));
    assert_eq!(cluster.known(), None, "namespaces are not listed yet");
    cluster.hear(Event::Namespace(Change::Listed(vec![], None)));
    cluster
}

/// Address and name of everybody behind a headless Service.
fn behind(cluster: &Cluster, name: &str) -> Vec<(String, Option<String>)> {
    let Some(service) = cluster.known().unwrap().service("shop", name) else { return vec![] };
    let ServiceKind::Headless(endpoints) = &service.kind else { panic!("{service:?}") };
    endpoints.iter().map(|endpoint| (endpoint.address.to_string(), endpoint.hostname.clone())).collect()
}

fn at(addresses: &[&str]) -> Vec<(String, Option<String>)> {
    addresses.iter().map(|address| (address.to_string(), None)).collect()
}

/// [DN-2] [DN-3] [DN-26] What a slice says of an endpoint is what is told of it from then on.
#[test]
fn headless_service_tells_of_endpoints_that_are_ready_and_of_all_if_it_says_so() {
    let mut cluster = empty();
    cluster.hear(Event::Service(Change::Changed(service("db", headless()))));
    let three = |leaving: bool| {
        json!([
            { "addresses": ["10.86.0.7"], "conditions": { "ready": !leaving, "serving": true, "terminating": leaving } },
            { "addresses": ["10.86.0.8"] },
            { "addresses": ["10.86.0.9"], "conditions": { "ready": false } },
        ])
    };
    cluster.hear(Event::Slice(Change::Changed(slice("db-1", "db", three(false)))));
    assert_eq!(behind(&cluster, "db"), at(&["10.86.0.7", "10.86.0.8"]));
    cluster.hear(Event::Slice(Change::Changed(slice("db-1", "db", three(true)))));
    assert_eq!(behind(&cluster, "db"), at(&["10.86.0.8"]), "one that leaves is not told of");
    let mut all = headless();
    all["publishNotReadyAddresses"] = true.into();
    cluster.hear(Event::Service(Change::Changed(service("db", all))));
    assert_eq!(behind(&cluster, "db"), at(&["10.86.0.7", "10.86.0.8", "10.86.0.9"]));
    cluster.hear(Event::Slice(Change::Removed(slice("db-1", "db", json!([])))));
    assert_eq!(behind(&cluster, "db"), at(&[]));
    cluster.hear(Event::Service(Change::Removed(service("db", headless()))));
    assert_eq!(cluster.known().unwrap().service("shop", "db"), None);
}

/// [DN-27] [TR-92]
#[test]
fn pod_that_asks_for_it_keeps_its_record_until_it_is_gone() {
    let mut cluster = empty();
    let kept = |cluster: &Cluster| match &cluster.known().unwrap().service("shop", "db").unwrap().kind {
        ServiceKind::Headless(endpoints) => endpoints.iter().map(|endpoint| endpoint.by_name_only).collect(),
        ServiceKind::Addresses(_) | ServiceKind::External(_) => vec![],
    };
    let mut keeping = pod("db-0", "Running", "10.86.0.7");
    keeping.metadata.annotations = Some([(KEEP_POD_RECORD.to_owned(), "true".to_owned())].into());
    cluster.hear(Event::Service(Change::Changed(service("db", headless()))));
    let endpoint = |is_leaving: bool| {
        json!([{
            "addresses": ["10.86.0.7"], "hostname": "db-0", "targetRef": { "kind": "Pod", "namespace": "shop", "name": "db-0" },
            "conditions": { "ready": !is_leaving, "terminating": is_leaving },
        }])
    };
    cluster.hear(Event::Pod(Change::Changed(keeping.clone())));
    cluster.hear(Event::Slice(Change::Changed(slice("a", "db", endpoint(false)))));
    assert_eq!(kept(&cluster), [false]);
    cluster.hear(Event::Slice(Change::Changed(slice("a", "db", endpoint(true)))));
    assert_eq!(kept(&cluster), [true]);
    cluster.hear(Event::Pod(Change::Changed(pod("db-0", "Running", "10.86.0.7"))));
    assert_eq!(kept(&cluster), [false; 0], "it asks for it no longer");
    cluster.hear(Event::Pod(Change::Listed(vec![keeping.clone()], None)));
    assert_eq!(kept(&cluster), [true]);
    cluster.hear(Event::Pod(Change::Removed(keeping)));
    assert_eq!(kept(&cluster), [false; 0]);
}

#[test]
fn slices_of_a_service_count_together_and_one_that_moves_leaves_its_former_service() {
    let mut cluster = empty();
    // Slices may be told before their Service.
    cluster.hear(Event::Slice(Change::Changed(slice("a", "db", json!([{ "addresses": ["10.86.0.7"] }])))));
    cluster.hear(Event::Slice(Change::Changed(slice(
        "b",
        "db",
        json!([{ "addresses": ["10.86.0.8"], "hostname": "DB-1" }]),
    ))));
    cluster.hear(Event::Service(Change::Changed(service("db", headless()))));
    cluster.hear(Event::Service(Change::Changed(service("other", headless()))));
    assert_eq!(behind(&cluster, "db").len(), 2);
    let named = cluster.known().unwrap().name_of("10.86.0.8".parse().unwrap());
    assert_eq!(named, Some(("shop", "db", Some("db-1"))));
    cluster.hear(Event::Slice(Change::Changed(slice("b", "other", json!([{ "addresses": ["10.86.0.8"] }])))));
    assert_eq!((behind(&cluster, "db"), behind(&cluster, "other")), (at(&["10.86.0.7"]), at(&["10.86.0.8"])));
    assert_eq!(cluster.known().unwrap().name_of("10.86.0.8".parse().unwrap()), None, "it has no host name there");
    // A list is all there is.
    cluster
        .hear(Event::Slice(Change::Listed(vec![slice("c", "other", json!([{ "addresses": ["10.86.0.9"] }]))], None)));
    assert_eq!((behind(&cluster, "db"), behind(&cluster, "other")), (at(&[]), at(&["10.86.0.9"])));
    cluster.hear(Event::Service(Change::Listed(vec![service("other", headless())], None)));
    assert_eq!(cluster.known().unwrap().service("shop", "db"), None);
}

/// [DN-10] The record follows the type of the Service.
#[test]
fn service_that_changes_its_type_leads_elsewhere_at_once() {
    let mut cluster = empty();
    let kind = |cluster: &Cluster| cluster.known().unwrap().service("shop", "web").unwrap().kind.clone();
    cluster.hear(Event::Service(Change::Changed(service(
        "web",
        json!({ "type": "ExternalName", "externalName": "example.org" }),
    ))));
    assert_eq!(kind(&cluster), ServiceKind::External("example.org".to_owned()));
    let of_its_own = json!({ "type": "ClusterIP", "clusterIP": "10.87.0.9", "clusterIPs": ["10.87.0.9"] });
    cluster.hear(Event::Service(Change::Changed(service("web", of_its_own))));
    assert_eq!(kind(&cluster), ServiceKind::Addresses(vec!["10.87.0.9".parse().unwrap()]));
    assert_eq!(cluster.known().unwrap().name_of("10.87.0.9".parse().unwrap()), Some(("shop", "web", None)));
    cluster.hear(Event::Service(Change::Changed(service("web", headless()))));
    assert_eq!(kind(&cluster), ServiceKind::Headless(vec![]));
    assert_eq!(cluster.known().unwrap().name_of("10.87.0.9".parse().unwrap()), None);
}

#[test]
fn pod_has_a_record_for_as_long_as_it_has_its_address() {
    let zone = crate::Zone::new("cluster.local", vec![]).unwrap();
    let has = |cluster: &Cluster| cluster.known().unwrap().pod_called(&zone, "shop", "10-86-0-7").is_some();
    let mut cluster = empty();
    cluster.hear(Event::Pod(Change::Changed(pod("old", "Running", "10.86.0.7"))));
    cluster.hear(Event::Pod(Change::Changed(pod("new", "Running", "10.86.0.7"))));
    assert!(has(&cluster));
    cluster.hear(Event::Pod(Change::Changed(pod("old", "Succeeded", "10.86.0.7"))));
    assert!(has(&cluster), "another has it now");
    cluster.hear(Event::Pod(Change::Removed(pod("new", "Running", "10.86.0.7"))));
    assert!(!has(&cluster) && !cluster.known().unwrap().has_namespace("shop"));
    cluster.hear(Event::Pod(Change::Changed(pod("new", "Running", "10.86.0.7"))));
    cluster.hear(Event::Pod(Change::Listed(vec![], None)));
    assert!(!has(&cluster));
}

#[test]
fn namespace_is_known_while_it_is_there() {
    let namespace = |name: &str| -> PartialObjectMeta<Namespace> {
        read(json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": { "name": name } }))
    };
    let mut cluster = empty();
    cluster.hear(Event::Namespace(Change::Changed(namespace("shop"))));
    assert!(cluster.known().unwrap().has_namespace("shop"));
    cluster.hear(Event::Namespace(Change::Listed(vec![namespace("other")], None)));
    assert!(!cluster.known().unwrap().has_namespace("shop"));
    cluster.hear(Event::Namespace(Change::Removed(namespace("other"))));
    assert!(!cluster.known().unwrap().has_namespace("other"));
}
