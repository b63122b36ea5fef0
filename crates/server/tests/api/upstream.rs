//! What clients and conformance suites of upstream rely on.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Answer, Api, configmap, pod, version};

const DEFAULT: &str = "/api/v1/namespaces/default";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const SCALERS: &str = "/namespaces/default/horizontalpodautoscalers";

impl Api {
    async fn apply(&self, path: &str, body: &Value) -> Answer {
        let headers = [("content-type", "application/apply-patch+yaml")];
        self.send(Method::PATCH, &format!("{path}?fieldManager=tester"), &headers, body.to_string()).await
    }
}

#[tokio::test]
async fn an_older_face_of_an_autoscaler_changes_what_it_knows_and_keeps_the_rest() {
    let api = Api::start().await;
    let memory = json!({ "type": "Resource", "resource": { "name": "memory",
        "target": { "type": "Utilization", "averageUtilization": 70 } } });
    let cpu = |percent: i64| {
        json!({ "type": "Resource", "resource": { "name": "cpu",
        "target": { "type": "Utilization", "averageUtilization": percent } } })
    };
    let made = json!({ "metadata": { "name": "h" }, "spec": { "maxReplicas": 5, "metrics": [cpu(50), memory],
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } } });
    api.post(&format!("/apis/autoscaling/v2{SCALERS}"), &made).await.expect(201);
    let (old, new) = (format!("/apis/autoscaling/v1{SCALERS}/h"), format!("/apis/autoscaling/v2{SCALERS}/h"));
    let patched = api.patch(&old, &json!({ "spec": { "targetCPUUtilizationPercentage": 60 } })).await.expect(200);
    assert_eq!(patched["spec"]["targetCPUUtilizationPercentage"], 60);
    assert_eq!(api.get(&new).await.expect(200)["spec"]["metrics"], json!([cpu(60), memory]));
    let mut sent = api.get(&old).await.expect(200);
    sent["spec"]["maxReplicas"] = json!(7);
    api.put(&old, &sent).await.expect(200);
    let stored = api.get(&new).await.expect(200);
    assert_eq!((&stored["spec"]["maxReplicas"], &stored["spec"]["metrics"]), (&json!(7), &json!([cpu(60), memory])));
    let told = json!({ "status": { "currentReplicas": 2, "desiredReplicas": 3 } });
    api.patch(&format!("{old}/status"), &told).await.expect(200);
    assert_eq!(api.get(&new).await.expect(200)["status"]["desiredReplicas"], 3);
}

#[tokio::test]
async fn clients_that_look_for_custom_definitions_learn_that_there_are_none() {
    let api = Api::start().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let list = api.get(&format!("{path}?limit=500")).await.expect(200);
    assert_eq!((&list["kind"], &list["items"]), (&json!("CustomResourceDefinitionList"), &json!([])));
    assert_eq!(api.get(&format!("{path}/a.example.com")).await.expect(404)["reason"], "NotFound");
    api.post(path, &json!({ "metadata": { "name": "a.example.com" } })).await.expect(404);
    assert_eq!(api.get_as(&Identity::new("bob", &[]), path).await, 403);
}

#[tokio::test]
async fn strict_complaints_come_in_the_order_of_the_document() {
    let api = Api::start().await;
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"unknownField":"x",
        "replicas":1,"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
        "spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let path = format!("{APPS}/deployments?fieldValidation=Strict");
    let refused = api.send(Method::POST, &path, &[("content-type", "application/json")], body).await.expect(400);
    let message = refused["message"].as_str().unwrap();
    let expected = r#"strict decoding error: unknown field "spec.unknownField", duplicate field "spec.replicas""#;
    assert!(message.ends_with(expected), "{message}");
}

/// Nobody needs to write for the past to become too old: time does.
#[tokio::test]
async fn a_list_of_the_past_expires_with_time() {
    let window = store::Window { age: std::time::Duration::from_millis(50), ..store::Window::default() };
    let api = Api::with_window(window).await;
    let maps = format!("{DEFAULT}/configmaps");
    api.post(&maps, &configmap("a")).await.expect(201);
    api.post(&maps, &configmap("b")).await.expect(201);
    let first = api.get(&format!("{maps}?limit=1")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    api.post(&maps, &configmap("c")).await.expect(201);
    let path = format!("{maps}?limit=1&continue={token}");
    let expired = loop {
        let answer = api.get(&path).await;
        if answer.code == 410 {
            break answer.json();
        }
        assert_eq!(answer.code, 200, "{}", answer.text);
        tokio::task::yield_now().await;
    };
    let fresh = expired["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{maps}?continue={fresh}")).await.expect(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
}

/// Defaults that the document leaves out are not a difference.
#[tokio::test]
async fn apply_of_the_same_document_again_writes_nothing() {
    let api = Api::start().await;
    let variable = json!({ "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } });
    let container = json!({ "name": "c", "image": "i:1", "env": [variable] });
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" },
        "spec": { "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } } } });
    let volume = json!({ "name": "v", "downwardAPI": { "items": [
        { "path": "n", "fieldRef": { "fieldPath": "metadata.name" } }] } });
    let pod = json!({ "restartPolicy": "Never", "volumes": [volume], "containers": [{ "name": "c", "image": "i:1" }] });
    let cron = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "c" }, "spec": {
        "schedule": "@daily", "jobTemplate": { "spec": { "template": { "spec": pod } } } } });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "b" }, "roleRef": { "kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io" },
        "subjects": [{ "kind": "User", "name": "ann" }] });
    for (path, body) in [
        (format!("{APPS}/deployments/d"), deployment),
        ("/apis/batch/v1/namespaces/default/cronjobs/c".to_owned(), cron),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/b".to_owned(), binding),
    ] {
        let made = api.apply(&path, &body).await.expect(201);
        // The time of an entry is told in whole seconds.
        let made_at = jiff::Timestamp::now().as_second();
        while jiff::Timestamp::now().as_second() == made_at {
            tokio::task::yield_now().await;
        }
        let again = api.apply(&path, &body).await.expect(200);
        assert_eq!(again, made);
    }
}

