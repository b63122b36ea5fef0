//! Nobody gives away, by roles, labels, bindings, impersonation or pods, what they do not have. The rules are upstream's; the
//! table in `docs/security.md` names the tests here.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Answer, Api, pod, version};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const DEFAULT: &str = "/api/v1/namespaces/default";
const TO_EDIT: &str = "rbac.authorization.k8s.io/aggregate-to-edit";
const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const NOT_HELD: &str = "is attempting to grant RBAC permissions not currently held:\n";
const GATHERING: &str = "must have cluster-admin privileges to use the aggregationRule";

/// Names and values.
type Headers<'a> = Vec<(&'a str, &'a str)>;
/// Makes a part of a pod that refers to the named secret.
type Reference<'a> = Box<dyn Fn(&str) -> Value + 'a>;

fn rule(verbs: &[&str], group: &str, resources: &[&str], names: &[&str]) -> Value {
    let mut rule = json!({ "verbs": verbs, "apiGroups": [group], "resources": resources });
    if !names.is_empty() {
        rule["resourceNames"] = json!(names);
    }
    rule
}

fn role(name: &str, rules: &[Value]) -> Value {
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
        "rules": rules })
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({ "metadata": { "name": name }, "subjects": [{ "kind": "User", "name": "friend" }],
        "roleRef": { "kind": kind, "name": role } })
}

/// Every right on roles and bindings but those to exceed one's own.
fn rbac_writer() -> Value {
    let verbs = ["get", "list", "create", "update", "patch", "delete", "deletecollection"];
    rule(&verbs, "rbac.authorization.k8s.io", &["roles", "rolebindings", "clusterroles", "clusterrolebindings"], &[])
}

impl Api {
    /// A user who has these rules in the whole cluster.
    async fn user(&self, name: &str, rules: &[Value]) -> Identity {
        self.post(&format!("{RBAC}/clusterroles"), &role(&format!("of-{name}"), rules)).await.expect(201);
        let mut bound = binding(&format!("of-{name}"), "ClusterRole", &format!("of-{name}"));
        bound["subjects"][0]["name"] = json!(name);
        self.post(&format!("{RBAC}/clusterrolebindings"), &bound).await.expect(201);
        Identity::new(name, &[])
    }

    async fn may(&self, user: &str, namespace: &str, verb: &str, resource: &str) -> bool {
        let asked = json!({ "spec": { "user": user, "groups": ["system:authenticated"],
            "resourceAttributes": { "namespace": namespace, "verb": verb, "resource": resource } } });
        let answer = self.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &asked).await.expect(201);
        answer["status"]["allowed"] == true
    }
}

#[track_caller]
fn refused(answer: Answer, words: &str) {
    let status = answer.expect(403);
    assert!(status["message"].as_str().unwrap().contains(words), "{status}");
}

/// Every way to write the same change of `old`: a name for messages, the method, the type and the body.
fn ways(old: &Value, change: &Value) -> Vec<(&'static str, Method, &'static str, String, Value)> {
    let name = old["metadata"]["name"].as_str().unwrap();
    let path = format!("{RBAC}/clusterroles/{name}");
    let mut whole = old.clone();
    merge(&mut whole, change);
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/name", "value": name })];
    let parts = change.as_object().unwrap().iter();
    operations.extend(parts.map(|(key, _)| json!({ "op": "add", "path": format!("/{key}"), "value": whole[key] })));
    let mut applied = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": name } });
    merge(&mut applied, change);
    vec![
        ("update", Method::PUT, "application/json", path.clone(), whole),
        ("merge patch", Method::PATCH, MERGE, path.clone(), change.clone()),
        ("strategic merge patch", Method::PATCH, STRATEGIC, path.clone(), change.clone()),
        ("JSON patch", Method::PATCH, JSON, path.clone(), json!(operations)),
        ("apply", Method::PATCH, APPLY, format!("{path}?fieldManager=eve&force=true"), applied),
    ]
}

