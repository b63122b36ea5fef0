//! How far a node's word reaches, and how long a token is good. The rules are upstream's; the table in `docs/security.md` names
//! the tests here.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Api, pod, version};
use crate::security::{decoded, token_secret};

const DEFAULT: &str = "/api/v1/namespaces/default";
const NODES: &str = "/api/v1/nodes";
const MERGE: &str = "application/merge-patch+json";

impl Api {
    /// Registers a node by itself. Answers its UID.
    async fn registered(&self, name: &str) -> Value {
        let node = Identity::node(name);
        let made = self.ask_as(&node, Method::POST, NODES, &json!({ "metadata": { "name": name } })).await.expect(201);
        made["metadata"]["uid"].clone()
    }
}

fn mirror(owner: &Value) -> Value {
    let mut mirror = pod("static-n1");
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    mirror["metadata"]["ownerReferences"] = json!([owner]);
    mirror["spec"]["nodeName"] = json!("n1");
    mirror
}

/// [SE-87]
#[tokio::test]
async fn mirror_pod_is_owned_by_its_node_and_refers_to_nothing() {
    let api = Api::start().await;
    let node = Identity::node("n1");
    let pods = format!("{DEFAULT}/pods");
    let owner =
        |uid: &Value| json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid, "controller": true });
    assert_eq!(api.ask_as(&node, Method::POST, &pods, &mirror(&owner(&json!("u")))).await.code, 404, "no node yet");
    let uid = api.registered("n1").await;
    let right = owner(&uid);
    let owners = |owners: Value| {
        let right = right.clone();
        move || {
            let mut sent = mirror(&right);
            sent["metadata"]["ownerReferences"] = owners.clone();
            sent
        }
    };
    let with = |change: Value| {
        let mut owner = right.clone();
        change.as_object().unwrap().iter().for_each(|(key, value)| owner[key] = value.clone());
        owners(json!([owner]))
    };
    let set = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true });
    for (what, make, words) in [
        ("no owner", owners(json!(null)), "with an owner reference set to itself"),
        ("two owners", owners(json!([right, set])), "with a single owner reference set to itself"),
        ("another kind of owner", owners(json!([set])), "with an owner reference set to itself"),
        ("another node", with(json!({ "name": "n2" })), "with an owner reference set to itself"),
        ("an owner that does not control", with(json!({ "controller": false })), "controller owner reference"),
        ("an owner that is held", with(json!({ "blockOwnerDeletion": true })), "must not set blockOwnerDeletion"),
        ("an earlier node", with(json!({ "uid": "other" })), "UID mismatch"),
    ] {
        let refused = api.ask_as(&node, Method::POST, &pods, &make()).await;
        assert_eq!(refused.code, 403, "{what}: {}", refused.text);
        assert!(refused.text.contains(words), "{what}: {}", refused.text);
    }
    let volume = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!({ "volumes": [volume] })
    };
    let projected = |source: Value| volume(json!({ "projected": { "sources": [source] } }));
    let container = |key: &str, value: Value| {
        let mut container = json!({ "name": "app", "image": "busybox" });
        container[key] = json!([value]);
        json!({ "containers": [container] })
    };
    for (what, spec) in [
        ("an account", json!({ "serviceAccountName": "default" })),
        ("an account by its old name", json!({ "serviceAccount": "default" })),
        ("a pull secret", json!({ "imagePullSecrets": [{ "name": "s" }] })),
        ("a secret", volume(json!({ "secret": { "secretName": "s" } }))),
        ("a configmap", volume(json!({ "configMap": { "name": "c" } }))),
        ("a claim", volume(json!({ "persistentVolumeClaim": { "claimName": "c" } }))),
        (
            "a claim of its own",
            volume(json!({ "ephemeral": { "volumeClaimTemplate": { "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } } } })),
        ),
        ("a driver", volume(json!({ "csi": { "driver": "example.com" } }))),
        (
            "a secret of a disk",
            volume(json!({ "iscsi": { "targetPortal": "1.2.3.4", "iqn": "iqn.2001-04.com.example:a",
            "lun": 0, "secretRef": { "name": "s" } } })),
        ),
        ("a projected secret", projected(json!({ "secret": { "name": "s" } }))),
        ("a projected configmap", projected(json!({ "configMap": { "name": "c" } }))),
        ("a projected token", projected(json!({ "serviceAccountToken": { "path": "token" } }))),
        ("a trust bundle", projected(json!({ "clusterTrustBundle": { "name": "b", "path": "p" } }))),
        ("a resource claim", json!({ "resourceClaims": [{ "name": "r", "resourceClaimName": "c" }] })),
        (
            "a variable",
            container("env", json!({ "name": "V", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } })),
        ),
        ("an environment", container("envFrom", json!({ "configMapRef": { "name": "c" } }))),
    ] {
        let mut sent = mirror(&right);
        spec.as_object().unwrap().iter().for_each(|(key, value)| sent["spec"][key] = value.clone());
        let refused = api.ask_as(&node, Method::POST, &pods, &sent).await;
        assert_eq!(refused.code, 403, "{what}: {}", refused.text);
        assert!(refused.text.contains("can not create pods that reference"), "{what}: {}", refused.text);
    }
    let mut plain = mirror(&right);
    plain["spec"]["volumes"] = json!([{ "name": "a", "hostPath": { "path": "/etc" } }, { "name": "b", "emptyDir": {} },
        { "name": "c", "projected": { "sources": [{ "downwardAPI": { "items": [
            { "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } }] } }]);
    api.ask_as(&node, Method::POST, &pods, &plain).await.expect(201);
}

/// [SE-86] [SE-88]
#[tokio::test]
async fn node_reads_and_writes_its_own_node_and_lease() {
    let api = Api::start().await;
    let node = Identity::node("n1");
    for name in ["n1", "n2"] {
        assert_eq!(api.get_as(&node, &format!("{NODES}/{name}")).await, if name == "n1" { 404 } else { 403 });
    }
    let owned = json!({ "metadata": { "name": "n1", "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u" }] } });
    let configured = json!({ "metadata": { "name": "n1" }, "spec": { "configSource": {
        "configMap": { "namespace": "kube-system", "name": "c", "kubeletConfigKey": "k" } } } });
    for sent in
        [owned, configured, json!({ "metadata": { "name": "n2" } }), json!({ "metadata": { "generateName": "n" } })]
    {
        assert_eq!(api.ask_as(&node, Method::POST, NODES, &sent).await.code, 403, "{sent}");
    }
    api.registered("n1").await;
    api.registered("n2").await;
    for (path, code) in [
        (format!("{NODES}/n1"), 200),
        (format!("{NODES}/n2"), 403),
        (NODES.to_owned(), 403),
        (format!("{NODES}?fieldSelector=metadata.name%3Dn1"), 200),
        (format!("{NODES}?fieldSelector=metadata.name%3Dn2"), 403),
        (format!("{NODES}?fieldSelector=metadata.name%21%3Dn2"), 403),
        (format!("{NODES}?watch=1"), 403),
        (format!("{DEFAULT}/secrets"), 403),
        (format!("{DEFAULT}/secrets?watch=1"), 403),
        ("/api/v1/secrets?fieldSelector=metadata.name%3Ds".to_owned(), 403),
    ] {
        assert_eq!(api.get_as(&node, &path).await, code, "{path}");
    }
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u" });
    for (path, change) in [
        ("n1", json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedule" }] } })),
        ("n1", json!({ "metadata": { "labels": { "node-restriction.kubernetes.io/a": "b" } } })),
        ("n1", json!({ "metadata": { "ownerReferences": [owner] } })),
        ("n1/status", json!({ "metadata": { "labels": { "node-restriction.kubernetes.io/a": "b" } } })),
        ("n2", json!({ "metadata": { "labels": { "a": "b" } } })),
        ("n2/status", json!({ "status": { "phase": "Running" } })),
    ] {
        let answer = api.patch_as(&node, &format!("{NODES}/{path}"), MERGE, &change).await;
        assert_eq!(answer.code, 403, "{path} {change}: {}", answer.text);
    }
    assert_eq!(api.ask_as(&node, Method::DELETE, &format!("{NODES}/n1"), &json!({})).await.code, 403);
    let leases = |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    for (namespace, name, code) in
        [("kube-node-lease", "n1", 201), ("kube-node-lease", "n2", 403), ("default", "n1", 403)]
    {
        let sent = json!({ "metadata": { "name": name } });
        let answer = api.ask_as(&node, Method::POST, &leases(namespace), &sent).await;
        assert_eq!(answer.code, code, "{namespace}/{name}: {}", answer.text);
        let (path, change) = (format!("{}/{name}", leases(namespace)), json!({ "spec": { "holderIdentity": "n1" } }));
        let answer = api.patch_as(&node, &path, MERGE, &change).await;
        assert_eq!(answer.code, if code == 201 { 200 } else { 403 }, "{namespace}/{name}: {}", answer.text);
    }
    // A name that is no node's is nobody.
    let nobody = Identity::new("system:node:", &["system:nodes"]);
    assert_eq!(api.get_as(&nobody, NODES).await, 403);
}

/// [SE-89]
#[tokio::test]
async fn node_ends_and_reports_its_own_pods_and_changes_nothing_else_of_them() {
    let api = Api::start().await;
    let (mine, other) = (Identity::node("n1"), Identity::node("n2"));
    api.running_pod("p", |pod| pod["metadata"]["labels"] = json!({ "app": "web" })).await;
    let path = format!("{DEFAULT}/pods/p");
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "p" } });
    assert_eq!(api.ask_as(&other, Method::DELETE, &path, &json!({})).await.code, 403);
    assert_eq!(api.ask_as(&other, Method::POST, &format!("{path}/eviction"), &eviction).await.code, 403);
    let status = format!("{path}/status");
    assert_eq!(api.patch_as(&other, &status, MERGE, &json!({ "status": { "message": "m" } })).await.code, 403);
    for change in [
        json!({ "metadata": { "labels": { "app": "other" } } }),
        json!({ "metadata": { "finalizers": ["example.com/stay"] } }),
        json!({ "status": { "resourceClaimStatuses": [{ "name": "r", "resourceClaimName": "c" }] } }),
    ] {
        let answer = api.patch_as(&mine, &status, MERGE, &change).await;
        assert_eq!(answer.code, 403, "{change}: {}", answer.text);
    }
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u" });
    api.patch_as(&mine, &status, MERGE, &json!({ "metadata": { "ownerReferences": [owner] } })).await;
    assert_eq!(api.get(&path).await.expect(200)["metadata"].get("ownerReferences"), None, "nor given to a collector");
    let spec = json!({ "spec": { "activeDeadlineSeconds": 1 } });
    assert_eq!(api.patch_as(&mine, &path, MERGE, &spec).await.code, 403);
    for part in ["ephemeralcontainers", "resize", "binding"] {
        let answer = api.patch_as(&mine, &format!("{path}/{part}"), MERGE, &spec).await;
        assert!(matches!(answer.code, 403 | 405), "{part}: {}", answer.text);
    }
    api.ask_as(&mine, Method::POST, &format!("{path}/eviction"), &eviction).await.expect(201);
}

/// Whether the last endpoint of a Service is replaced is a node's business only where the pod is its own.
#[tokio::test]
async fn node_reads_the_scale_of_those_who_make_its_pods_and_of_no_others() {
    let api = Api::start().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({ "app": "web", "pod-template-hash": "5d8f" });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod("p")["spec"] });
    let spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": template });
    for (collection, name) in [(deployments, "web"), (deployments, "other"), (sets, "web-5d8f"), (sets, "other-5d8f")] {
        api.post(collection, &json!({ "metadata": { "name": name }, "spec": spec })).await.expect(201);
    }
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "uid": "u", "controller": true }]);
    api.running_pod("p", |pod| {
        pod["metadata"]["labels"] = labels.clone();
        pod["metadata"]["ownerReferences"] = owner.clone();
    })
    .await;
    for (node, path, code) in [
        ("n1", format!("{sets}/web-5d8f/scale"), 200),
        ("n1", format!("{deployments}/web/scale"), 200),
        ("n1", format!("{sets}/other-5d8f/scale"), 403),
        ("n1", format!("{deployments}/other/scale"), 403),
        ("n1", format!("{deployments}/web"), 403),
        ("n2", format!("{sets}/web-5d8f/scale"), 403),
        ("n2", format!("{deployments}/web/scale"), 403),
    ] {
        assert_eq!(api.ask_as(&Identity::node(node), Method::GET, &path, &json!({})).await.code, code, "{node} {path}");
    }
}

/// [SE-84] [SE-85]
#[tokio::test]
async fn node_gets_tokens_for_its_own_pods_and_for_those_they_name() {
    let api = Api::start().await;
    let (mine, other) = (Identity::node("n1"), Identity::node("n2"));
    let projected = json!([{ "name": "v", "projected": { "sources": [
        { "serviceAccountToken": { "path": "token" } },
        { "serviceAccountToken": { "path": "vault", "audience": "vault" } }] } }]);
    let made = api.running_pod("p", |pod| pod["spec"]["volumes"] = projected).await;
    let plain = api.running_pod("plain", |_| {}).await;
    let uid = made["metadata"]["uid"].clone();
    let reference = |name: &str, uid: &Value| json!({ "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid });
    let own = reference("p", &uid);
    let path = format!("{DEFAULT}/serviceaccounts/default/token");
    for (what, node, spec, code) in [
        ("the pod's", &mine, json!({ "boundObjectRef": own }), 201),
        ("an audience that the pod names", &mine, json!({ "boundObjectRef": own, "audiences": ["vault"] }), 201),
        ("another audience", &mine, json!({ "boundObjectRef": own, "audiences": ["bank"] }), 403),
        ("two audiences", &mine, json!({ "boundObjectRef": own, "audiences": ["vault", "bank"] }), 403),
        ("no pod", &mine, json!({}), 403),
        ("a node", &mine, json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Node", "name": "n1" } }), 404),
        ("a pod without its uid", &mine, json!({ "boundObjectRef": reference("p", &json!("")) }), 403),
        ("an earlier pod", &mine, json!({ "boundObjectRef": reference("p", &json!("x")) }), 409),
        ("a pod elsewhere", &other, json!({ "boundObjectRef": own }), 403),
        (
            "a pod that has no token",
            &mine,
            json!({ "boundObjectRef": reference("plain", &plain["metadata"]["uid"]) }),
            403,
        ),
    ] {
        let answer = api.ask_as(node, Method::POST, &path, &json!({ "spec": spec })).await;
        assert_eq!(answer.code, code, "{what}: {}", answer.text);
    }
    // A token for a pod of another account is nobody's.
    api.post(&format!("{DEFAULT}/serviceaccounts"), &json!({ "metadata": { "name": "robot" } })).await.expect(201);
    let foreign = json!({ "spec": { "boundObjectRef": own } });
    assert_eq!(
        api.ask_as(&mine, Method::POST, &path.replace("default/token", "robot/token"), &foreign).await.code,
        400
    );
    // An audience can be granted to nodes by a role.
    let rule = json!({ "verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["bank"],
        "resourceNames": ["default"] });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({ "metadata": { "name": "bank" }, "rules": [rule] });
    api.post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    let bound = json!({ "metadata": { "name": "bank" }, "roleRef": { "kind": "ClusterRole", "name": "bank" },
        "subjects": [{ "kind": "Group", "name": "system:nodes" }] });
    api.post(&format!("{rbac}/clusterrolebindings"), &bound).await.expect(201);
    let granted = json!({ "spec": { "boundObjectRef": own, "audiences": ["bank"] } });
    api.ask_as(&mine, Method::POST, &path, &granted).await.expect(201);
}

/// [SE-83]
#[tokio::test]
async fn token_of_a_secret_ends_when_the_secret_holds_another() {
    let api = Api::start().await;
    api.post(&format!("{DEFAULT}/serviceaccounts"), &json!({ "metadata": { "name": "robot" } })).await.expect(201);
    let secrets = format!("{DEFAULT}/secrets");
    let made = api.post(&secrets, &token_secret("t", "robot")).await.expect(201);
    let mut events = api.watch(&format!("{secrets}?watch=1&resourceVersion={}", version(&made))).await;
    let filled = events.next().await.unwrap()["object"].clone();
    let token = decoded(&filled, "token");
    assert_eq!(api.with_token(&token, "/api").await.code, 200);
    // One that was asked for and only bound to the secret is not kept in it.
    let reference = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": "Secret", "name": "t" } });
    let bound = api.token("robot", &reference).await.expect(201)["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(api.with_token(&bound, "/api").await.code, 200);
    let path = format!("{secrets}/t");
    let kept = filled["data"]["token"].clone();
    api.patch(&path, &json!({ "data": { "token": "YW5vdGhlcg==" } })).await.expect(200);
    assert_eq!(api.with_token(&token, "/api").await.code, 401);
    assert_eq!(api.with_token(&bound, "/api").await.code, 200);
    api.patch(&path, &json!({ "data": { "token": kept } })).await.expect(200);
    assert_eq!(api.with_token(&token, "/api").await.code, 200);
}

/// [SE-82]
#[tokio::test]
async fn token_ends_with_the_object_that_it_was_made_for() {
    let api = Api::start().await;
    let secrets = format!("{DEFAULT}/secrets");
    for (kind, collection, object) in [
        ("Pod", format!("{DEFAULT}/pods"), pod("b")),
        ("Secret", secrets, json!({ "metadata": { "name": "b" } })),
        ("Node", NODES.to_owned(), json!({ "metadata": { "name": "b" } })),
    ] {
        api.post(&collection, &object).await.expect(201);
        let reference = json!({ "boundObjectRef": { "apiVersion": "v1", "kind": kind, "name": "b" } });
        let token = api.token("default", &reference).await.expect(201)["status"]["token"].as_str().unwrap().to_owned();
        assert_eq!(api.with_token(&token, "/api").await.code, 200, "{kind}");
        api.delete(&format!("{collection}/b?gracePeriodSeconds=0")).await.expect(200);
        assert_eq!(api.with_token(&token, "/api").await.code, 401, "{kind} is gone");
        api.post(&collection, &object).await.expect(201);
        assert_eq!(api.with_token(&token, "/api").await.code, 401, "another {kind} has its name");
    }
}

/// A node reads the claims of its pods and their volumes, and says of its own volumes what it has made and removed.
#[tokio::test]
async fn node_reaches_claims_of_its_pods_and_says_what_it_made_of_its_volumes() {
    let api = Api::start().await;
    let (own, other) = (Identity::node("n1"), Identity::node("n2"));
    let (claims, volumes) = (format!("{DEFAULT}/persistentvolumeclaims"), "/api/v1/persistentvolumes");
    let claim = json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } });
    api.post(&claims, &claim).await.expect(201);
    let volume = |name: &str, labels: Value| {
        json!({ "metadata": { "name": name, "labels": labels,
                "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer", "example.com/other"] },
            "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
                "hostPath": { "path": "/x" }, "claimRef": { "namespace": "default", "name": "c" } } })
    };
    api.post(volumes, &volume("mine", json!({ "adieu.dev/node": "n1" }))).await.expect(201);
    api.post(volumes, &volume("theirs", json!({}))).await.expect(201);
    let (claim, theirs) = (format!("{claims}/c"), format!("{volumes}/theirs"));
    assert_eq!((api.get_as(&own, &claim).await, api.get_as(&own, &theirs).await), (403, 403), "no pod has it");
    api.running_pod("p", |pod| {
        pod["spec"]["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "c" } }]);
    })
    .await;
    assert_eq!((api.get_as(&own, &claim).await, api.get_as(&own, &theirs).await), (200, 200));
    assert_eq!((api.get_as(&other, &claim).await, api.get_as(&other, &theirs).await), (403, 403));
    assert_eq!(api.get_as(&own, &claims).await, 403, "not all of them");
    assert_eq!(api.get_as(&own, volumes).await, 403);
    assert_eq!(api.get_as(&own, &format!("{volumes}?labelSelector=adieu.dev%2Fnode%3Dn2")).await, 403);
    assert_eq!(api.get_as(&own, &format!("{volumes}?labelSelector=adieu.dev%2Fnode%3Dn1")).await, 200);

    let mine = format!("{volumes}/mine");
    let made = json!({ "metadata": { "annotations": { "adieu.dev/directory-made": "true" } } });
    assert_eq!(api.patch_as(&own, &mine, MERGE, &made).await.code, 200);
    assert_eq!(api.patch_as(&other, &mine, MERGE, &made).await.code, 403);
    assert_eq!(api.patch_as(&own, &theirs, MERGE, &made).await.code, 403, "it only reads it");
    for (what, patch) in [
        ("another finalizer", json!({ "metadata": { "finalizers": [] } })),
        ("its path", json!({ "spec": { "hostPath": { "path": "/etc" } } })),
        ("its size", json!({ "spec": { "capacity": { "storage": "9Gi" } } })),
        ("its claim", json!({ "spec": { "claimRef": null } })),
        ("its node", json!({ "metadata": { "labels": { "adieu.dev/node": "n2" } } })),
    ] {
        assert_eq!(api.patch_as(&own, &mine, MERGE, &patch).await.code / 100, 4, "{what}");
    }
    let removed = json!({ "metadata": { "finalizers": ["example.com/other", "kubernetes.io/pv-protection"] } });
    assert_eq!(api.patch_as(&own, &mine, MERGE, &removed).await.code, 200);
    assert_eq!(api.ask_as(&own, Method::DELETE, &mine, &json!({})).await.code, 403);
}
