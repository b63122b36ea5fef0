//! How deep and how large an object may be, on every way into the store; and a store that holds what nobody could write.

use api::bounds::{DEPTH_MAX, SIZE_MAX, depth};
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Row, configmap, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";

/// Levels above what is inside `fieldsV1`: the object, its metadata, the list, the entry.
const ABOVE: usize = 4;

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }))
}

/// What somebody else is said to own, in so many levels of the whole object.
fn managed(levels: usize) -> Value {
    entries(&nested(levels - ABOVE - 1))
}

fn entries(fields: &Value) -> Value {
    json!([{ "manager": "someone", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields }])
}

/// The same in about so many bytes: the only thing of that size that every kind takes.
fn heavy(bytes: usize) -> Value {
    entries(&json!({ format!("f:{}", "x".repeat(bytes)): {} }))
}

fn with_managed(mut object: Value, managed: Value) -> Value {
    object["metadata"]["managedFields"] = managed;
    object
}

#[track_caller]
fn assert_too_deep(answer: Answer, way: &str) {
    assert_eq!(answer.code, 422, "{way}: {}", answer.text);
    let status = answer.json();
    let cause = &status["details"]["causes"][0];
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("Invalid")), "{way}");
    assert_eq!(cause["message"], "Invalid value: must not be nested deeper than 64 levels", "{way}: {status}");
    assert!(cause["field"].as_str().is_some_and(|field| !field.is_empty()), "{way}: {status}");
}

#[track_caller]
fn assert_too_large(answer: Answer, way: &str) {
    assert_eq!(answer.code, 413, "{way}: {}", &answer.text[..answer.text.len().min(300)]);
    let status = answer.json();
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("RequestEntityTooLarge")), "{way}");
    assert!(status["message"].as_str().unwrap().ends_with("limit is 1572864"), "{way}: {status}");
}

impl Api {
    async fn patch_in(&self, media: &str, path: &str, body: &Value) -> Answer {
        let media = format!("application/{media}");
        self.send(Method::PATCH, path, &[("content-type", &media)], body.to_string()).await
    }

    /// What is stored, and the revision of everything.
    fn stored(&self, collection: &str, name: &str) -> (Option<store::Revision>, store::Revision) {
        let key = store::Key::new(collection, "default", name);
        (self.store.get(&key).map(|object| object.revision), self.store.revision())
    }
}

/// [SE-91] The pod that stopped a node, and what is just within the bound.
#[tokio::test]
async fn create_nested_beyond_the_bound_is_refused_with_a_field_path() {
    let api = Api::start().await;
    for levels in [DEPTH_MAX + 1, 100, 126] {
        for dry_run in ["", "?dryRun=All"] {
            let answer = api.post(&format!("{PODS}{dry_run}"), &with_managed(pod("deep"), managed(levels))).await;
            let status = serde_json::from_str::<Value>(&answer.text).unwrap();
            let field = status["details"]["causes"][0]["field"].as_str().unwrap_or_default().to_owned();
            assert!(field.starts_with("metadata.managedFields[0].fieldsV1.f:a"), "{levels}{dry_run}: {status}");
            assert_too_deep(answer, "create");
        }
    }
    // The parser of bodies gives up a little later.
    for levels in [128, 500] {
        assert_eq!(
            api.post(PODS, &with_managed(pod("deep"), managed(levels))).await.expect(400)["reason"],
            "BadRequest"
        );
    }
    let body = format!("{{\"a\":{}", "[".repeat(3_000_000));
    for media in ["application/json", "application/yaml"] {
        let answer = api.send(Method::POST, PODS, &[("content-type", media)], body.clone()).await;
        assert_eq!(answer.code, 400, "{media}");
    }
    assert_eq!(api.stored("pods", "deep").0, None);
    let made = api.post(PODS, &with_managed(pod("fits"), managed(DEPTH_MAX))).await.expect(201);
    assert_eq!(depth(&made, 1000), DEPTH_MAX);
}

