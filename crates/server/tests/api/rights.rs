//! Rights that must not stretch: what is judged is what is done, a change that creates is a create, and a node's word
//! ends at its own health.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Answer, Api, configmap};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const DEFAULT: &str = "/api/v1/namespaces/default";

impl Api {
    pub async fn patch_as(&self, user: &Identity, path: &str, kind: &str, body: &Value) -> Answer {
        let service = self.server.service_as(user.clone());
        self.send_as(service, Method::PATCH, path, &[("content-type", kind)], body.to_string()).await
    }

    /// Gives bob these rules in the default namespace.
    async fn grant(&self, rule: Value) -> Identity {
        let role = json!({ "metadata": { "name": "granted" }, "rules": [rule] });
        self.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
        self.bind("granted", "granted", "bob").await;
        Identity::new("bob", &[])
    }
}

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn a_comma_inside_a_value_does_not_select_a_name() {
    let api = Api::start().await;
    for name in ["allowed", "other"] {
        let secret = json!({ "metadata": { "name": name } });
        api.post(&format!("{DEFAULT}/secrets"), &secret).await.expect(201);
    }
    let bob = api
        .grant(json!({ "verbs": ["list", "watch", "deletecollection"], "apiGroups": [""], "resources": ["secrets"],
            "resourceNames": ["allowed"] }))
        .await;
    let selecting = |text: &str| format!("{DEFAULT}/secrets?fieldSelector={}", text.replace('\\', "%5C"));
    let honest = selecting("metadata.name=allowed");
    let listed = api.ask_as(&bob, Method::GET, &honest, &Value::Null).await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    for sly in [
        r"metadata.name!=x\,metadata.name=allowed",
        r"metadata.namespace!=\,metadata.name=allowed",
        "metadata.name!=allowed",
    ] {
        for path in [selecting(sly), format!("{}&watch=1", selecting(sly))] {
            assert_eq!(api.get_as(&bob, &path).await, 403, "{path}");
        }
        assert_eq!(api.ask_as(&bob, Method::DELETE, &selecting(sly), &json!({})).await.code, 403, "{sly}");
    }
    assert_eq!(api.get(&format!("{DEFAULT}/secrets/other")).await.code, 200, "and nothing was deleted");

    api.running_pod("foreign", |_| {}).await;
    let node = Identity::node("n2");
    let sly = r"/api/v1/pods?fieldSelector=spec.schedulerName!=x%5C,spec.nodeName=n2";
    assert_eq!(api.get_as(&node, sly).await, 403);
    assert_eq!(api.get_as(&node, "/api/v1/pods?fieldSelector=spec.nodeName==n2,status.phase!=Failed").await, 200);
}

#[tokio::test]
async fn a_change_that_creates_needs_the_right_to_create() {
    let api = Api::start().await;
    let bob = api
        .grant(json!({ "verbs": ["get", "update", "patch"], "apiGroups": ["", "coordination.k8s.io"],
            "resources": ["configmaps", "leases"] }))
        .await;
    let path = format!("{DEFAULT}/configmaps/c?fieldManager=bob");
    let refused = api.patch_as(&bob, &path, APPLY, &configmap("c")).await.expect(403);
    assert_eq!(
        refused["message"],
        "configmaps \"c\" is forbidden: User \"bob\" cannot create resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    );
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let body = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "bob" } });
    assert_eq!(api.ask_as(&bob, Method::PUT, lease, &body).await.code, 403);
    assert_eq!(api.get(lease).await.code, 404);
    // What is there may be changed.
    api.post(&format!("{DEFAULT}/configmaps"), &configmap("c")).await.expect(201);
    let made = api.put(lease, &body).await.expect(201);
    api.patch_as(&bob, &format!("{path}&force=true"), APPLY, &configmap("c")).await.expect(200);
    api.ask_as(&bob, Method::PUT, lease, &made).await.expect(200);
}