fn merge(object: &mut Value, change: &Value) {
    match (object.as_object_mut(), change.as_object()) {
        (Some(object), Some(change)) => {
            for (key, value) in change {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        _ => *object = change.clone(),
    }
}

/// [SE-67] [SE-68]
#[tokio::test]
async fn label_that_feeds_an_aggregated_role_needs_the_rules_of_the_labelled_one() {
    let api = Api::start().await;
    let eve = api.user("eve", &[rbac_writer()]).await;
    api.bind("b", "edit", "editor").await;
    let label = json!({ "metadata": { "labels": { TO_EDIT: "true" } } });
    for name in ["cluster-admin", "system:kube-controller-manager", "system:node"] {
        let old = api.get(&format!("{RBAC}/clusterroles/{name}")).await.expect(200);
        for (way, method, media, path, body) in ways(&old, &label) {
            let service = api.server.service_as(eve.clone());
            let answer = api.send_as(service, method, &path, &[("content-type", media)], body.to_string()).await;
            assert_eq!(answer.code, 403, "{name} by {way}: {}", answer.text);
            assert!(answer.text.contains("attempting to grant RBAC permissions not currently held"), "{}", answer.text);
        }
    }
    for name in ["admin", "view"] {
        let path = format!("{RBAC}/clusterroles/{name}");
        refused(api.patch_as(&eve, &path, MERGE, &label).await, NOT_HELD);
    }
    let stored = api.get(&format!("{RBAC}/clusterroles/cluster-admin")).await.expect(200);
    assert_eq!(stored["metadata"]["labels"].get(TO_EDIT), None);
    assert!(api.may("editor", "default", "delete", "pods").await, "an editor stays one");
    assert!(!api.may("editor", "default", "create", "roles").await, "and nothing more");

    // Whoever holds the rules may label the role that has them.
    api.post(&format!("{RBAC}/clusterroles"), &role("roles", &[rbac_writer()])).await.expect(201);
    api.patch_as(&eve, &format!("{RBAC}/clusterroles/roles"), MERGE, &label).await.expect(200);
}

/// [SE-69] A role is judged on its way in, whichever that is.
#[tokio::test]
async fn role_with_more_than_its_writer_has_is_refused_on_every_way_in() {
    let api = Api::start().await;
    let scale = rule(&["get"], "apps", &["*/scale"], &[]);
    let own = [rbac_writer(), rule(&["get"], "", &["pods", "secrets"], &["mine"]), scale.clone()];
    let eve = api.user("eve", &own).await;
    let roles = format!("{RBAC}/clusterroles");
    let url = json!({ "verbs": ["get"], "nonResourceURLs": ["*"] });
    for (what, wanted, allowed) in [
        ("its own", rule(&["get"], "", &["pods"], &["mine"]), true),
        ("a part of any", rule(&["get"], "apps", &["deployments/scale"], &[]), true),
        ("another verb", rule(&["delete"], "", &["pods"], &["mine"]), false),
        ("another name", rule(&["get"], "", &["pods"], &["mine", "yours"]), false),
        ("any name", rule(&["get"], "", &["pods"], &[]), false),
        ("another part", rule(&["get"], "apps", &["deployments/status"], &[]), false),
        ("any resource", rule(&["get"], "apps", &["*"], &[]), false),
        ("any group", rule(&["get"], "*", &["deployments/scale"], &[]), false),
        ("any path", url, false),
        ("any verb", rule(&["*"], "apps", &["deployments/scale"], &[]), false),
        ("escalate", rule(&["escalate", "bind"], "rbac.authorization.k8s.io", &["clusterroles"], &[]), false),
    ] {
        let wanted = role("wanted", &[wanted]);
        let put = format!("{roles}/wanted");
        let applied = format!("{put}?fieldManager=eve");
        for (way, method, media, path) in [
            ("create", Method::POST, "application/json", &roles),
            ("update that creates", Method::PUT, "application/json", &put),
            ("apply that creates", Method::PATCH, APPLY, &applied),
        ] {
            let service = api.server.service_as(eve.clone());
            let answer = api.send_as(service, method, path, &[("content-type", media)], wanted.to_string()).await;
            let expected = if allowed { 201 } else { 403 };
            assert_eq!(answer.code, expected, "{what} by {way}: {}", answer.text);
            if allowed {
                api.delete(&put).await.expect(200);
            } else {
                assert!(answer.text.contains("not currently held"), "{}", answer.text);
            }
        }
        let rules = json!({ "rules": wanted["rules"] });
        let old = api.post(&roles, &role("old", &[])).await.expect(201);
        for (way, method, media, path, body) in ways(&old, &rules).into_iter().filter(|_| !allowed) {
            let service = api.server.service_as(eve.clone());
            let answer = api.send_as(service, method, &path, &[("content-type", media)], body.to_string()).await;
            assert_eq!(answer.code, 403, "{what} by {way}: {}", answer.text);
        }
        api.delete(&format!("{roles}/old")).await.expect(200);
    }
}

#[tokio::test]
async fn change_of_garbage_collection_fields_alone_is_not_judged() {
    let api = Api::start().await;
    let eve = api.user("eve", &[rbac_writer()]).await;
    let collected = json!({ "metadata": { "finalizers": ["example.com/wait"],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u" }] } });
    let annotated = json!({ "metadata": { "annotations": { "example.com/note": "x" } } });
    let bindings = format!("{RBAC}/clusterrolebindings");
    api.post(&bindings, &binding("strong", "ClusterRole", "cluster-admin")).await.expect(201);
    for path in [format!("{RBAC}/clusterroles/system:node"), format!("{bindings}/strong")] {
        api.patch_as(&eve, &path, MERGE, &collected).await.expect(200);
        refused(api.patch_as(&eve, &path, MERGE, &annotated).await, NOT_HELD);
        let mut both = collected.clone();
        merge(&mut both, &annotated);
        refused(api.patch_as(&eve, &path, MERGE, &both).await, NOT_HELD);
    }
}

/// [SE-70]
#[tokio::test]
async fn aggregation_rule_is_for_those_who_may_do_everything() {
    let api = Api::start().await;
    let eve = api.user("eve", &[rbac_writer()]).await;
    let all = json!({ "verbs": ["*"], "nonResourceURLs": ["*"] });
    let root = api.user("root", &[rule(&["*"], "*", &["*"], &[]), all.clone()]).await;
    // Verbs one by one: a star would be the right to escalate, too.
    let many = ["get", "list", "watch", "create", "update", "patch", "delete", "bind", "impersonate"];
    let almost = api.user("almost", &[rule(&many, "*", &["*"], &[]), all.clone()]).await;
    let roles = format!("{RBAC}/clusterroles");
    let mut gathering = role("gathering", &[]);
    gathering["aggregationRule"] = json!({ "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] });
    let path = format!("{roles}/gathering");
    for user in [&eve, &almost] {
        refused(api.ask_as(user, Method::POST, &roles, &gathering).await, GATHERING);
        refused(api.ask_as(user, Method::PUT, &path, &gathering).await, GATHERING);
    }
    api.ask_as(&root, Method::POST, &roles, &gathering).await.expect(201);
    let wider = json!({ "aggregationRule": { "clusterRoleSelectors": [{}] } });
    for change in [wider, json!({ "aggregationRule": null }), json!({ "metadata": { "labels": { "x": "y" } } })] {
        for user in [&eve, &almost] {
            refused(api.patch_as(user, &path, MERGE, &change).await, GATHERING);
        }
    }
    api.post(&roles, &role("plain", &[])).await.expect(201);
    let set = json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] } });
    refused(api.patch_as(&eve, &format!("{roles}/plain"), MERGE, &set).await, GATHERING);
    api.patch_as(&root, &path, MERGE, &json!({ "aggregationRule": null })).await.expect(200);
    for (wrong, field) in [
        (json!({ "clusterRoleSelectors": [] }), "aggregationRule.clusterRoleSelectors"),
        (json!({}), "aggregationRule.clusterRoleSelectors"),
        (
            json!({ "clusterRoleSelectors": [{ "matchExpressions": [{ "key": "a", "operator": "Near" }] }] }),
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator",
        ),
    ] {
        let invalid = api.patch(&path, &json!({ "aggregationRule": wrong })).await.expect(422);
        assert_eq!(invalid["details"]["causes"][0]["field"], field, "{invalid}");
    }
}

/// A role that gathers has what is labelled now, not what was labelled once.
#[tokio::test]
async fn aggregated_role_loses_what_is_no_longer_labelled() {
    let api = Api::start().await;
    api.bind("b", "edit", "editor").await;
    let roles = format!("{RBAC}/clusterroles");
    let before = api.get(&format!("{roles}/edit")).await.expect(200);
    let query = format!("{roles}?watch=1&fieldSelector=metadata.name%3Dedit&resourceVersion={}", version(&before));
    let mut events = api.watch(&query).await;
    let mut more = role("more", &[rule(&["get"], "", &["nodes"], &[])]);
    more["metadata"]["labels"] = json!({ TO_EDIT: "true" });
    api.post(&roles, &more).await.expect(201);
    let shown = events.next().await.unwrap()["object"]["rules"].clone();
    assert!(shown.as_array().unwrap().contains(&more["rules"][0]), "{shown}");
    assert!(api.may("editor", "default", "get", "nodes").await);
    api.patch(&format!("{roles}/more"), &json!({ "metadata": { "labels": null } })).await.expect(200);
    assert!(!api.may("editor", "default", "get", "nodes").await, "from the next request on");
    assert_eq!(events.next().await.unwrap()["object"]["rules"], before["rules"]);
}

#[tokio::test]
async fn escalate_lets_its_holder_exceed_their_own_rights_by_name() {
    let api = Api::start().await;
    let escalate = |names: &[&str]| rule(&["escalate"], "rbac.authorization.k8s.io", &["clusterroles"], names);
    let named = api.user("named", &[rbac_writer(), escalate(&["one"])]).await;
    let any = api.user("any", &[rbac_writer(), escalate(&[])]).await;
    let roles = format!("{RBAC}/clusterroles");
    let nodes = |name: &str| role(name, &[rule(&["get"], "", &["nodes"], &[])]);
    refused(api.ask_as(&named, Method::POST, &roles, &nodes("one")).await, NOT_HELD);
    api.ask_as(&named, Method::PUT, &format!("{roles}/one"), &nodes("one")).await.expect(201);
    refused(api.ask_as(&named, Method::PUT, &format!("{roles}/two"), &nodes("two")).await, NOT_HELD);
    api.ask_as(&any, Method::POST, &roles, &nodes("two")).await.expect(201);
    let mut gathering = nodes("three");
    gathering["aggregationRule"] = json!({ "clusterRoleSelectors": [{}] });
    api.ask_as(&any, Method::POST, &roles, &gathering).await.expect(201);
}

/// [SE-71] [SE-72]
#[tokio::test]
async fn binding_needs_the_rules_of_its_role_or_the_right_to_bind_it() {
    let api = Api::start().await;
    let bind = |resource: &str, names: &[&str]| rule(&["bind"], "rbac.authorization.k8s.io", &[resource], names);
    let eve = api.user("eve", &[rbac_writer()]).await;
    let named = api.user("named", &[rbac_writer(), bind("clusterroles", &["view", "later"])]).await;
    let own = api.user("own", &[rbac_writer(), rule(&["get"], "", &["pods"], &[])]).await;
    let pods = role("pods", &[rule(&["get"], "", &["pods"], &[])]);
    api.post(&format!("{RBAC}/clusterroles"), &pods).await.expect(201);
    api.post(
        &format!("{RBAC}/namespaces/default/roles"),
        &json!({ "metadata": { "name": "local" },
        "rules": [rule(&["get"], "", &["secrets"], &[])] }),
    )
    .await
    .expect(201);
    let (wide, local) = (format!("{RBAC}/clusterrolebindings"), format!("{RBAC}/namespaces/default/rolebindings"));
    for (what, user, path, kind, role, code) in [
        ("a role that is not there", &eve, &wide, "ClusterRole", "missing", 404),
        ("one that is not there in the namespace", &eve, &local, "Role", "missing", 404),
        ("everything", &eve, &wide, "ClusterRole", "cluster-admin", 403),
        ("everything in a namespace", &eve, &local, "ClusterRole", "cluster-admin", 403),
        ("what the writer has not", &eve, &wide, "ClusterRole", "pods", 403),
        ("a local role of which the writer has nothing", &eve, &local, "Role", "local", 403),
        ("what the writer has", &own, &wide, "ClusterRole", "pods", 201),
        ("what the writer has, in a namespace", &own, &local, "ClusterRole", "pods", 201),
        ("a role that may be bound", &named, &wide, "ClusterRole", "view", 201),
        ("one that may be bound and is not there yet", &named, &wide, "ClusterRole", "later", 201),
        ("another one", &named, &wide, "ClusterRole", "edit", 403),
        ("a local one of the name of one that may be bound", &named, &local, "Role", "later", 404),
    ] {
        let sent = binding("wanted", kind, role);
        let put = format!("{path}/wanted");
        for (way, method, path) in [("create", Method::POST, path), ("update that creates", Method::PUT, &put)] {
            let answer = api.ask_as(user, method, path, &sent).await;
            assert_eq!(answer.code, code, "{what} by {way}: {}", answer.text);
            if code == 201 {
                api.delete(&put).await.expect(200);
            }
        }
    }
    // A change is judged like a new one.
    api.post(&wide, &binding("strong", "ClusterRole", "cluster-admin")).await.expect(201);
    let strong = format!("{wide}/strong");
    for change in [
        json!({ "subjects": [{ "kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io" }] }),
        json!({ "metadata": { "labels": { "a": "b" } } }),
    ] {
        refused(api.patch_as(&eve, &strong, MERGE, &change).await, NOT_HELD);
    }
    // Its role stays, even for those who may do everything.
    for role in ["view", "missing"] {
        let invalid = api.patch(&strong, &json!({ "roleRef": { "name": role } })).await.expect(422);
        assert_eq!(invalid["details"]["causes"][0]["field"], "roleRef", "{invalid}");
    }
}

/// The right to bind in one namespace ends there.
#[tokio::test]
async fn right_to_bind_counts_where_the_binding_is() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    let rules = [rbac_writer(), rule(&["bind"], "rbac.authorization.k8s.io", &["clusterroles"], &[])];
    api.post(&format!("{RBAC}/clusterroles"), &role("binder", &rules)).await.expect(201);
    api.bind("b", "binder", "bob").await;
    api.user("bob", &[rbac_writer()]).await;
    let sent = binding("wanted", "ClusterRole", "cluster-admin");
    for (path, code) in [
        (format!("{RBAC}/namespaces/default/rolebindings"), 201),
        (format!("{RBAC}/namespaces/kube-system/rolebindings"), 403),
        (format!("{RBAC}/clusterrolebindings"), 403),
    ] {
        assert_eq!(api.ask_as(&bob, Method::POST, &path, &sent).await.code, code, "{path}");
    }
}

/// The next start gives a default role its rules back, so whoever empties one has not made it harmless.
#[tokio::test]
async fn default_role_counts_as_what_the_next_start_makes_of_it() {
    let api = Api::start().await;
    let eve = api.user("eve", &[rbac_writer()]).await;
    let (roles, bindings) = (format!("{RBAC}/clusterroles"), format!("{RBAC}/clusterrolebindings"));
    let admin = format!("{roles}/cluster-admin");
    for emptied in [
        json!({ "rules": [] }),
        json!({ "rules": [], "metadata": { "labels": { TO_EDIT: "true" } } }),
        json!({ "rules": null, "metadata": { "annotations": { "x": "y" } } }),
    ] {
        refused(api.patch_as(&eve, &admin, MERGE, &emptied).await, NOT_HELD);
    }
    // Nor is it deleted to be made anew by somebody else, alone or among all.
    refused(api.ask_as(&eve, Method::DELETE, &admin, &json!({})).await, NOT_HELD);
    let among = format!("{roles}?fieldSelector=metadata.name%3Dcluster-admin");
    api.ask_as(&eve, Method::DELETE, &among, &json!({})).await.expect(200);
    api.get(&admin).await.expect(200);
    let mut made = role("cluster-admin", &[]);
    made["metadata"]["annotations"] = json!({ "rbac.authorization.kubernetes.io/autoupdate": "true" });
    api.delete(&admin).await.expect(200);
    refused(api.ask_as(&eve, Method::POST, &roles, &made).await, NOT_HELD);
    // An administrator emptied it, and did not say that it is to stay so.
    api.post(&roles, &made).await.expect(201);
    refused(api.ask_as(&eve, Method::POST, &bindings, &binding("up", "ClusterRole", "cluster-admin")).await, NOT_HELD);
    // The roles of our own controllers come back in the same way.
    let collector = format!("{roles}/system:controller:generic-garbage-collector");
    refused(api.patch_as(&eve, &collector, MERGE, &json!({ "rules": [] })).await, NOT_HELD);
    refused(api.ask_as(&eve, Method::DELETE, &collector, &json!({})).await, NOT_HELD);
    let api = api.restart().await;
    let restored = api.get(&admin).await.expect(200);
    assert_eq!(restored["rules"].as_array().map(Vec::len), Some(2), "{restored}");
}

/// [SE-74]
#[tokio::test]
async fn impersonation_is_judged_header_by_header_and_drops_nothing() {
    let api = Api::start().await;
    let impersonate = |group: &str, resource: &str, names: &[&str]| rule(&["impersonate"], group, &[resource], names);
    let rules = [
        impersonate("", "users", &["alice", "system:anonymous"]),
        impersonate("", "groups", &["dev", "system:unauthenticated"]),
        impersonate("", "serviceaccounts", &["robot"]),
        impersonate("authentication.k8s.io", "uids", &["u1"]),
        impersonate("authentication.k8s.io", "userextras/scopes", &["read"]),
    ];
    let eve = api.user("eve", &rules).await;
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let robot = "system:serviceaccount:default:robot";
    let user = ("impersonate-user", "alice");
    let cases: Vec<(&str, Headers<'_>, u16)> = vec![
        ("a user", vec![user], 201),
        ("a user without the right", vec![("impersonate-user", "bob")], 403),
        ("a group", vec![user, ("impersonate-group", "dev")], 201),
        ("a group without the right", vec![user, ("impersonate-group", "system:masters")], 403),
        ("two groups, one without", vec![user, ("impersonate-group", "dev"), ("impersonate-group", "ops")], 403),
        ("an account", vec![("impersonate-user", robot)], 201),
        ("another account", vec![("impersonate-user", "system:serviceaccount:default:other")], 403),
        ("what only looks like an account", vec![("impersonate-user", "system:serviceaccount:default:robot:x")], 403),
        ("a uid", vec![user, ("impersonate-uid", "u1")], 201),
        ("a uid without the right", vec![user, ("impersonate-uid", "u2")], 403),
        ("an extra", vec![user, ("impersonate-extra-scopes", "read")], 201),
        ("an extra without the right", vec![user, ("impersonate-extra-scopes", "write")], 403),
        ("another extra", vec![user, ("impersonate-extra-other", "read")], 403),
        ("a group and no user", vec![("impersonate-group", "dev")], 400),
        ("a uid and no user", vec![("impersonate-uid", "u1")], 400),
        ("an extra and no user", vec![("impersonate-extra-scopes", "read")], 400),
        ("an empty user", vec![("impersonate-user", "")], 400),
        ("two users", vec![user, ("impersonate-user", "alice")], 400),
        ("two uids", vec![user, ("impersonate-uid", "u1"), ("impersonate-uid", "u1")], 400),
        ("what is not known", vec![user, ("impersonate-tenant", "x")], 400),
        ("a group beyond ASCII", vec![user, ("impersonate-group", "d\u{e9}v")], 400),
        ("a user beyond ASCII", vec![("impersonate-user", "\u{e9}ve")], 400),
        ("a uid beyond ASCII", vec![user, ("impersonate-uid", "\u{e9}")], 400),
        ("an extra beyond ASCII", vec![user, ("impersonate-extra-scopes", "\u{e9}")], 400),
    ];
    for (what, headers, code) in cases {
        let mut headers = headers;
        headers.push(("content-type", "application/json"));
        let answer = api.send_as(api.server.service_as(eve.clone()), Method::POST, me, &headers, "{}").await;
        assert_eq!(answer.code, code, "{what}: {}", answer.text);
    }
    // Who comes out of it: the anonymous stay unknown, others are known unless it is said that they are not.
    for (headers, groups) in [
        (vec![user], json!(["system:authenticated"])),
        (vec![user, ("impersonate-group", "dev")], json!(["dev", "system:authenticated"])),
        (
            vec![("impersonate-user", robot)],
            json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]),
        ),
        (vec![("impersonate-user", robot), ("impersonate-group", "dev")], json!(["dev", "system:authenticated"])),
    ] {
        let mut sent = headers.clone();
        sent.push(("content-type", "application/json"));
        let answer = api.send_as(api.server.service_as(eve.clone()), Method::POST, me, &sent, "{}").await.expect(201);
        assert_eq!(answer["status"]["userInfo"]["groups"], groups, "{headers:?}");
    }
    for unknown in [
        [("impersonate-user", "system:anonymous"), ("impersonate-group", "dev")],
        [user, ("impersonate-group", "system:unauthenticated")],
    ] {
        let answer = api.send_as(api.server.service_as(eve.clone()), Method::GET, "/api", &unknown, "").await;
        assert_eq!(answer.code, 403, "{unknown:?} are not authenticated: {}", answer.text);
    }
}