/// [SE-91] [SE-92] Every verb and every patch, on objects and on what is below them.
#[tokio::test]
async fn writes_nested_beyond_the_bound_are_refused_on_every_way_in() {
    let api = Api::start().await;
    api.running_pod("p", |_| ()).await;
    let own = format!("{PODS}/p");
    for path in [own.clone(), format!("{own}/status")] {
        let before = api.stored("pods", "p");
        let is_status = path.ends_with("status");
        let stored = api.get(&own).await.expect(200);
        for (levels, fits) in [(DEPTH_MAX, true), (DEPTH_MAX + 1, false), (120, false)] {
            let meta = json!({ "metadata": { "managedFields": managed(levels) } });
            let add = json!([{ "op": "add", "path": "/metadata/managedFields", "value": managed(levels) }]);
            let whole = with_managed(stored.clone(), managed(levels));
            let ways = [
                ("put", api.put(&format!("{path}?dryRun=All"), &whole).await),
                ("json", api.patch_in("json-patch+json", &format!("{path}?dryRun=All"), &add).await),
                ("merge", api.patch_in("merge-patch+json", &format!("{path}?dryRun=All"), &meta).await),
                ("strategic", api.patch_in("strategic-merge-patch+json", &format!("{path}?dryRun=All"), &meta).await),
            ];
            for (way, answer) in ways {
                match answer.code {
                    // A status does not carry what its writer says of managers.
                    200 => assert!(fits || is_status, "{way} {path} {levels}"),
                    _ => assert_too_deep(answer, &format!("{way} {path} {levels}")),
                }
            }
            if !fits && !is_status {
                assert_too_deep(api.put(&path, &whole).await, "put");
                assert_too_deep(api.patch_in("json-patch+json", &path, &add).await, "json");
                assert_too_deep(api.patch_in("merge-patch+json", &path, &meta).await, "merge");
                assert_too_deep(api.patch_in("strategic-merge-patch+json", &path, &meta).await, "strategic");
            }
        }
        assert_eq!(api.stored("pods", "p"), before, "{path}");
    }
    api.put(&own, &with_managed(api.get(&own).await.expect(200), managed(DEPTH_MAX))).await.expect(200);
    // The same by apply, for the one kind that carries anything at all.
    let revision = |levels: usize| {
        json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": { "name": "r" }, "revision": 1,
            "data": nested(levels - 2) })
    };
    let (path, media) = (format!("{REVISIONS}/r?fieldManager=a"), "apply-patch+yaml");
    // Ownership of fields takes levels of its own.
    api.patch_in(media, &path, &revision(40)).await.expect(201);
    let deep = revision(DEPTH_MAX + 1);
    let answer = api.patch_in(media, &path, &deep).await;
    assert!(matches!(answer.code, 400 | 422), "{}", answer.text);
    assert_too_deep(api.post(REVISIONS, &deep).await, "create of a revision");
}

/// [SE-92] Patches that each go on where the last one ended.
#[tokio::test]
async fn object_cannot_be_grown_deeper_patch_by_patch() {
    let api = Api::start().await;
    api.post(MAPS, &with_managed(configmap("m"), managed(20))).await.expect(201);
    let path = format!("{MAPS}/m");
    let mut deeper = String::from("/metadata/managedFields/0/fieldsV1");
    let mut refused = None;
    for round in 0..100 {
        deeper.push_str(&"/f:a".repeat(if round == 0 { 15 } else { 1 }));
        let add = json!([{ "op": "add", "path": deeper, "value": { "f:a": {} } }]);
        let answer = api.patch_in("json-patch+json", &path, &add).await;
        if answer.code != 200 {
            assert_too_deep(answer, "json");
            refused = Some(round);
            break;
        }
    }
    assert!(refused.is_some_and(|round| round > 10), "{refused:?}");
    assert!(depth(&api.get(&path).await.expect(200), 1000) <= DEPTH_MAX);
}

/// Exactly as large as an object may be, and one byte more, on every way in.
#[tokio::test]
async fn writes_larger_than_the_bound_are_refused_on_every_way_in() {
    let api = Api::start().await;
    let size = |name: &str| api.store.get(&store::Key::new("pods", "default", name)).unwrap().json.len();
    // What a pod of this name takes besides; names and revisions are as long in what follows.
    api.post(PODS, &with_managed(pod("probe"), heavy(1000))).await.expect(201);
    let most = SIZE_MAX - size("probe") + 1000 - 64;
    api.post(PODS, &with_managed(pod("large"), heavy(most))).await.expect(201);
    assert!(size("large") <= SIZE_MAX && size("large") > SIZE_MAX - 128, "{}", size("large"));
    let more = SIZE_MAX;
    for dry_run in ["", "?dryRun=All"] {
        assert_too_large(api.post(&format!("{PODS}{dry_run}"), &with_managed(pod("p"), heavy(more))).await, "create");
    }
    let own = format!("{PODS}/large");
    let before = api.stored("pods", "large");
    let add = json!([{ "op": "add", "path": "/metadata/managedFields", "value": heavy(more) }]);
    let meta = json!({ "metadata": { "managedFields": heavy(more) } });
    let stored = api.get(&own).await.expect(200);
    for dry_run in ["", "?dryRun=All"] {
        let path = format!("{own}{dry_run}");
        assert_too_large(api.put(&path, &with_managed(stored.clone(), heavy(more))).await, "put");
        assert_too_large(api.patch_in("json-patch+json", &path, &add).await, "json");
        assert_too_large(api.patch_in("merge-patch+json", &path, &meta).await, "merge");
        assert_too_large(api.patch_in("strategic-merge-patch+json", &path, &meta).await, "strategic");
        let labels = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "large", "annotations": { "a": "x".repeat(1000) } } });
        let apply = format!("{own}?fieldManager=a{}", dry_run.replace('?', "&"));
        assert_too_large(api.patch_in("apply-patch+yaml", &apply, &labels).await, "apply");
        let status = json!({ "status": { "message": "x".repeat(1000) } });
        let path = format!("{own}/status{dry_run}");
        assert_too_large(api.patch_in("merge-patch+json", &path, &status).await, "status");
    }
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "large" },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "n".repeat(200) } });
    assert_too_large(api.post(&format!("{own}/binding"), &binding).await, "binding");
    assert_eq!(api.stored("pods", "large"), before);
    // Whatever is stored can be evicted and deleted.
    let hold = json!({ "metadata": { "finalizers": ["a/b"], "managedFields": heavy(most - 60) } });
    api.patch(&own, &hold).await.expect(200);
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "large" } });
    api.post(&format!("{own}/eviction"), &eviction).await.expect(201);
    assert!(size("large") > SIZE_MAX, "{}", size("large"));
    api.patch(&own, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    assert_eq!(api.get(&own).await.code, 404);
}