#[tokio::test]
async fn editors_write_what_people_own_and_not_where_traffic_goes() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    for role in ["edit", "admin"] {
        api.bind(role, role, "bob").await;
        let endpoints = json!({ "metadata": { "name": "e" } });
        assert_eq!(api.ask_as(&bob, Method::POST, &format!("{DEFAULT}/endpoints"), &endpoints).await.code, 403);
        assert_eq!(api.get_as(&bob, &format!("{DEFAULT}/endpoints")).await, 200);
        let event = json!({ "metadata": { "name": role, "namespace": "default" }, "reason": "Said", "action": "Say",
            "type": "Normal", "reportingController": "example.com/bob", "reportingInstance": "bob-1",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": { "kind": "Pod", "name": "p", "namespace": "default" } });
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        api.ask_as(&bob, Method::POST, path, &event).await.expect(201);
        api.delete(&format!("{RBAC}/namespaces/default/rolebindings/{role}")).await.expect(200);
    }
}

#[tokio::test]
async fn a_node_does_not_draw_pods_to_itself_nor_hide_them() {
    let api = Api::start().await;
    let node = Identity::node("n1");
    let labelled = |key: &str| json!({ "metadata": { "name": "n1", "labels": { key: "x" } } });
    for key in ["node-restriction.kubernetes.io/trusted", "example.node-restriction.kubernetes.io/a", "k8s.io/secure"] {
        let refused = api.ask_as(&node, Method::POST, "/api/v1/nodes", &labelled(key)).await.expect(403);
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("is not allowed to set the following labels: {key}")), "{message}");
    }
    let mut made = labelled("kubernetes.io/hostname");
    made["spec"]["taints"] = json!([{ "key": "dedicated", "value": "db", "effect": "NoSchedule" }]);
    api.ask_as(&node, Method::POST, "/api/v1/nodes", &made).await.expect(201);

    let own = "/api/v1/nodes/n1";
    for key in ["topology.kubernetes.io/zone", "node.kubernetes.io/anything", "example.com/its-own"] {
        api.patch_as(&node, own, MERGE, &labelled(key)).await.expect(200);
    }
    for path in [own.to_owned(), format!("{own}/status")] {
        let refused = api.patch_as(&node, &path, MERGE, &labelled("node-role.kubernetes.io/control-plane")).await;
        let message = refused.expect(403)["message"].as_str().unwrap().to_owned();
        assert!(
            message.ends_with("is not allowed to modify labels: node-role.kubernetes.io/control-plane"),
            "{message}"
        );
    }
    let health = json!({ "key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule" });
    let kept = json!({ "key": "dedicated", "value": "db", "effect": "NoSchedule" });
    let taints = |taints: Value| json!({ "spec": { "taints": taints } });
    for wanted in [json!([kept, health]), json!([health]), json!([])] {
        let refused = api.patch_as(&node, own, MERGE, &taints(wanted)).await.expect(403);
        assert!(refused["message"].as_str().unwrap().ends_with("node \"n1\" is not allowed to modify taints"));
    }
    // What it says about itself keeps pods away all the same.
    let short = json!({ "status": { "conditions": [
        { "type": "Ready", "status": "True" }, { "type": "MemoryPressure", "status": "True" }] } });
    let shown = api.patch_as(&node, &format!("{own}/status"), MERGE, &short).await.expect(200);
    let keys: Vec<_> = shown["spec"]["taints"].as_array().unwrap().iter().map(|taint| &taint["key"]).collect();
    assert_eq!(keys, ["dedicated", "node.kubernetes.io/memory-pressure"]);
    let applied = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" },
        "spec": { "taints": [{ "key": "dedicated", "effect": "NoExecute" }] } });
    let path = format!("{own}?fieldManager=node&force=true");
    assert_eq!(api.patch_as(&node, &path, APPLY, &applied).await.code, 403, "nor by apply");

    api.running_pod("p", |pod| pod["metadata"]["labels"] = json!({ "app": "web" })).await;
    let status = format!("{DEFAULT}/pods/p/status");
    for (key, value) in [("labels", json!({ "app": "other" })), ("finalizers", json!(["example.com/stay"]))] {
        let refused = api.patch_as(&node, &status, MERGE, &json!({ "metadata": { key: value } })).await.expect(403);
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("node \"n1\" cannot update {key} through pod status")), "{message}");
    }
    api.patch_as(&node, &status, MERGE, &json!({ "status": { "message": "fine" } })).await.expect(200);
}
