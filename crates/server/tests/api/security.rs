//! Who may do what: roles, bindings, tokens, and the questions about them.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Answer, Api, configmap, pod, version};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

impl Api {
    pub async fn ask_as(&self, user: &Identity, method: Method, path: &str, body: &Value) -> Answer {
        let service = self.server.service_as(user.clone());
        self.send_as(service, method, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub async fn get_as(&self, user: &Identity, path: &str) -> u16 {
        let service = self.server.service_as(user.clone());
        self.send_as(service, Method::GET, path, &[], Bytes::new()).await.code
    }

    /// A request that carries nothing but a token.
    pub async fn with_token(&self, token: &str, path: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        self.send_as(self.server.service(), Method::GET, path, &headers, Bytes::new()).await
    }

    pub async fn bind(&self, name: &str, role: &str, user: &str) {
        let binding = json!({ "metadata": { "name": name }, "subjects": [{ "kind": "User", "name": user }],
            "roleRef": { "kind": "ClusterRole", "name": role } });
        self.post(&format!("{RBAC}/namespaces/default/rolebindings"), &binding).await.expect(201);
    }

    pub async fn token(&self, account: &str, spec: &Value) -> Answer {
        let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        self.post(&path, &body).await
    }
}

#[tokio::test]
async fn a_binding_counts_from_the_next_request_and_ends_with_itself() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    assert_eq!(api.get_as(&bob, CONFIGMAPS).await, 403);
    assert_eq!(api.get_as(&bob, "/api/v1").await, 200, "discovery is everybody's");
    api.bind("b", "view", "bob").await;
    assert_eq!(api.get_as(&bob, CONFIGMAPS).await, 200);
    assert_eq!(api.get_as(&bob, "/api/v1/namespaces/default/secrets").await, 403, "view does not show secrets");
    assert_eq!(api.get_as(&bob, "/api/v1/namespaces/kube-system/configmaps").await, 403);
    assert_eq!(api.ask_as(&bob, Method::POST, CONFIGMAPS, &configmap("c")).await.code, 403);
    api.delete(&format!("{RBAC}/namespaces/default/rolebindings/b")).await.expect(200);
    assert_eq!(api.get_as(&bob, CONFIGMAPS).await, 403);
}

#[tokio::test]
async fn roles_gather_what_others_add_to_them() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    api.bind("b", "view", "bob").await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    assert_eq!(api.get_as(&bob, leases).await, 403);
    let more = json!({ "metadata": { "name": "more", "labels": { "rbac.authorization.k8s.io/aggregate-to-view": "true" } },
        "rules": [{ "verbs": ["list"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"] }] });
    api.post(&format!("{RBAC}/clusterroles"), &more).await.expect(201);
    assert_eq!(api.get_as(&bob, leases).await, 200);
}

/// What is gathered can be read in the role, and goes with the one it came from.
#[tokio::test]
async fn a_role_shows_what_it_gathers() {
    let api = Api::start().await;
    let roles = format!("{RBAC}/clusterroles");
    let whole = json!({ "metadata": { "name": "whole" },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "part-of": "whole" } }] }, "rules": [] });
    let made = api.post(&roles, &whole).await.expect(201);
    let query = format!("{roles}?watch=1&fieldSelector=metadata.name%3Dwhole&resourceVersion={}", version(&made));
    let mut events = api.watch(&query).await;
    let rule = json!({ "verbs": ["list"], "apiGroups": [""], "resources": ["pods"] });
    let part = json!({ "metadata": { "name": "part", "labels": { "part-of": "whole" } }, "rules": [rule] });
    api.post(&roles, &part).await.expect(201);
    assert_eq!(events.next().await.unwrap()["object"]["rules"], json!([rule]));
    api.delete(&format!("{roles}/part")).await.expect(200);
    assert_eq!(events.next().await.unwrap()["object"]["rules"], json!([]));
}

#[tokio::test]
async fn role_that_exceeds_the_writers_rights_is_refused() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    api.bind("b", "admin", "bob").await;
    let roles = format!("{RBAC}/namespaces/default/roles");
    let role = |resource: &str| {
        json!({ "metadata": { "name": resource }, "rules": [
        { "verbs": ["get"], "apiGroups": [""], "resources": [resource] }] })
    };
    api.ask_as(&bob, Method::POST, &roles, &role("pods")).await.expect(201);
    let refused = api.ask_as(&bob, Method::POST, &roles, &role("nodes")).await.expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("attempting to grant RBAC permissions not currently held"), "{message}");
    assert!(message.ends_with(r#"{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}"#), "{message}");
    let binding = json!({ "metadata": { "name": "up" }, "subjects": [{ "kind": "User", "name": "bob" }],
        "roleRef": { "kind": "ClusterRole", "name": "cluster-admin" } });
    let path = format!("{RBAC}/namespaces/default/rolebindings");
    assert_eq!(api.ask_as(&bob, Method::POST, &path, &binding).await.code, 403);
    // Nor by changing a role that they already have.
    let patch = json!({ "rules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }] });
    let service = api.server.service_as(bob);
    let headers = [("content-type", "application/merge-patch+json")];
    let answer = api.send_as(service, Method::PATCH, &format!("{roles}/pods"), &headers, patch.to_string()).await;
    assert_eq!(answer.code, 403);
}

#[tokio::test]
async fn a_token_is_its_account_until_the_account_or_the_pod_is_gone() {
    let api = Api::start().await;
    let made = api.token("default", &json!({})).await.expect(201);
    let token = made["status"]["token"].as_str().unwrap();
    assert_eq!(made["spec"]["expirationSeconds"], 3600);
    assert_eq!(api.with_token(token, "/api").await.code, 200);
    let refused = api.with_token(token, CONFIGMAPS).await.expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains(r#"User "system:serviceaccount:default:default" cannot list"#), "{message}");
    assert_eq!(api.with_token("rubbish", "/version").await.code, 401);

    api.post("/api/v1/namespaces/default/pods", &pod("p")).await.expect(201);
    let reference = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "p" } });
    let bound = api.token("default", &reference).await.expect(201);
    let bound = bound["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(api.with_token(&bound, "/api").await.code, 200);
    api.delete("/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0").await.expect(200);
    assert_eq!(api.with_token(&bound, "/api").await.code, 401);
    // A new account of the same name is another account.
    api.delete("/api/v1/namespaces/default/serviceaccounts/default").await.expect(200);
    assert_eq!(api.with_token(token, "/api").await.code, 401);
}

#[tokio::test]
async fn tokens_are_refused_to_those_they_are_not_meant_for() {
    let api = Api::start().await;
    assert_eq!(api.token("nobody", &json!({})).await.code, 404);
    for (seconds, why) in [(599_i64, "less than 10 minutes"), (1 << 33, "larger than 2^32 seconds")] {
        let refused = api.token("default", &json!({ "expirationSeconds": seconds })).await.expect(422);
        let said = format!("spec.expirationSeconds: Invalid value: {seconds}: may not specify a duration {why}");
        let name = "TokenRequest.authentication.k8s.io \"\" is invalid";
        assert_eq!(refused["message"], format!("{name}: {said}"));
    }
    let long = api.token("default", &json!({ "expirationSeconds": 90_000_000 })).await;
    let cut = "299 - \"requested expiration of 90000000 seconds shortened to 31536000 seconds\"";
    assert_eq!(long.warnings(), [cut]);
    assert_eq!(long.expect(201)["spec"]["expirationSeconds"], 31_536_000);
    assert!(api.token("default", &json!({ "expirationSeconds": 31_536_000 })).await.warnings().is_empty());
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let uid = api.get(account).await.expect(200)["metadata"]["uid"].clone();
    let about = |uid: &Value| json!({ "metadata": { "uid": uid }, "spec": {} });
    let known = api.post(&format!("{account}/token"), &about(&uid)).await.expect(201);
    assert_eq!(known["metadata"]["uid"], uid, "a request is about its account");
    let other = api.post(&format!("{account}/token"), &about(&json!("another"))).await.expect(409);
    assert!(other["message"].as_str().unwrap().contains("(another) does not match the UID"), "{other}");
    let map = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "ConfigMap", "name": "m" } });
    let refused = api.token("default", &map).await.expect(400);
    assert_eq!(refused["message"], "cannot bind token to object of type /v1, Kind=ConfigMap");
    let elsewhere = api.token("default", &json!({ "audiences": ["vault"] })).await.expect(201);
    let token = elsewhere["status"]["token"].as_str().unwrap();
    assert_eq!(api.with_token(token, "/api").await.code, 401, "it is for somebody else");
    let review = |audiences: &[&str]| json!({ "spec": { "token": token, "audiences": audiences } });
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let known = api.post(reviews, &review(&["vault"])).await.expect(201);
    assert_eq!(known["status"]["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(known["status"]["audiences"], json!(["vault"]));
    assert!(api.post(reviews, &review(&[])).await.expect(201)["status"].get("authenticated").is_none());

    // A node gets tokens for its own pods only.
    api.server.publish_root_ca("PEM");
    let uid = api.running_pod("p", |_| ()).await["metadata"]["uid"].clone();
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let body = |name: &str| json!({ "spec": { "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid } } });
    api.ask_as(&Identity::node("n1"), Method::POST, path, &body("p")).await.expect(201);
    api.ask_as(&Identity::node("n2"), Method::POST, path, &body("p")).await.expect(403);
    api.ask_as(&Identity::node("n1"), Method::POST, path, &json!({ "spec": {} })).await.expect(403);
}

#[tokio::test]
async fn reviews_say_what_requests_would_find() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &["dev"]);
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = |verb: &str| {
        json!({ "spec": { "resourceAttributes": {
        "namespace": "default", "verb": verb, "resource": "pods" } } })
    };
    let answer = api.ask_as(&bob, Method::POST, own, &ask("list")).await.expect(201);
    assert_eq!(answer["status"]["allowed"], false);
    api.bind("b", "view", "bob").await;
    let answer = api.ask_as(&bob, Method::POST, own, &ask("list")).await.expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    assert_eq!(answer["status"]["reason"], r#"RBAC: allowed by RoleBinding "b/default" of ClusterRole "view""#);
    let about = json!({ "spec": { "user": "bob", "resourceAttributes": {
        "namespace": "default", "verb": "delete", "resource": "pods" } } });
    let answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &about).await.expect(201);
    assert_eq!(answer["status"]["allowed"], false);
    let local = "/apis/authorization.k8s.io/v1/namespaces/kube-system/localsubjectaccessreviews";
    assert_eq!(api.post(local, &about).await.code, 422);
    let me = api.ask_as(&bob, Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})).await;
    assert_eq!(
        me.expect(201)["status"]["userInfo"],
        json!({ "username": "bob", "groups": ["dev", "system:authenticated"] })
    );
    let rules = json!({ "spec": { "namespace": "default" } });
    let all = api.ask_as(&bob, Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &rules).await;
    let all = all.expect(201);
    let pods = all["status"]["resourceRules"]
        .as_array()
        .unwrap()
        .iter()
        .any(|rule| rule["resources"].to_string().contains("\"pods\""));
    assert!(pods && all["status"]["incomplete"] == false);
    // A question has no table form.
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"), ("content-type", "application/json")];
    assert_eq!(api.send(Method::POST, own, &headers, ask("list").to_string()).await.code, 406);
}