/// Secrets of pods whose account says which ones they may have: volumes, environments, pulls, and what comes later.
#[tokio::test]
async fn account_that_lists_its_secrets_lets_pods_use_no_others() {
    let api = Api::start().await;
    let account = json!({ "metadata": { "name": "strict",
            "annotations": { "kubernetes.io/enforce-mountable-secrets": "true" } },
        "secrets": [{ "name": "own" }], "imagePullSecrets": [{ "name": "pull" }] });
    api.post(&format!("{DEFAULT}/serviceaccounts"), &account).await.expect(201);
    let pods = format!("{DEFAULT}/pods");
    let variable =
        |secret: &str| json!([{ "name": "V", "valueFrom": { "secretKeyRef": { "name": secret, "key": "k" } } }]);
    let from = |secret: &str| json!([{ "secretRef": { "name": secret } }]);
    let init = |key: &str, value: Value| {
        let mut container = json!({ "name": "first", "image": "busybox" });
        container[key] = value;
        json!([container])
    };
    let ways: [(&str, &str, Reference<'_>); 7] = [
        ("a volume", "/spec/volumes", Box::new(|secret| json!([{ "name": "v", "secret": { "secretName": secret } }]))),
        (
            "a projected volume",
            "/spec/volumes",
            Box::new(|secret| json!([{ "name": "v", "projected": { "sources": [{ "secret": { "name": secret } }] } }])),
        ),
        ("a variable", "/spec/containers/0/env", Box::new(variable)),
        ("an environment", "/spec/containers/0/envFrom", Box::new(from)),
        ("a variable of an init container", "/spec/initContainers", Box::new(|s| init("env", variable(s)))),
        ("an environment of an init container", "/spec/initContainers", Box::new(|s| init("envFrom", from(s)))),
        ("a pull", "/spec/imagePullSecrets", Box::new(|secret| json!([{ "name": secret }]))),
    ];
    for (what, at, make) in ways {
        let own = if what == "a pull" { "pull" } else { "own" };
        for (secret, code) in [(own, 201), ("foreign", 403)] {
            let mut sent = pod("p");
            sent["spec"]["serviceAccountName"] = json!("strict");
            let (parent, key) = at.rsplit_once('/').unwrap();
            sent.pointer_mut(parent).unwrap()[key] = make(secret);
            let answer = api.post(&pods, &sent).await;
            assert_eq!(answer.code, code, "{what} with {secret}: {}", answer.text);
            if code == 201 {
                api.delete(&format!("{pods}/p?gracePeriodSeconds=0")).await.expect(200);
            } else {
                assert!(
                    answer.text.contains("is not allowed because service account strict does not"),
                    "{}",
                    answer.text
                );
            }
        }
    }
    api.running_pod("p", |pod| pod["spec"]["serviceAccountName"] = json!("strict")).await;
    let path = format!("{pods}/p/ephemeralcontainers");
    for (key, make) in [("env", &variable as &dyn Fn(&str) -> Value), ("envFrom", &from)] {
        for (secret, code) in [("foreign", 403), ("own", 200)] {
            let mut container = json!({ "name": format!("debug-{}", key.to_lowercase()), "image": "busybox" });
            container[key] = make(secret);
            let added = json!({ "spec": { "ephemeralContainers": [container] } });
            let headers = [("content-type", STRATEGIC)];
            let answer = api.send(Method::PATCH, &path, &headers, added.to_string()).await;
            assert_eq!(answer.code, code, "{key} with {secret}: {}", answer.text);
        }
    }
}