#[tokio::test]
async fn a_pod_of_a_missing_runtime_class_is_refused_and_of_one_that_is_there_pays_for_it() {
    let api = Api::start().await;
    let mut sandboxed = pod("p");
    sandboxed["spec"]["runtimeClassName"] = json!("sandboxed");
    let refused = api.post(&format!("{DEFAULT}/pods"), &sandboxed).await.expect(403);
    assert_eq!(refused["message"], "pods \"p\" is forbidden: pod rejected: RuntimeClass \"sandboxed\" not found");
    let class = json!({ "metadata": { "name": "sandboxed" }, "handler": "h",
        "overhead": { "podFixed": { "memory": "64Mi" } } });
    api.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.expect(201);
    let made = api.post(&format!("{DEFAULT}/pods"), &sandboxed).await.expect(201);
    assert_eq!(made["spec"]["overhead"], json!({ "memory": "64Mi" }));
}

#[tokio::test]
async fn priority_class_default_is_unique() {
    let api = Api::start().await;
    let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class =
        |name: &str, default: bool| json!({ "metadata": { "name": name }, "value": 1, "globalDefault": default });
    api.post(path, &class("one", true)).await.expect(201);
    let refused = api.post(path, &class("two", true)).await.expect(403);
    let text = "PriorityClass one is already marked as default. Only one default can exist";
    assert!(refused["message"].as_str().unwrap().ends_with(text), "{refused}");
    api.post(path, &class("two", false)).await.expect(201);
    assert_eq!(api.patch(&format!("{path}/two"), &json!({ "globalDefault": true })).await.code, 403);
    api.patch(&format!("{path}/one"), &json!({ "description": "ours" })).await.expect(200);
}

#[tokio::test]
async fn names_of_writers_are_bounded() {
    let api = Api::start().await;
    let path = |length: usize| format!("{DEFAULT}/configmaps?fieldManager={}", "m".repeat(length));
    let refused = api.post(&path(129), &configmap("c")).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "fieldManager");
    api.post(&path(128), &configmap("c")).await.expect(201);
}

#[tokio::test]
async fn a_patch_that_names_another_uid_is_refused() {
    let api = Api::start().await;
    let made = api.post(&format!("{DEFAULT}/configmaps"), &configmap("c")).await.expect(201);
    let path = format!("{DEFAULT}/configmaps/c");
    let refused = api.patch(&path, &json!({ "metadata": { "uid": "another" } })).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.uid");
    let mut other = made;
    other["metadata"]["uid"] = json!("another");
    api.put(&path, &other).await.expect(409);
}