/// An object that is as large as it may be is deleted like any other.
#[tokio::test]
async fn object_at_the_bound_is_deleted_with_its_grace() {
    let api = Api::start().await;
    let running = api.running_pod("large", |_| ()).await;
    let key = store::Key::new("pods", "default", "large");
    let size = || api.store.get(&key).unwrap().json.len();
    let path = format!("{PODS}/large");
    let most = SIZE_MAX - size() - 400;
    api.put(&path, &with_managed(running, heavy(most))).await.expect(200);
    let filled = SIZE_MAX - size();
    api.patch(&path, &json!({ "metadata": { "annotations": { "a": "x".repeat(filled.saturating_sub(200)) } } })).await;
    assert!(size() > SIZE_MAX - 600, "{}", size());
    let marked = api.delete(&path).await.expect(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    api.delete_with(&path, &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    assert_eq!(api.get(&path).await.code, 404);
}

/// Every kind goes the same way.
#[tokio::test]
async fn objects_of_every_kind_have_the_same_bounds() {
    let api = Api::start().await;
    let containers = json!({ "containers": [{ "name": "c", "image": "i:1" }] });
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": containers });
    let selector = json!({ "matchLabels": { "a": "b" } });
    let workload = json!({ "spec": { "selector": selector, "template": template } });
    let set = json!({ "spec": { "selector": selector, "template": template, "serviceName": "s" } });
    let rbac = "rbac.authorization.k8s.io";
    let reference = |kind: &str| json!({ "roleRef": { "apiGroup": rbac, "kind": kind, "name": "x" } });
    let cases: [(&str, &str, Value); 24] = [
        ("", "pods", json!({ "spec": containers })),
        ("", "configmaps", json!({})),
        ("", "secrets", json!({})),
        ("", "services", json!({ "spec": { "ports": [{ "port": 80 }] } })),
        ("", "endpoints", json!({})),
        ("", "serviceaccounts", json!({})),
        ("", "namespaces", json!({})),
        ("", "nodes", json!({})),
        ("", "limitranges", json!({ "spec": { "limits": [] } })),
        ("", "resourcequotas", json!({})),
        ("", "podtemplates", json!({ "template": template })),
        ("apps", "deployments", workload.clone()),
        ("apps", "replicasets", workload.clone()),
        ("apps", "daemonsets", workload),
        ("apps", "statefulsets", set),
        ("apps", "controllerrevisions", json!({ "revision": 1, "data": {} })),
        (
            "batch",
            "jobs",
            json!({ "spec": { "template": { "spec": { "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "i:1" }] } } } }),
        ),
        ("policy", "poddisruptionbudgets", json!({ "spec": { "minAvailable": 1, "selector": selector } })),
        ("coordination.k8s.io", "leases", json!({})),
        ("scheduling.k8s.io", "priorityclasses", json!({ "value": 1 })),
        (rbac, "roles", json!({ "rules": [] })),
        (rbac, "clusterroles", json!({ "rules": [] })),
        (rbac, "rolebindings", reference("Role")),
        (rbac, "clusterrolebindings", reference("ClusterRole")),
    ];
    for (group, plural, body) in cases {
        let Some(kind) = api::built_in(group, "v1", plural) else { panic!("{plural} is not served") };
        let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
        let namespace = if kind.namespaced { "/namespaces/default" } else { "" };
        let path = format!("{root}{namespace}/{plural}");
        let object = |managed: Value| {
            let mut object = body.clone();
            object["metadata"] = json!({ "name": "x", "managedFields": managed });
            object
        };
        assert_too_deep(api.post(&path, &object(managed(DEPTH_MAX + 1))).await, plural);
        assert_too_large(api.post(&path, &object(heavy(SIZE_MAX))).await, plural);
        let answer = api.post(&path, &object(managed(DEPTH_MAX))).await;
        assert_eq!(answer.code, 201, "{plural}: {}", answer.text);
        let meta = |managed: Value| json!({ "metadata": { "managedFields": managed } });
        assert_too_deep(api.patch(&format!("{path}/x"), &meta(managed(DEPTH_MAX + 1))).await, plural);
        assert_too_large(api.patch(&format!("{path}/x"), &meta(heavy(SIZE_MAX))).await, plural);
    }
}

/// A server over rows that no server of today writes comes up, serves the rest, and can be rid of them.
#[tokio::test]
async fn server_over_damaged_objects_serves_the_rest_and_deletes_them() {
    let api = Api::start().await;
    api.post(MAPS, &configmap("sound")).await.expect(201);
    api.post("/api/v1/namespaces", &json!({ "metadata": { "name": "team" } })).await.expect(201);
    let levels = 5000;
    let deep = format!(
        r#"{{"metadata":{{"name":"deep","namespace":"default","uid":"u"}},"data":{{"a":"1"}},"x":{}{}}}"#,
        "[".repeat(levels),
        "]".repeat(levels)
    );
    let mistyped = br#"{"metadata":{"name":"typed","namespace":"default","uid":"u"},"spec":"none","status":[]}"#;
    let rows: [Row<'_>; 12] = [
        (("configmaps", "default", "deep"), deep.as_bytes()),
        (("configmaps", "default", "text"), b"no JSON"),
        (("configmaps", "default", "list"), b"[]"),
        (("configmaps", "team", "plain"), b"{}"),
        (("pods", "default", "typed"), mistyped),
        (("pods", "default", "none"), b"null"),
        (("secrets", "team", "none"), b""),
        // What the server itself cannot do without.
        (("namespaces", "", "default"), b"?"),
        (("clusterroles.rbac.authorization.k8s.io", "", "cluster-admin"), b"?"),
        (("services", "default", "kubernetes"), b"?"),
        (("priorityclasses.scheduling.k8s.io", "", "system-node-critical"), b"?"),
        (("namespaces", "", "lost"), b"?"),
    ];
    let api = api.restart_with_rows(&rows).await;
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().into()).collect()
    };
    assert_eq!(names(&api.get(MAPS).await.expect(200)), ["deep", "sound"]);
    assert_eq!(names(&api.get(PODS).await.expect(200)), ["typed"]);
    assert!(names(&api.get("/api/v1/namespaces").await.expect(200)).contains(&"default".to_owned()));
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin";
    assert!(api.get(role).await.expect(200)["rules"].is_array());
    api.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200);

    for name in ["text", "list"] {
        let path = format!("{MAPS}/{name}");
        let refused = api.get(&path).await.expect(500);
        assert_eq!(refused["reason"], "StorageReadError", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("it can only be deleted"), "{refused}");
        api.patch(&path, &json!({ "data": {} })).await.expect(500);
        api.put(&path, &configmap(name)).await.expect(500);
        api.post(MAPS, &configmap(name)).await.expect(409);
        api.delete(&path).await.expect(200);
        api.get(&path).await.expect(404);
        api.post(MAPS, &configmap(name)).await.expect(201);
    }
    // Cut where it was too deep, it is an object like any other.
    let shown = api.get(&format!("{MAPS}/deep")).await.expect(200);
    assert_eq!((&shown["data"]["a"], depth(&shown, 1000)), (&json!("1"), DEPTH_MAX));
    api.patch(&format!("{MAPS}/deep"), &json!({ "data": { "a": "2" } })).await.expect(200);
    api.delete(&format!("{MAPS}/deep")).await.expect(200);
    api.delete(&format!("{PODS}/typed")).await.expect(200);
    // All at once.
    api.delete(PODS).await.expect(200);
    api.get(&format!("{PODS}/none")).await.expect(404);
    // And with their namespace.
    for name in ["team", "lost"] {
        let mut watch = api.watch("/api/v1/namespaces?watch=1").await;
        api.delete(&format!("/api/v1/namespaces/{name}")).await.expect(200);
        while watch.next_line().await != format!("DELETED {name}") {}
    }
    assert!(api.store.unreadable("configmaps", "").is_empty() && api.store.unreadable("secrets", "").is_empty());
    assert!(api.store.unreadable("namespaces", "").is_empty());
}
