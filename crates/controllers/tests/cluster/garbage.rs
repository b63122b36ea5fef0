//! Owners and dependents, scenario by scenario.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, owned_by, patient, pod};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn template() -> Value {
    json!({ "metadata": { "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "app", "image": "busybox" }] } })
}

fn map(name: &str, owners: Value) -> Value {
    json!({ "metadata": { "name": name, "ownerReferences": owners } })
}

/// A deployment with its replica set and two running pods, as their controllers would have made them.
async fn deployment(cluster: &Cluster) -> Value {
    let spec = json!({ "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": template() });
    let deployment = json!({ "metadata": { "name": "web" }, "spec": spec.clone() });
    let deployment = cluster.post(DEPLOYMENTS, deployment).await.expect(201);
    let owners = json!([owned_by(&deployment, true)]);
    let set = json!({ "metadata": { "name": "web-1", "ownerReferences": owners }, "spec": spec });
    let set = cluster.post(SETS, set).await.expect(201);
    cluster.node("n1").await;
    for name in ["web-1-a", "web-1-b"] {
        let owners = json!([owned_by(&set, true)]);
        cluster.running_pod(name, json!({ "labels": { "app": "web" }, "ownerReferences": owners })).await;
    }
    deployment
}

/// Waits until both pods were asked to leave.
async fn pods_leave(cluster: &Cluster) {
    for name in ["web-1-a", "web-1-b"] {
        let leaving =
            cluster.until(&format!("{PODS}/{name}"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
        assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30, "pods get their own grace");
    }
}

fn of<'a>(history: &'a [String], word: &str) -> Vec<&'a str> {
    history.iter().map(String::as_str).filter(|line| line.contains(word)).collect()
}

fn at(history: &[String], line: &str) -> usize {
    history.iter().position(|found| found == line).unwrap_or_else(|| panic!("no {line} in {history:#?}"))
}

/// [AD-64]
#[tokio::test]
async fn background_deletion_removes_the_owner_first() {
    let cluster = Cluster::without_workloads().await;
    deployment(&cluster).await;
    let from = cluster.now().await;
    let options = json!({ "propagationPolicy": "Background" });
    let answer = cluster.delete(&format!("{DEPLOYMENTS}/web"), options).await.expect(200);
    assert_eq!((answer["kind"].as_str(), answer["status"].as_str()), (Some("Status"), Some("Success")));
    pods_leave(&cluster).await;
    for name in ["web-1-a", "web-1-b"] {
        cluster.finish(name).await;
    }
    let history = cluster.history(&[DEPLOYMENTS, SETS, PODS], &from).await;
    assert_eq!(of(&history, "/web-1 "), Vec::<&str>::new());
    assert!(at(&history, "DELETED deployments/web") < at(&history, "DELETED replicasets/web-1"));
    assert!(at(&history, "DELETED replicasets/web-1") < at(&history, "MODIFIED pods/web-1-a"));
    let end = ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"].map(|word| format!("{word} pods/web-1-b"));
    assert_eq!(of(&history, "pods/web-1-b"), end, "asked, reported, then marked and removed by the node");
}

/// [AD-65]
#[tokio::test]
async fn foreground_deletion_keeps_the_owner_until_its_dependents_are_gone() {
    let cluster = Cluster::without_workloads().await;
    deployment(&cluster).await;
    let from = cluster.now().await;
    let options = json!({ "propagationPolicy": "Foreground" });
    let answer = cluster.delete(&format!("{DEPLOYMENTS}/web"), options).await.expect(200);
    assert_eq!(answer["kind"], "Deployment");
    assert_eq!(answer["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(
        (&answer["metadata"]["deletionGracePeriodSeconds"], &answer["metadata"]["generation"]),
        (&json!(0), &json!(2))
    );
    pods_leave(&cluster).await;
    cluster.finish("web-1-a").await;
    for path in [format!("{DEPLOYMENTS}/web"), format!("{SETS}/web-1")] {
        let held = cluster.get(&path).await.expect(200);
        assert_eq!(held["metadata"]["finalizers"], json!(["foregroundDeletion"]), "one pod is left");
    }
    cluster.finish("web-1-b").await;
    cluster.until_gone(&format!("{DEPLOYMENTS}/web")).await;
    let history = cluster.history(&[DEPLOYMENTS, SETS, PODS], &from).await;
    let order = [
        "MODIFIED deployments/web",
        "MODIFIED replicasets/web-1",
        "MODIFIED pods/web-1-b",
        "DELETED pods/web-1-b",
        "DELETED replicasets/web-1",
        "DELETED deployments/web",
    ];
    let places: Vec<usize> = order.iter().map(|line| at(&history, line)).collect();
    assert!(places.is_sorted(), "{history:#?}");
}

/// [AD-66]
#[tokio::test]
async fn orphans_stay_and_forget_their_owner() {
    let cluster = Cluster::without_workloads().await;
    deployment(&cluster).await;
    let from = cluster.now().await;
    let answer =
        cluster.delete(&format!("{DEPLOYMENTS}/web"), json!({ "propagationPolicy": "Orphan" })).await.expect(200);
    assert_eq!(answer["metadata"]["finalizers"], json!(["orphan"]));
    cluster.until_gone(&format!("{DEPLOYMENTS}/web")).await;
    let set = cluster.get(&format!("{SETS}/web-1")).await.expect(200);
    assert!(set["metadata"]["ownerReferences"].is_null() && set["metadata"]["deletionTimestamp"].is_null(), "{set}");
    let history = cluster.history(&[DEPLOYMENTS, SETS, PODS], &from).await;
    let expected = ["MODIFIED deployments/web", "MODIFIED replicasets/web-1", "DELETED deployments/web"];
    assert_eq!(history, expected, "pods are untouched");
}

/// [AD-67]
#[tokio::test]
async fn a_job_that_is_deleted_without_a_policy_leaves_its_pods() {
    let cluster = Cluster::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({ "metadata": { "name": "once" }, "spec": { "template": template } });
    let job = cluster.post(jobs, job).await.expect(201);
    cluster.node("n1").await;
    cluster.running_pod("once-1", json!({ "ownerReferences": [owned_by(&job, true)] })).await;
    let answer = cluster.delete(&format!("{jobs}/once"), json!({})).await;
    let warning = answer.headers.get("warning").unwrap().to_str().unwrap().to_owned();
    assert!(warning.contains("child pods are preserved by default when jobs are deleted"), "{warning}");
    assert_eq!(answer.expect(200)["metadata"]["finalizers"], json!(["orphan"]));
    cluster.until_gone(&format!("{jobs}/once")).await;
    let pod = cluster.get(&format!("{PODS}/once-1")).await.expect(200);
    assert!(pod["metadata"]["ownerReferences"].is_null() && pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
}

/// [AD-68]
#[tokio::test]
async fn one_owner_that_stays_is_enough() {
    let cluster = Cluster::start().await;
    let stays = cluster.post(MAPS, map("stays", json!([]))).await.expect(201);
    let goes = cluster.post(MAPS, map("goes", json!([]))).await.expect(201);
    let both = json!([owned_by(&stays, false), owned_by(&goes, false)]);
    cluster.post(MAPS, map("child", both)).await.expect(201);
    cluster.delete(&format!("{MAPS}/goes"), json!({})).await.expect(200);
    let left = |child: &Value| child["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1);
    let child = cluster.until(&format!("{MAPS}/child"), left).await;
    assert_eq!(child["metadata"]["ownerReferences"][0]["name"], "stays");
    // The same while the other owner waits for it: it is let go by forgetting, not by dying.
    let waits = cluster.post(MAPS, map("waits", json!([]))).await.expect(201);
    let both = json!({ "metadata": { "ownerReferences": [owned_by(&stays, false), owned_by(&waits, true)] } });
    cluster.patch(&format!("{MAPS}/child"), both).await.expect(200);
    cluster.delete(&format!("{MAPS}/waits"), json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    cluster.until_gone(&format!("{MAPS}/waits")).await;
    let child = cluster.get(&format!("{MAPS}/child")).await.expect(200);
    assert_eq!(child["metadata"]["ownerReferences"], json!([owned_by(&stays, false)]));
}

/// [AD-69]
#[tokio::test]
async fn a_new_owner_of_the_same_name_is_another_owner() {
    let mut cluster = Cluster::without_controllers().await;
    let old = cluster.post(MAPS, map("owner", json!([]))).await.expect(201);
    cluster.post(MAPS, map("child", json!([owned_by(&old, false)]))).await.expect(201);
    cluster.delete(&format!("{MAPS}/owner"), json!({})).await.expect(200);
    let new = cluster.post(MAPS, map("owner", json!([]))).await.expect(201);
    cluster.post(MAPS, map("heir", json!([owned_by(&new, false)]))).await.expect(201);
    cluster.start_controllers(patient());
    cluster.until_gone(&format!("{MAPS}/child")).await;
    cluster.get(&format!("{MAPS}/heir")).await.expect(200);
}

/// A reference to something that never was is no owner (api-deletion 11.3).
#[tokio::test]
async fn object_with_a_missing_owner_goes_and_one_with_an_unknown_owner_stays() {
    let cluster = Cluster::start().await;
    let from = cluster.now().await;
    let nobody =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "nobody", "uid": "no-such-uid" } });
    cluster.post(MAPS, map("child", json!([owned_by(&nobody, false)]))).await.expect(201);
    cluster.until_gone(&format!("{MAPS}/child")).await;

    // A kind that nobody serves: it may be served tomorrow.
    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w", "uid": "w" } });
    cluster.post(MAPS, map("odd", json!([owned_by(&unknown, false)]))).await.expect(201);
    // An owner in another namespace is no owner; one in a namespace cannot own what has none.
    let far = cluster.post("/api/v1/namespaces/kube-public/configmaps", map("far", json!([]))).await.expect(201);
    cluster.post(MAPS, map("stray", json!([owned_by(&far, false)]))).await.expect(201);
    cluster.until_gone(&format!("{MAPS}/stray")).await;
    let class = json!({ "metadata": { "name": "class", "ownerReferences": [owned_by(&far, false)] }, "value": 1 });
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    cluster.post(classes, class).await.expect(201);
    for name in ["stray", "class"] {
        cluster
            .until_seen("/api/v1/namespaces/default/events", &from, |_, event| {
                event["reason"] == "OwnerRefInvalidNamespace" && event["involvedObject"]["name"] == name
            })
            .await;
    }
    cluster.get(&format!("{classes}/class")).await.expect(200);
    cluster.get(&format!("{MAPS}/odd")).await.expect(200);
    // A cluster-scoped owner owns anything.
    let owner = cluster.get(&format!("{classes}/class")).await.expect(200);
    cluster.post(MAPS, map("classy", json!([owned_by(&owner, false)]))).await.expect(201);
    cluster.delete(&format!("{classes}/class"), json!({})).await.expect(200);
    cluster.until_gone(&format!("{MAPS}/classy")).await;
}

#[tokio::test]
async fn a_circle_of_owners_does_not_hold_itself() {
    let mut cluster = Cluster::without_controllers().await;
    let names = ["one", "two", "three"];
    let mut made = Vec::new();
    cluster.node("n1").await;
    for name in names {
        made.push(cluster.running_pod(name, json!({})).await);
    }
    for (name, owner) in [("one", &made[2]), ("two", &made[0]), ("three", &made[1])] {
        let owners = json!({ "metadata": { "ownerReferences": [owned_by(owner, true)] } });
        cluster.patch(&format!("{PODS}/{name}"), owners).await.expect(200);
    }
    cluster.start_controllers(patient());
    cluster.delete(&format!("{PODS}/one"), json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    for name in names {
        cluster.until(&format!("{PODS}/{name}"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    }
    for name in names {
        cluster.finish(name).await;
    }
    for name in names {
        cluster.until_gone(&format!("{PODS}/{name}")).await;
    }
}

/// Two that block each other, both asked to leave in the foreground: neither is attended by the other's rule.
#[tokio::test]
async fn two_that_wait_for_each_other_both_go() {
    let mut cluster = Cluster::without_controllers().await;
    let a = cluster.post(MAPS, map("a", json!([]))).await.expect(201);
    let b = cluster.post(MAPS, map("b", json!([owned_by(&a, true)]))).await.expect(201);
    let owners = json!({ "metadata": { "ownerReferences": [owned_by(&b, true)] } });
    cluster.patch(&format!("{MAPS}/a"), owners).await.expect(200);
    for name in ["a", "b"] {
        cluster.delete(&format!("{MAPS}/{name}"), json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    }
    cluster.start_controllers(patient());
    cluster.until_gone(&format!("{MAPS}/a")).await;
    cluster.until_gone(&format!("{MAPS}/b")).await;
}

/// A bare pod gets the finalizer too, and the collector takes it off again.
#[tokio::test]
async fn a_pod_without_dependents_is_not_held_by_its_policy() {
    let cluster = Cluster::start().await;
    cluster.post(PODS, pod("bare")).await.expect(201);
    cluster.delete(&format!("{PODS}/bare"), json!({ "propagationPolicy": "Foreground" })).await.expect(200);
    cluster.until_gone(&format!("{PODS}/bare")).await;
}

/// Whatever was under way when everything stopped is finished by the next start, from the store alone.
#[tokio::test]
async fn a_restart_finishes_what_was_begun() {
    let cluster = Cluster::without_controllers().await;
    let goes = cluster.post(MAPS, map("goes", json!([]))).await.expect(201);
    let orphans = cluster.post(MAPS, map("orphans", json!([]))).await.expect(201);
    let waits = cluster.post(MAPS, map("waits", json!([]))).await.expect(201);
    cluster.post(MAPS, map("of-goes", json!([owned_by(&goes, true)]))).await.expect(201);
    cluster.post(MAPS, map("of-orphans", json!([owned_by(&orphans, true)]))).await.expect(201);
    cluster.post(MAPS, map("of-waits", json!([owned_by(&waits, true)]))).await.expect(201);
    for (name, policy) in [("goes", "Background"), ("orphans", "Orphan"), ("waits", "Foreground")] {
        cluster.delete(&format!("{MAPS}/{name}"), json!({ "propagationPolicy": policy })).await.expect(200);
    }
    let mut cluster = cluster.restart().await;
    for name in ["of-goes", "of-orphans", "of-waits", "orphans", "waits"] {
        cluster.get(&format!("{MAPS}/{name}")).await.expect(200);
    }
    cluster.start_controllers(patient());
    for name in ["of-goes", "orphans", "waits", "of-waits"] {
        cluster.until_gone(&format!("{MAPS}/{name}")).await;
    }
    let orphan = cluster.get(&format!("{MAPS}/of-orphans")).await.expect(200);
    assert!(orphan["metadata"]["ownerReferences"].is_null());
}

/// The collector runs already when the kind comes, and again when it goes.
#[tokio::test]
async fn kind_that_is_added_later_is_collected_as_owner_and_as_dependent() {
    let cluster = Cluster::start().await;
    let owner = cluster.post(MAPS, map("first", json!([]))).await.expect(201);
    cluster.post(MAPS, map("second", json!([owned_by(&owner, false)]))).await.expect(201);
    cluster.delete(&format!("{MAPS}/first"), json!({})).await.expect(200);
    cluster.until_gone(&format!("{MAPS}/second")).await;

    let names = api::Names {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        ..api::Names::default()
    };
    let widgets = api::CustomKind { names, namespaced: true, has_status: false }.into_kind().unwrap();
    cluster.server.add_kind(widgets).unwrap();
    let path = "/apis/example.com/v1/namespaces/default/widgets";
    let owner = cluster.post(MAPS, map("owner", json!([]))).await.expect(201);
    let widget = |owners: Value| json!({ "metadata": { "name": "w", "ownerReferences": owners } });
    let made = cluster.post(path, widget(json!([owned_by(&owner, false)]))).await.expect(201);
    cluster.post(MAPS, map("leaf", json!([owned_by(&made, false)]))).await.expect(201);
    cluster.delete(&format!("{MAPS}/owner"), json!({})).await.expect(200);
    cluster.until_gone(&format!("{path}/w")).await;
    cluster.until_gone(&format!("{MAPS}/leaf")).await;

    assert!(cluster.server.remove_kind("example.com", "widgets"));
    let owner = cluster.post(MAPS, map("last", json!([]))).await.expect(201);
    cluster.post(MAPS, map("end", json!([owned_by(&owner, false)]))).await.expect(201);
    cluster.delete(&format!("{MAPS}/last"), json!({})).await.expect(200);
    cluster.until_gone(&format!("{MAPS}/end")).await;
}
