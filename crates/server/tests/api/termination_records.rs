//! Records of how pods ended: who may write them, who asked for the end, and what kubectl shows.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Api, pod};

const DEFAULT: &str = "/api/v1/namespaces/default";
const RECORDS: &str = "/apis/adieu.dev/v1alpha1/namespaces/default/terminationrecords";
const NOTE: &str = "adieu.dev/deletion-requests";

fn record(of: &Value, node: &str) -> Value {
    let (name, uid) = (of["metadata"]["name"].as_str().unwrap(), of["metadata"]["uid"].as_str().unwrap());
    json!({ "apiVersion": "adieu.dev/v1alpha1", "kind": "TerminationRecord",
        "metadata": { "name": format!("{name}-{}", &uid[..8]), "namespace": "default" },
        "pod": { "name": name, "uid": uid }, "nodeName": node, "verdict": "clean" })
}

fn requests(pod: &Value) -> Vec<Value> {
    let note = pod["metadata"]["annotations"][NOTE].as_str().unwrap_or("[]");
    serde_json::from_str(note).unwrap()
}

#[tokio::test]
async fn record_is_written_by_the_node_of_its_pod_and_by_no_other_node() {
    let api = Api::start().await;
    let (one, two) = (Identity::node("n1"), Identity::node("n2"));
    let pod = api.running_pod("web", |_| {}).await;
    let (ours, theirs) = (record(&pod, "n1"), record(&pod, "n2"));
    for (who, what, code) in
        [(&two, &ours, 403), (&two, &theirs, 403), (&one, &theirs, 403), (&one, &ours, 201), (&one, &ours, 409)]
    {
        let answer = api.ask_as(who, Method::POST, RECORDS, what).await;
        assert_eq!(answer.code, code, "{} {what}: {}", who.user, answer.text);
    }
    let path = format!("{RECORDS}/{}", ours["metadata"]["name"].as_str().unwrap());
    let mut forced = ours.clone();
    forced["verdict"] = json!("forced");
    assert_eq!(api.ask_as(&two, Method::PUT, &path, &forced).await.code, 403);
    let written = api.ask_as(&one, Method::PUT, &path, &forced).await.expect(200);
    assert_eq!(written["verdict"], "forced");
    for (method, path) in [(Method::GET, RECORDS), (Method::DELETE, path.as_str())] {
        assert_eq!(api.ask_as(&one, method, path, &json!({})).await.code, 403, "a node has no more to do with it");
    }
    let mut nowhere = record(&pod, "n1");
    nowhere["metadata"]["namespace"] = Value::Null;
    assert_eq!(api.ask_as(&one, Method::POST, RECORDS, &nowhere).await.code, 403);
}

#[tokio::test]
async fn editors_and_viewers_read_records_and_write_none() {
    let api = Api::start().await;
    let pod = api.running_pod("web", |_| {}).await;
    let ours = record(&pod, "n1");
    api.post(RECORDS, &ours).await.expect(201);
    let path = format!("{RECORDS}/{}", ours["metadata"]["name"].as_str().unwrap());
    for role in ["view", "edit", "admin"] {
        api.bind(role, role, role).await;
        let user = Identity::new(role, &[]);
        assert_eq!(api.get_as(&user, RECORDS).await, 200, "{role}");
        let mut other = ours.clone();
        other["metadata"]["name"] = json!("other");
        for (method, path) in [(Method::POST, RECORDS), (Method::PUT, path.as_str()), (Method::DELETE, path.as_str())] {
            assert_eq!(api.ask_as(&user, method, path, &other).await.code, 403, "{role}");
        }
    }
}

#[tokio::test]
async fn server_notes_who_deletes_a_pod_and_nobody_else_writes_the_note() {
    let api = Api::start().await;
    let path = format!("{DEFAULT}/pods/web");
    let pod = api
        .running_pod("web", |pod| {
            pod["metadata"]["annotations"] = json!({ NOTE: "[{\"by\":\"mallory\"}]", "kept": "yes" });
            pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
        })
        .await;
    assert_eq!(pod["metadata"]["annotations"], json!({ "kept": "yes" }));
    let forged = json!({ "metadata": { "annotations": { NOTE: "[{\"by\":\"mallory\"}]" } } });
    let patched = api.patch(&path, &forged).await.expect(200);
    assert!(requests(&patched).is_empty(), "{patched}");
    let marked = api.delete(&path).await.expect(200);
    let asked = requests(&marked);
    assert_eq!(asked.len(), 1);
    assert_eq!((&asked[0]["by"], &asked[0]["via"]), (&json!("kubernetes-admin"), &json!("Delete")));
    assert_eq!(asked[0]["gracePeriodSeconds"], 30);
    // Who asks again for the same says nothing new; who asks for less does.
    api.delete(&path).await.expect(200);
    let shorter = api.delete_with(&path, &json!({ "gracePeriodSeconds": 5 })).await.expect(200);
    let graces: Vec<Value> = requests(&shorter).iter().map(|own| own["gracePeriodSeconds"].clone()).collect();
    assert_eq!(graces, [json!(30), json!(5)]);
    let taken = api.patch(&path, &json!({ "metadata": { "annotations": { NOTE: null } } })).await.expect(200);
    assert_eq!(requests(&taken).len(), 2, "it cannot be taken away");
    // The node's last word asks for nothing.
    let node = Identity::node("n1");
    let gone = api.ask_as(&node, Method::DELETE, &path, &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    assert_eq!(requests(&gone).len(), 2);
}

#[tokio::test]
async fn pod_that_never_had_a_node_is_recorded_by_the_server() {
    let api = Api::start().await;
    let made = api.post(&format!("{DEFAULT}/pods"), &pod("web")).await.expect(201);
    api.delete(&format!("{DEFAULT}/pods/web")).await.expect(200);
    let listed = api.get(&format!("{RECORDS}?fieldSelector=pod.name%3Dweb")).await.expect(200);
    let [found] = listed["items"].as_array().unwrap().as_slice() else { panic!("{listed}") };
    assert_eq!(found["metadata"]["name"], record(&made, "")["metadata"]["name"]);
    assert_eq!((&found["verdict"], &found["askedBy"]), (&json!("clean"), &json!("kubernetes-admin")));
    assert_eq!(found["nodeName"], Value::Null);
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table: Value = serde_json::from_str(&api.send(Method::GET, RECORDS, &headers, "").await.text).unwrap();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..7], ["Name", "Pod", "Verdict", "Asked by", "Grace", "Took", "Age"]);
    assert_eq!(table["rows"][0]["cells"][2], "clean");
}