#[tokio::test]
async fn impersonation_is_a_right_like_any_other() {
    let api = Api::start().await;
    let as_bob = [("impersonate-user", "bob"), ("impersonate-group", "dev")];
    assert_eq!(api.send(Method::GET, CONFIGMAPS, &as_bob, "").await.code, 403, "bob may not");
    let eve = api.server.service_as(Identity::new("eve", &[]));
    let refused = api.send_as(eve, Method::GET, "/api", &as_bob, "").await.expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.starts_with(r#"users "bob" is forbidden: User "eve" cannot impersonate resource "users""#),
        "{message}"
    );
    let nobody =
        api.send_as(api.server.service(), Method::GET, "/api", &[("impersonate-user", "kubernetes-admin")], "");
    assert_eq!(nobody.await.code, 403);
    let forged = api.send_as(api.server.service(), Method::GET, "/api", &[("x-remote-user", "kubernetes-admin")], "");
    assert_eq!(forged.await.code, 403);
}

#[tokio::test]
async fn a_right_to_one_object_lets_a_client_watch_that_one() {
    let api = Api::start().await;
    let bob = Identity::new("bob", &[]);
    let role = json!({ "metadata": { "name": "one" }, "rules": [
        { "verbs": ["list", "watch", "create"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"] }] });
    api.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    api.bind("b", "one", "bob").await;
    assert_eq!(api.get_as(&bob, &format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dmine")).await, 200);
    assert_eq!(api.get_as(&bob, &format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dyours")).await, 403);
    assert_eq!(api.get_as(&bob, &format!("{CONFIGMAPS}?fieldSelector=metadata.name%21%3Dmine")).await, 403);
    // A create is not limited by what it selects.
    let path = format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dmine");
    assert_eq!(api.ask_as(&bob, Method::POST, &path, &configmap("yours")).await.code, 403);
    assert_eq!(api.get_as(&bob, CONFIGMAPS).await, 403);
}

/// [AD-78] Time is moved by moving the stored deadline.
#[tokio::test]
async fn a_pods_token_outlives_its_deadline_by_a_minute() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    let reference = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": "p" } });
    let made = api.token("default", &reference).await.expect(201);
    let token = made["status"]["token"].as_str().unwrap();
    api.delete("/api/v1/namespaces/default/pods/p").await.expect(200);
    assert_eq!(api.with_token(token, "/api").await.code, 200, "the whole grace long");
    let key = store::Key::new("pods", "default", "p");
    for (ago, code) in [(55, 200), (61, 401)] {
        let stored = api.store.get(&key).unwrap();
        let mut value = stored.to_value();
        let deadline = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(ago);
        value["metadata"]["deletionTimestamp"] = json!(deadline.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        let step = store::Step::Put { key: key.clone(), value };
        api.store.write(&key, store::Expect::Revision(stored.revision), vec![step]).await.unwrap();
        assert_eq!(api.with_token(token, "/api").await.code, code, "{ago} s after the deadline");
    }
}

#[tokio::test]
async fn a_pod_gets_its_accounts_token_unless_someone_says_no() {
    let api = Api::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    api.server.publish_root_ca("PEM");
    let mut sent = pod("p");
    sent["spec"]["initContainers"] = json!([{ "name": "first", "image": "busybox" }]);
    let made = api.post(pods, &sent).await.expect(201);
    let volume = &made["spec"]["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-"), "{name}");
    assert_eq!(volume["projected"]["defaultMode"], 420);
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
    for key in ["containers", "initContainers"] {
        let mount =
            json!({ "name": name, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true });
        assert_eq!(made["spec"][key][0]["volumeMounts"], json!([mount]));
    }
    let mut refused = pod("without");
    refused["spec"]["automountServiceAccountToken"] = json!(false);
    assert!(api.post(pods, &refused).await.expect(201)["spec"]["volumes"].is_null());
    let account = json!({ "metadata": { "name": "quiet" }, "automountServiceAccountToken": false });
    api.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let mut quiet = pod("quiet");
    quiet["spec"]["serviceAccountName"] = json!("quiet");
    assert!(api.post(pods, &quiet).await.expect(201)["spec"]["volumes"].is_null());
}

#[tokio::test]
async fn a_node_reaches_what_its_pods_need_and_nothing_else() {
    let api = Api::start().await;
    let (mine, other) = (Identity::node("n1"), Identity::node("n2"));
    let base = "/api/v1/namespaces/default";
    for name in ["used", "unused"] {
        api.post(&format!("{base}/secrets"), &json!({ "metadata": { "name": name } })).await.expect(201);
        api.post(&format!("{base}/configmaps"), &configmap(name)).await.expect(201);
    }
    assert_eq!(api.get_as(&mine, &format!("{base}/secrets/used")).await, 403, "no pod yet");
    api.running_pod("p", |pod| {
        pod["spec"]["volumes"] = json!([{ "name": "v", "secret": { "secretName": "used" } }]);
        pod["spec"]["containers"][0]["envFrom"] = json!([{ "configMapRef": { "name": "used" } }]);
    })
    .await;
    for kind in ["secrets", "configmaps"] {
        let by_name = format!("{base}/{kind}?fieldSelector=metadata.name%3Dused");
        for path in [format!("{base}/{kind}/used"), by_name] {
            assert_eq!(api.get_as(&mine, &path).await, 200, "{path}");
            assert_eq!(api.get_as(&other, &path).await, 403, "{path}");
        }
        assert_eq!(api.get_as(&mine, &format!("{base}/{kind}/unused")).await, 403);
        assert_eq!(api.get_as(&mine, &format!("{base}/{kind}")).await, 403, "not all of them");
    }
    // Pods: its own.
    assert_eq!(api.get_as(&mine, &format!("{base}/pods/p")).await, 200);
    assert_eq!(api.get_as(&other, &format!("{base}/pods/p")).await, 403);
    assert_eq!(api.get_as(&mine, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await, 200);
    assert_eq!(api.get_as(&other, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await, 403);
    assert_eq!(api.get_as(&mine, "/api/v1/pods").await, 403);
    let status = json!({ "status": { "phase": "Running" } });
    let headers = [("content-type", "application/merge-patch+json")];
    for (node, code) in [(&mine, 200), (&other, 403)] {
        let service = api.server.service_as(node.clone());
        let path = format!("{base}/pods/p/status");
        assert_eq!(api.send_as(service, Method::PATCH, &path, &headers, status.to_string()).await.code, code);
    }
    // Its own object and lease, and mirrors of its own static pods.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    for (name, code) in [("n1", 201), ("n2", 403)] {
        let object = json!({ "metadata": { "name": name } });
        assert_eq!(api.ask_as(&mine, Method::POST, "/api/v1/nodes", &object).await.code, code);
        assert_eq!(api.ask_as(&mine, Method::POST, leases, &object).await.code, code);
    }
    let mut mirror = pod("static-n1");
    mirror["spec"]["nodeName"] = json!("n1");
    assert_eq!(api.ask_as(&mine, Method::POST, &format!("{base}/pods"), &mirror).await.code, 403, "not a mirror");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    let own = api.get("/api/v1/nodes/n1").await.expect(200);
    mirror["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1",
        "uid": own["metadata"]["uid"], "controller": true }]);
    assert_eq!(api.ask_as(&other, Method::POST, &format!("{base}/pods"), &mirror).await.code, 403, "not its own");
    assert_eq!(api.ask_as(&mine, Method::POST, &format!("{base}/pods"), &mirror).await.code, 201);
    // What a pod no longer needs is out of reach again.
    api.delete(&format!("{base}/pods/p?gracePeriodSeconds=0")).await.expect(200);
    assert_eq!(api.get_as(&mine, &format!("{base}/secrets/used")).await, 403);
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

pub fn token_secret(name: &str, account: &str) -> Value {
    json!({ "metadata": { "name": name, "annotations": { "kubernetes.io/service-account.name": account } },
        "type": "kubernetes.io/service-account-token" })
}

pub fn decoded(secret: &Value, key: &str) -> String {
    use base64::Engine as _;
    let text = secret["data"][key].as_str().unwrap_or_default();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
}

#[tokio::test]
async fn a_token_secret_is_filled_once_it_is_made_and_dies_with_itself() {
    let api = Api::start().await;
    api.server.publish_root_ca("a CA");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = api.post(accounts, &json!({ "metadata": { "name": "robot" } })).await.expect(201);
    let made = api.post(SECRETS, &token_secret("t", "robot")).await.expect(201);
    assert_eq!(made.get("data"), None, "whoever may only make secrets is not told what comes into them");
    let mut events = api.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&made))).await;
    let made = events.next().await.unwrap()["object"].clone();
    assert_eq!(made["metadata"]["annotations"]["kubernetes.io/service-account.uid"], account["metadata"]["uid"]);
    assert_eq!((decoded(&made, "namespace").as_str(), decoded(&made, "ca.crt").as_str()), ("default", "a CA"));
    let token = decoded(&made, "token");
    assert_eq!(api.with_token(&token, "/api/v1").await.code, 200);
    let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
    let review = api.post("/apis/authentication.k8s.io/v1/tokenreviews", &asked).await.expect(201);
    assert_eq!(review["status"]["user"]["username"], "system:serviceaccount:default:robot");

    // What is taken out of it comes back.
    let path = format!("{SECRETS}/t");
    let emptied = api.patch(&path, &json!({ "data": null })).await.expect(200);
    let mut events = api.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&emptied))).await;
    let filled = events.next().await.unwrap()["object"].clone();
    assert_eq!(api.with_token(&decoded(&filled, "token"), "/api/v1").await.code, 200);
    assert_eq!(decoded(&filled, "namespace"), "default");

    api.delete(&path).await.expect(200);
    assert_eq!(api.with_token(&token, "/api/v1").await.code, 401);
}

#[tokio::test]
async fn a_token_secret_needs_its_account_and_goes_with_it() {
    let api = Api::start().await;
    let refused = api.post(SECRETS, &token_secret("t", "nobody")).await.expect(422);
    let message =
        "Secret \"t\" is invalid: metadata.annotations[kubernetes.io/service-account.name]: Not found: \"nobody\"";
    assert_eq!(refused["message"], message);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for name in ["robot", "other"] {
        api.post(accounts, &json!({ "metadata": { "name": name } })).await.expect(201);
        let made = api.post(SECRETS, &token_secret(name, name)).await.expect(201);
        let mut events = api.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&made))).await;
        assert_eq!(events.next_line().await, format!("MODIFIED {name}"), "it is filled");
    }
    let mut stranger = token_secret("stranger", "robot");
    stranger["metadata"]["annotations"]["kubernetes.io/service-account.uid"] = json!("of another one");
    assert_eq!(api.post(SECRETS, &stranger).await.code, 422);
    let listed = api.get(SECRETS).await.expect(200);
    let mut events = api.watch(&format!("{SECRETS}?watch=1&resourceVersion={}", version(&listed))).await;
    api.delete(&format!("{accounts}/robot")).await.expect(200);
    assert_eq!(events.next_line().await, "DELETED robot");
    api.get(&format!("{SECRETS}/other")).await.expect(200);
}
