//! Services and the pods behind them: slices, Endpoints, mirrors.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

async fn service(cluster: &Cluster, spec: Value) -> Value {
    let mut service = json!({ "metadata": { "name": "svc", "labels": { "team": "a" } },
        "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] } });
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    cluster.post(SERVICES, service).await.expect(201)
}

/// A ready pod `name` of the service at an address.
async fn ready_pod(cluster: &Cluster, name: &str, ip: &str) {
    cluster.running_pod(name, json!({ "labels": { "app": "web" } })).await;
    let status = json!({ "status": { "podIP": ip, "podIPs": [{ "ip": ip }] } });
    cluster.patch(&format!("{PODS}/{name}/status"), status).await.expect(200);
}

/// Waits until the slices of the service are as `wanted`, and answers them.
async fn slices(cluster: &Cluster, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let path = format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3Dsvc");
    let look = async {
        loop {
            let from = cluster.now().await;
            let list = cluster.get(&path).await.expect(200);
            let items = list["items"].as_array().unwrap().clone();
            if wanted(&items) {
                return items;
            }
            cluster.until_seen(SLICES, &from, |_, _| true).await;
        }
    };
    look.await
}

fn conditions(slice: &Value, pod: &str) -> Option<(bool, bool, bool)> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let own = endpoints.clone().find(|endpoint| endpoint["targetRef"]["name"] == pod)?;
    let word = |name: &str| own["conditions"][name].as_bool().unwrap();
    Some((word("ready"), word("serving"), word("terminating")))
}

/// [TR-1] [TR-2] [TR-3] [TR-9] A service without pods has one placeholder; a pod that is asked to leave is at once no longer ready,
/// and is listed until it has ended.
#[tokio::test]
async fn endpoint_of_a_pod_follows_it_from_ready_to_gone() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let made = service(&cluster, json!({ "selector": { "app": "web" } })).await;
    let empty = slices(&cluster, |all| all.len() == 1).await;
    assert_eq!(
        empty[0]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
        "endpointslice-controller.k8s.io"
    );
    assert_eq!(empty[0]["metadata"]["labels"]["team"], "a");
    assert_eq!(empty[0]["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    assert!(empty[0]["endpoints"].as_array().is_none_or(Vec::is_empty));
    ready_pod(&cluster, "p", "10.1.0.9").await;
    let is = |wanted| move |all: &[Value]| all.len() == 1 && conditions(&all[0], "p") == wanted;
    let listed = slices(&cluster, is(Some((true, true, false)))).await;
    assert_eq!(listed[0]["metadata"]["name"], empty[0]["metadata"]["name"], "the placeholder is filled");
    assert_eq!(listed[0]["ports"][0], json!({ "name": "http", "port": 8080, "protocol": "TCP" }));
    assert_eq!(listed[0]["endpoints"][0]["nodeName"], "n1");
    let old =
        cluster.until(&format!("{ENDPOINTS}/svc"), |one| one["subsets"][0]["addresses"][0]["ip"] == "10.1.0.9").await;
    assert_eq!(old["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"], "endpoint-controller");
    cluster.delete(&format!("{PODS}/p"), json!({})).await.expect(200);
    slices(&cluster, is(Some((false, true, true)))).await;
    cluster.until(&format!("{ENDPOINTS}/svc"), |one| one["subsets"].is_null()).await;
    cluster.report("p", "Running", false).await;
    slices(&cluster, is(Some((false, false, true)))).await;
    cluster.finish("p").await;
    slices(&cluster, is(None)).await;
    cluster.delete(&format!("{SERVICES}/svc"), json!({})).await.expect(200);
    cluster.until_gone(&format!("{ENDPOINTS}/svc")).await;
    slices(&cluster, <[Value]>::is_empty).await;
}

/// Endpoints that somebody keeps by hand for a service without a selector are mirrored, changed and taken away with them.
#[tokio::test]
async fn endpoints_kept_by_hand_are_mirrored() {
    let cluster = Cluster::start().await;
    service(&cluster, json!({})).await;
    let subset = |ip: &str| json!([{ "addresses": [{ "ip": ip }], "ports": [{ "name": "http", "port": 80 }] }]);
    let endpoints = json!({ "metadata": { "name": "svc" }, "subsets": subset("192.0.2.1") });
    cluster.post(ENDPOINTS, endpoints).await.expect(201);
    let at = |ip: &'static str| move |all: &[Value]| all.len() == 1 && all[0]["endpoints"][0]["addresses"][0] == ip;
    let mirrored = slices(&cluster, at("192.0.2.1")).await;
    let manager = &mirrored[0]["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"];
    assert_eq!(manager, "endpointslicemirroring-controller.k8s.io");
    cluster.patch(&format!("{ENDPOINTS}/svc"), json!({ "subsets": subset("192.0.2.2") })).await.expect(200);
    slices(&cluster, at("192.0.2.2")).await;
    cluster.delete(&format!("{ENDPOINTS}/svc"), json!({})).await.expect(200);
    slices(&cluster, <[Value]>::is_empty).await;
}
