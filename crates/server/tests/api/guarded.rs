//! What no cluster can do without: nobody takes it away, and what is changed about it comes back at once.

use serde_json::{Value, json};
use store::{Key, Step};

use crate::harness::{Api, version};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
/// The API's own service, and what says where it leads.
const OWN: [&str; 3] = [
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/endpoints",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
];

fn service(name: &str, address: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "clusterIP": address, "ports": [{ "port": 80 }] } })
}

/// Waits until `path` shows an object that `wanted` likes.
async fn until(api: &Api, collection: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let listed = api.get(collection).await.expect(200);
    let found = listed["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name);
    if let Some(found) = found.filter(|found| wanted(found)) {
        return found.clone();
    }
    let mut events = api.watch(&format!("{collection}?watch=1&resourceVersion={}", version(&listed))).await;
    loop {
        let event = events.next().await.expect("another event");
        let object = &event["object"];
        if event["type"] != "DELETED" && object["metadata"]["name"] == name && wanted(object) {
            return object.clone();
        }
    }
}

#[tokio::test]
async fn the_first_address_is_the_apis_own() {
    let api = Api::start().await;
    let mut own = Some(format!("{SERVICES}/kubernetes"));
    // Whether or not its service is there at the moment.
    loop {
        let refused = api.post(SERVICES, &service("mine", "10.87.0.1")).await.expect(422);
        let message = "Service \"mine\" is invalid: spec.clusterIPs: Invalid value: [\"10.87.0.1\"]: \
                       failed to allocate IP 10.87.0.1: provided IP is already allocated";
        assert_eq!(refused["message"], message);
        assert_eq!(refused["details"]["causes"][0]["field"], "spec.clusterIPs");
        let Some(own) = own.take() else { break };
        api.delete(&own).await.expect(200);
    }
    api.post(SERVICES, &service("mine", "10.87.0.2")).await.expect(201);
    until(&api, SERVICES, "kubernetes", |own| own["spec"]["clusterIP"] == "10.87.0.1").await;
}

#[tokio::test]
async fn the_service_kubernetes_comes_back_when_it_is_deleted() {
    let api = Api::start().await;
    for collection in OWN {
        let before = api.get(&format!("{collection}/kubernetes")).await.expect(200);
        api.delete(&format!("{collection}/kubernetes")).await.expect(200);
        let after = until(&api, collection, "kubernetes", |_| true).await;
        assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
        for part in ["spec", "subsets", "endpoints", "ports", "addressType"] {
            assert_eq!(before[part], after[part], "{collection} {part}");
        }
        assert_eq!(before["metadata"]["labels"], after["metadata"]["labels"]);
    }
}

#[tokio::test]
async fn the_service_kubernetes_is_put_right_when_it_is_changed() {
    let api = Api::start().await;
    let changes = [
        json!({ "metadata": { "labels": { "mine": "stays", "provider": null } },
            "spec": { "type": "ExternalName", "externalName": "evil.example.com" } }),
        json!({ "metadata": { "labels": { "mine": "stays" } },
            "subsets": [{ "addresses": [{ "ip": "10.6.6.6" }], "ports": [{ "port": 1 }] }] }),
        json!({ "metadata": { "labels": { "mine": "stays", "kubernetes.io/service-name": null } },
            "endpoints": [{ "addresses": ["10.6.6.6"] }], "ports": [] }),
    ];
    for (collection, change) in OWN.into_iter().zip(changes) {
        let path = format!("{collection}/kubernetes");
        let before = api.get(&path).await.expect(200);
        let changed = api.patch(&path, &change).await.expect(200);
        let same = |object: &Value| {
            ["spec", "subsets", "endpoints", "ports", "addressType"].iter().all(|part| object[*part] == before[*part])
        };
        assert!(!same(&changed), "{collection}");
        let after = until(&api, collection, "kubernetes", same).await;
        let mut labels = before["metadata"]["labels"].clone();
        labels["mine"] = json!("stays");
        assert_eq!(after["metadata"]["labels"], labels, "people's own labels are theirs");
    }
}

#[tokio::test]
async fn range_of_services_is_an_object_that_comes_back_and_is_put_right() {
    const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
    let api = Api::start().await;
    let is_ready = |range: &Value| {
        let ready = &range["status"]["conditions"][0];
        range["spec"]["cidrs"] == json!(["10.87.0.0/16"]) && ready["type"] == "Ready" && ready["status"] == "True"
    };
    let path = format!("{RANGES}/kubernetes");
    let before = api.get(&path).await.expect(200);
    assert!(is_ready(&before), "{before}");
    let change = json!({ "metadata": { "labels": { "mine": "stays" } }, "status": { "conditions": [] } });
    api.patch(&format!("{path}/status"), &change).await.expect(200);
    let after = until(&api, RANGES, "kubernetes", is_ready).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    api.delete(&path).await.expect(200);
    let again = until(&api, RANGES, "kubernetes", is_ready).await;
    assert_ne!(again["metadata"]["uid"], before["metadata"]["uid"]);
}

#[tokio::test]
async fn a_start_finds_everything_in_order_and_writes_nothing() {
    let api = Api::start().await;
    let before = api.store.revision();
    let api = api.restart().await;
    assert_eq!(api.store.revision(), before);
    for collection in OWN {
        let own = api.get(&format!("{collection}/kubernetes")).await.expect(200);
        assert!(own["metadata"]["managedFields"].is_array());
    }
}

/// A store can hold what no request could have put there: one that was filled by an older server, for example.
#[tokio::test]
async fn a_start_survives_a_service_that_has_the_apis_address() {
    let api = Api::start().await;
    let made = api.post("/api/v1/namespaces/kube-public/services", &service("squatter", "10.87.0.9")).await.expect(201);
    let mut squatter = made;
    squatter["spec"]["clusterIP"] = json!("10.87.0.1");
    squatter["spec"]["clusterIPs"] = json!(["10.87.0.1"]);
    let (own, other) = (Key::new("services", "default", "kubernetes"), Key::new("services", "kube-public", "squatter"));
    for step in [Step::Put { key: other, value: squatter }, Step::Delete { key: own }] {
        api.store.transact(Vec::new(), vec![step]).await.unwrap();
    }
    let api = api.restart().await;
    let elsewhere = until(&api, SERVICES, "kubernetes", |own| own["spec"]["clusterIP"] != "10.87.0.1").await;
    assert!(elsewhere["spec"]["clusterIP"].as_str().is_some_and(|ip| ip.starts_with("10.87.")), "{elsewhere}");
    // The address goes back to its owner with the service that had it.
    api.delete("/api/v1/namespaces/kube-public/services/squatter").await.expect(200);
    let own = until(&api, SERVICES, "kubernetes", |own| own["spec"]["clusterIP"] == "10.87.0.1").await;
    assert_eq!(own["spec"]["clusterIPs"], json!(["10.87.0.1"]));
}

#[tokio::test]
async fn dns_service_has_the_tenth_address_and_leads_where_it_is_served() {
    const SYSTEM: &str = "/api/v1/namespaces/kube-system/services";
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    let api = Api::start().await;
    api.get(&format!("{SYSTEM}/kube-dns")).await.expect(404);
    let address = api.server.publish_dns(([10, 86, 0, 1], 53).into()).await;
    assert_eq!(address, Some([10, 87, 0, 10].into()));
    let own = api.get(&format!("{SYSTEM}/kube-dns")).await.expect(200);
    let ports = own["spec"]["ports"].as_array().unwrap().iter();
    let ports: Vec<_> = ports.map(|port| format!("{} {} {}", port["name"], port["protocol"], port["port"])).collect();
    assert_eq!(ports, ["\"dns\" \"UDP\" 53", "\"dns-tcp\" \"TCP\" 53"]);
    // It is kept from then on.
    api.delete(&format!("{SYSTEM}/kube-dns")).await.expect(200);
    until(&api, SYSTEM, "kube-dns", |own| own["spec"]["clusterIP"] == "10.87.0.10").await;
    api.patch(&format!("{SLICES}/kube-dns"), &json!({ "endpoints": [{ "addresses": ["10.6.6.6"] }] }))
        .await
        .expect(200);
    until(&api, SLICES, "kube-dns", |slice| slice["endpoints"][0]["addresses"] == json!(["10.86.0.1"])).await;
}

/// Somebody may have asked for the address before there was a DNS.
#[tokio::test]
async fn dns_service_has_another_address_while_somebody_has_its_own() {
    let api = Api::start().await;
    api.post(SERVICES, &service("squatter", "10.87.0.10")).await.expect(201);
    let address = api.server.publish_dns(([10, 86, 0, 1], 53).into()).await.unwrap();
    assert_ne!(address, std::net::IpAddr::from([10, 87, 0, 10]));
    api.delete(&format!("{SERVICES}/squatter")).await.expect(200);
    let system = "/api/v1/namespaces/kube-system/services";
    until(&api, system, "kube-dns", |own| own["spec"]["clusterIP"] == "10.87.0.10").await;
}

#[tokio::test]
async fn system_priority_classes_stay_as_they_are() {
    let api = Api::start().await;
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        let path = format!("{CLASSES}/{name}");
        let refused = api.delete(&path).await.expect(403);
        let message = format!(
            "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: this is a system priority class and cannot be \
             deleted"
        );
        assert_eq!(refused["message"], message);
        for change in [json!({ "value": 5 }), json!({ "globalDefault": true }), json!({ "preemptionPolicy": "Never" })]
        {
            let answer = api.patch(&path, &change).await;
            assert_eq!(answer.code, 422, "{change}: {}", answer.text);
        }
        assert_eq!(api.get(&path).await.expect(200)["value"], value);
    }
    // Of all classes, those that may go do.
    api.post(CLASSES, &json!({ "metadata": { "name": "mine" }, "value": 7 })).await.expect(201);
    api.delete(CLASSES).await.expect(200);
    let left = api.get(CLASSES).await.expect(200);
    let names: Vec<_> = left["items"].as_array().unwrap().iter().map(|class| &class["metadata"]["name"]).collect();
    assert_eq!(names, ["system-cluster-critical", "system-node-critical"]);
}

#[tokio::test]
async fn system_priority_classes_are_there_after_every_start() {
    let api = Api::start().await;
    let key = Key::new("priorityclasses.scheduling.k8s.io", "", "system-node-critical");
    api.store.transact(Vec::new(), vec![Step::Delete { key }]).await.unwrap();
    let api = api.restart().await;
    assert_eq!(api.get(&format!("{CLASSES}/system-node-critical")).await.expect(200)["value"], 2_000_001_000);
}