#[tokio::test]
async fn jobs_are_found_by_how_many_have_succeeded() {
    let api = Api::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = json!({ "metadata": { "name": "j" }, "spec": { "template": { "spec": { "restartPolicy": "Never",
        "containers": [{ "name": "c", "image": "i:1" }] } } } });
    api.post(jobs, &job).await.expect(201);
    let found = api.get(&format!("{jobs}?fieldSelector=status.successful%3D0")).await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn questions_about_tokens_are_judged_like_upstream_does() {
    let api = Api::start().await;
    let refused = api.post("/apis/authentication.k8s.io/v1/tokenreviews", &json!({ "spec": {} })).await.expect(400);
    assert_eq!(refused["message"], "token is required for TokenReview in authentication");
    let path = format!("{DEFAULT}/serviceaccounts/default/token");
    let other = json!({ "metadata": { "name": "other" }, "spec": {} });
    let refused = api.post(&path, &other).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.name");
    api.post(&path, &json!({ "metadata": { "name": "default" }, "spec": {} })).await.expect(201);
}

#[tokio::test]
async fn a_precondition_names_the_kind_with_its_group() {
    let api = Api::start().await;
    let deployment = json!({ "metadata": { "name": "d" }, "spec": { "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } } } });
    api.post(&format!("{APPS}/deployments"), &deployment).await.expect(201);
    let wrong = json!({ "preconditions": { "uid": "another" } });
    let refused = api.delete_with(&format!("{APPS}/deployments/d"), &wrong).await.expect(409);
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("Operation cannot be fulfilled on Deployment.apps \"d\": the UID"), "{message}");
    assert_eq!(refused["details"], json!({ "name": "d", "group": "apps", "kind": "Deployment" }));
}

#[tokio::test]
async fn a_watch_from_nowhere_tells_where_the_beginning_ends() {
    let api = Api::start().await;
    let maps = format!("{DEFAULT}/configmaps");
    api.post(&maps, &configmap("a")).await.expect(201);
    let mut events = api.watch(&format!("{maps}?watch=1&allowWatchBookmarks=true")).await;
    assert_eq!(events.next_line().await, "ADDED a");
    let end = events.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let made = api.post(&maps, &configmap("b")).await.expect(201);
    assert!(version(&end["object"]) < version(&made));
    assert_eq!(events.next_line().await, "ADDED b");
}

#[tokio::test]
async fn impersonation_headers_become_the_whole_user_info() {
    let api = Api::start().await;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", "bob"),
        ("impersonate-uid", "u-1"),
        ("impersonate-extra-example.com%2freason", "audit"),
    ];
    let answer = api.send(Method::POST, path, &headers, "{}").await.expect(201);
    let info = &answer["status"]["userInfo"];
    assert_eq!((&info["username"], &info["uid"]), (&json!("bob"), &json!("u-1")));
    assert_eq!(info["extra"], json!({ "example.com/reason": ["audit"] }));
    let role = json!({ "metadata": { "name": "be-bob" }, "rules": [
        { "verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"] }] });
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
    let binding = json!({ "metadata": { "name": "be-bob" }, "subjects": [{ "kind": "User", "name": "eve" }],
        "roleRef": { "kind": "ClusterRole", "name": "be-bob" } });
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    for (kept, code) in [(2, 201), (3, 403), (4, 403)] {
        let eve = api.server.service_as(Identity::new("eve", &[]));
        assert_eq!(api.send_as(eve, Method::POST, path, &headers[..kept], "{}").await.code, code, "{kept}");
    }
}

/// What was wrong besides is told with a refusal too, whatever the verb.
#[tokio::test]
async fn warnings_come_with_refusals() {
    let api = Api::start().await;
    let mut odd = configmap("a");
    odd["metadata"]["labels"] = json!({ "bad label": "x" });
    odd["dara"] = json!({});
    let maps = format!("{DEFAULT}/configmaps");
    api.post(&maps, &configmap("a")).await.expect(201);
    let query = "fieldValidation=Warn&fieldManager=t";
    let answers = [
        api.post(&format!("{maps}?{query}"), &odd).await,
        api.put(&format!("{maps}/a?{query}"), &odd).await,
        api.patch(&format!("{maps}/a?{query}"), &odd).await,
    ];
    for answer in answers {
        assert_eq!(answer.warnings(), ["299 - \"unknown field \\\"dara\\\"\""], "{}", answer.text);
        answer.expect(422);
    }
}

/// Paths that said `watch` before there was a parameter for it.
#[tokio::test]
async fn old_paths_of_watches_are_still_heard() {
    let api = Api::start().await;
    let maps = format!("{DEFAULT}/configmaps");
    for name in ["a", "b"] {
        api.post(&maps, &configmap(name)).await.expect(201);
    }
    let mut all = api.watch("/api/v1/watch/namespaces/default/configmaps").await;
    assert_eq!([all.next_line().await, all.next_line().await], ["ADDED a", "ADDED b"]);
    let mut one = api.watch("/api/v1/watch/namespaces/default/configmaps/b").await;
    assert_eq!(one.next_line().await, "ADDED b");
    api.delete(&format!("{maps}/a")).await.expect(200);
    api.delete(&format!("{maps}/b")).await.expect(200);
    assert_eq!(one.next_line().await, "DELETED b");
    assert_eq!(api.delete("/api/v1/watch/namespaces/default/configmaps/b").await.code, 405);
    assert_eq!(api.get("/api/v1/watch").await.code, 404);
}

/// Who writes through an older version owns what that version calls it.
#[tokio::test]
async fn fields_are_owned_in_the_words_of_their_writer() {
    let api = Api::start().await;
    let scaler = json!({ "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "o" },
        "spec": { "maxReplicas": 3, "targetCPUUtilizationPercentage": 70,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" } } });
    let path = format!("/apis/autoscaling/v1{SCALERS}");
    let made = api.post(&path, &scaler).await.expect(201);
    let owned = &made["metadata"]["managedFields"][0];
    assert_eq!(owned["apiVersion"], "autoscaling/v1");
    assert!(owned["fieldsV1"]["f:spec"].get("f:targetCPUUtilizationPercentage").is_some(), "{owned}");
    let more =
        api.patch(&format!("{path}/o?fieldManager=other"), &json!({ "spec": { "maxReplicas": 4 } })).await.expect(200);
    let entries = more["metadata"]["managedFields"].as_array().unwrap();
    let other = entries.iter().find(|entry| entry["manager"] == "other").unwrap();
    assert_eq!(other["apiVersion"], "autoscaling/v1");
    assert_eq!(other["fieldsV1"], json!({ "f:spec": { "f:maxReplicas": {} } }));
}
