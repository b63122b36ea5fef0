//! Deployments against a real server: what a client sees of rollouts, revisions, pauses and refusals.

use serde_json::{Value, json};

use crate::harness::{Cluster, PATIENCE, PODS, patient};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const REVISION: &str = "deployment.kubernetes.io/revision";

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "app", "image": image }] } })
}

async fn deploy(cluster: &Cluster, replicas: usize, spec: Value) -> Value {
    let mut whole =
        json!({ "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "template": template("one") });
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    cluster.post(DEPLOYMENTS, json!({ "metadata": { "name": "web" }, "spec": whole })).await.expect(201)
}

async fn edit(cluster: &Cluster, spec: Value) -> Value {
    cluster.patch(WEB, json!({ "spec": spec })).await.expect(200)
}

async fn set_image(cluster: &Cluster, image: &str) {
    edit(cluster, json!({ "template": { "spec": { "containers": [{ "name": "app", "image": image }] } } })).await;
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.and_then(|all| all.iter().find(|it| it["type"] == kind)).unwrap_or(&Value::Null)
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or(0)
}

/// What `kubectl rollout status` takes for success.
fn is_rolled_out(web: &Value) -> bool {
    let replicas = web["spec"]["replicas"].as_i64().unwrap();
    web["status"]["observedGeneration"] == web["metadata"]["generation"]
        && number(web, "updatedReplicas") == replicas
        && number(web, "replicas") == replicas
        && number(web, "availableReplicas") == replicas
        && condition(web, "Progressing")["reason"] == "NewReplicaSetAvailable"
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

async fn items(cluster: &Cluster, collection: &str) -> Vec<Value> {
    cluster.get(collection).await.expect(200)["items"].as_array().unwrap().clone()
}

fn leaves(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

/// A node looks once: it starts every pod that waits and ends those that are asked to leave. Checks that there are never more pods
/// than `most` beside those that leave. Answers the pods that it saw.
async fn node_looks(cluster: &Cluster, most: usize) -> Vec<Value> {
    let pods = items(cluster, PODS).await;
    assert!(pods.iter().filter(|pod| !leaves(pod)).count() <= most, "more than {most}");
    for pod in &pods {
        let name = name(pod);
        if leaves(pod) {
            cluster.finish(&name).await;
        } else if pod["spec"]["nodeName"].is_null() {
            let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": "n1" } });
            cluster.post(&format!("{PODS}/{name}/binding"), binding).await;
            let conditions = json!([{ "type": "Ready", "status": "True" }]);
            let status = json!({ "status": { "phase": "Running", "conditions": conditions } });
            cluster.patch(&format!("{PODS}/{name}/status"), status).await;
        }
    }
    pods
}

/// Nodes do their part until `wanted` holds of the Deployment and no pod leaves. `law` holds all the time.
async fn nodes_work(cluster: &Cluster, most: usize, law: impl Fn(&[Value]), wanted: impl Fn(&Value) -> bool) -> Value {
    let working = async {
        loop {
            let pods = node_looks(cluster, most).await;
            law(&pods);
            let web = cluster.get(WEB).await.expect(200);
            if wanted(&web) && !pods.iter().any(leaves) {
                return web;
            }
        }
    };
    match tokio::time::timeout(PATIENCE, working).await {
        Ok(web) => web,
        Err(_) => panic!("it does not come about: {:#}", cluster.get(WEB).await.body["status"]),
    }
}

async fn rolls_out(cluster: &Cluster, most: usize) -> Value {
    nodes_work(cluster, most, |_| {}, is_rolled_out).await
}

async fn revisions(cluster: &Cluster) -> Vec<(String, Value, Value)> {
    let sets = items(cluster, SETS).await;
    let mut all: Vec<(String, Value, Value)> = sets
        .iter()
        .map(|set| {
            let revision = set["metadata"]["annotations"][REVISION].as_str().unwrap().to_owned();
            let image = set["spec"]["template"]["spec"]["containers"][0]["image"].clone();
            (revision, image, set["spec"]["replicas"].clone())
        })
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

async fn until_events(cluster: &Cluster, wanted: &[&str]) {
    let said = |events: &Value, message: &str| {
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "ScalingReplicaSet"
                && event["involvedObject"]["name"] == "web"
                && event["message"].as_str().unwrap().contains(message)
        })
    };
    loop {
        let events = cluster.get("/api/v1/namespaces/default/events").await.expect(200);
        if wanted.iter().all(|message| said(&events, message)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// [WL-27] [WL-31] [WL-34] [TR-75]
#[tokio::test]
async fn deployment_rolls_out_goes_back_and_forgets_old_revisions() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    deploy(&cluster, 4, json!({ "revisionHistoryLimit": 1, "progressDeadlineSeconds": 600 })).await;
    let web = rolls_out(&cluster, 5).await;
    assert_eq!(web["metadata"]["annotations"][REVISION], "1");
    assert_eq!(web["metadata"]["generation"], 1, "the revision is no change that anybody asked for");
    assert_eq!(web["status"]["terminatingReplicas"], 0);
    assert_eq!(condition(&web, "Available")["reason"], "MinimumReplicasAvailable");
    let set = items(&cluster, SETS).await.remove(0);
    let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
    assert_eq!(name(&set), format!("web-{hash}"));
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"], "4");
    assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"], "5");
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);

    set_image(&cluster, "two").await;
    let web = rolls_out(&cluster, 5).await;
    assert_eq!(web["metadata"]["annotations"][REVISION], "2");
    let (one, two) = (json!("one"), json!("two"));
    let expected = [("1".to_owned(), one.clone(), json!(0)), ("2".to_owned(), two.clone(), json!(4))];
    assert_eq!(revisions(&cluster).await, expected);
    until_events(
        &cluster,
        &["Scaled up replica set web-", "from 0 to ", "Scaled down replica set web-", "from 4 to 3"],
    )
    .await;

    // Only an annotation: copied, and nothing rolls.
    cluster
        .patch(WEB, json!({ "metadata": { "annotations": { "kubernetes.io/change-cause": "because" } } }))
        .await
        .expect(200);
    let of_new = |set: &Value| set["spec"]["replicas"] == 4;
    let named = items(&cluster, SETS).await.into_iter().find(of_new).unwrap();
    let is_copied = |set: &Value| set["metadata"]["annotations"]["kubernetes.io/change-cause"] == "because";
    cluster.until(&format!("{SETS}/{}", name(&named)), is_copied).await;

    // Back to the first template: its set is new again, and its number rises.
    set_image(&cluster, "one").await;
    rolls_out(&cluster, 5).await;
    let expected = [("2".to_owned(), two.clone(), json!(0)), ("3".to_owned(), one, json!(4))];
    assert_eq!(revisions(&cluster).await, expected);

    // A third one: the oldest of two former revisions is forgotten.
    set_image(&cluster, "three").await;
    rolls_out(&cluster, 5).await;
    while items(&cluster, SETS).await.len() > 2 {
        tokio::task::yield_now().await;
    }
    let kept: Vec<Value> = revisions(&cluster).await.into_iter().map(|(_, image, _)| image).collect();
    assert_eq!(kept, [json!("one"), json!("three")]);

    // An old client asks the server to go back.
    let asked = json!({ "metadata": { "annotations": { "deprecated.deployment.rollback.to": "0" } } });
    cluster.patch(WEB, asked).await.expect(200);
    let is_back = |web: &Value| web["spec"]["template"]["spec"]["containers"][0]["image"] == "one";
    let web = cluster.until(WEB, is_back).await;
    assert!(web["metadata"]["annotations"]["deprecated.deployment.rollback.to"].is_null());
}

/// [WL-36] [TR-78]
#[tokio::test]
async fn deployment_that_is_paused_scales_and_rolls_out_once_when_resumed() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    deploy(&cluster, 2, json!({})).await;
    rolls_out(&cluster, 3).await;
    edit(&cluster, json!({ "paused": true })).await;
    cluster.until(WEB, |web| condition(web, "Progressing")["reason"] == "DeploymentPaused").await;
    for image in ["two", "three", "four"] {
        set_image(&cluster, image).await;
    }
    edit(&cluster, json!({ "replicas": 3 })).await;
    let paused = |web: &Value| {
        web["status"]["observedGeneration"] == web["metadata"]["generation"] && number(web, "availableReplicas") == 3
    };
    nodes_work(&cluster, 3, |_| {}, paused).await;
    assert_eq!(items(&cluster, SETS).await.len(), 1, "templates wait");
    let from = cluster.now().await;
    edit(&cluster, json!({ "paused": false })).await;
    rolls_out(&cluster, 4).await;
    let resumed = |_: &str, web: &Value| condition(web, "Progressing")["reason"] == "DeploymentResumed";
    cluster.until_seen(DEPLOYMENTS, &from, resumed).await;
    let images: Vec<Value> = revisions(&cluster).await.into_iter().map(|(_, image, _)| image).collect();
    assert_eq!(images, [json!("one"), json!("four")], "one new set");
}

/// [WL-46]
#[tokio::test]
async fn recreate_has_no_new_pod_before_the_last_old_one_is_gone() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    deploy(&cluster, 3, json!({ "strategy": { "type": "Recreate" } })).await;
    rolls_out(&cluster, 3).await;
    set_image(&cluster, "two").await;
    let old = items(&cluster, PODS).await;
    for pod in &old {
        cluster.until(&format!("{PODS}/{}", name(pod)), leaves).await;
    }
    let waits = |web: &Value| {
        let message = condition(web, "Progressing")["message"].as_str().unwrap_or_default();
        message == "Deployment \"web\" is waiting for 3 pods of former revisions to end, for at most 30s each."
    };
    cluster.until(WEB, waits).await;
    let one_revision = |pods: &[Value]| {
        let images: std::collections::BTreeSet<String> =
            pods.iter().map(|pod| pod["spec"]["containers"][0]["image"].to_string()).collect();
        assert!(images.len() <= 1, "{images:?}");
    };
    // Two have gone, and the third has ended but is kept by somebody.
    for pod in &old[..2] {
        cluster.finish(&name(pod)).await;
    }
    let last = name(&old[2]);
    let kept = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    assert_ne!(cluster.patch(&format!("{PODS}/{last}"), kept).await.code, 200, "not once it leaves");
    assert_eq!(items(&cluster, SETS).await.len(), 1, "the new set waits for the last pod");
    cluster.report(&last, "Succeeded", false).await;
    let web = cluster.until(WEB, |web| number(web, "updatedReplicas") == 3).await;
    assert_eq!(web["metadata"]["annotations"][REVISION], "2");
    cluster.finish(&last).await;
    nodes_work(&cluster, 3, one_revision, is_rolled_out).await;
}

/// [WL-33] Conformance: a set with a large revision is taken in as an old one.
#[tokio::test]
async fn deployment_adopts_a_set_and_counts_its_revision() {
    let mut cluster = Cluster::without_controllers().await;
    cluster.node("n1").await;
    let labels = json!({ "app": "web", "pod": "old" });
    let mut old = template("old");
    old["metadata"]["labels"] = labels.clone();
    let spec = json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": old });
    let annotations = json!({ REVISION: "3546343826724305832" });
    let metadata = json!({ "name": "stray", "labels": labels, "annotations": annotations });
    let stray = cluster.post(SETS, json!({ "metadata": metadata, "spec": spec })).await.expect(201);
    let web = deploy(&cluster, 1, json!({})).await;
    cluster.start_controllers(patient());
    let rolled = rolls_out(&cluster, 2).await;
    assert_eq!(rolled["metadata"]["annotations"][REVISION], "3546343826724305833");
    let adopted = cluster.get(&format!("{SETS}/stray")).await.expect(200);
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);
    assert_eq!((&adopted["metadata"]["uid"], &adopted["spec"]["replicas"]), (&stray["metadata"]["uid"], &json!(0)));

    // One that is no longer selected is let go.
    cluster.patch(&format!("{SETS}/stray"), json!({ "metadata": { "labels": { "app": "other" } } })).await.expect(200);
    cluster.until(&format!("{SETS}/stray"), |set| set["metadata"]["ownerReferences"].is_null()).await;
}

/// [WL-29] [WL-30]
#[tokio::test]
async fn deployment_finds_another_name_when_a_foreign_set_has_its() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let web = deploy(&cluster, 1, json!({})).await;
    rolls_out(&cluster, 2).await;
    let taken = name(&items(&cluster, SETS).await[0]);
    cluster.delete(WEB, json!({ "propagationPolicy": "Background" })).await.expect(200);
    cluster.until_gone(&format!("{SETS}/{taken}")).await;
    for pod in items(&cluster, PODS).await {
        cluster.until(&format!("{PODS}/{}", name(&pod)), leaves).await;
        cluster.finish(&name(&pod)).await;
    }
    let labels = json!({ "somebody": "else" });
    let mut foreign = template("foreign");
    foreign["metadata"]["labels"] = labels.clone();
    let spec = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": foreign });
    cluster.post(SETS, json!({ "metadata": { "name": taken }, "spec": spec })).await.expect(201);
    let again = deploy(&cluster, 1, json!({})).await;
    assert_ne!(again["metadata"]["uid"], web["metadata"]["uid"]);
    let rolled = rolls_out(&cluster, 2).await;
    assert_eq!(rolled["status"]["collisionCount"], 1);
    let sets = items(&cluster, SETS).await;
    assert_eq!(sets.len(), 2);
    assert!(sets.iter().any(|set| name(set) == taken && set["metadata"]["ownerReferences"].is_null()));
}

/// [WL-40] [WL-50]
#[tokio::test]
async fn deployment_tells_of_refused_pods_and_of_a_deadline_that_has_passed() {
    let cluster = Cluster::start().await;
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "pods": "1" } } });
    cluster.post("/api/v1/namespaces/default/resourcequotas", quota).await.expect(201);
    deploy(&cluster, 2, json!({ "progressDeadlineSeconds": 1 })).await;
    let web = cluster.until(WEB, |web| condition(web, "Progressing")["reason"] == "ProgressDeadlineExceeded").await;
    let late = condition(&web, "Progressing");
    assert_eq!(late["status"], "False");
    assert!(late["message"].as_str().unwrap().ends_with("has timed out progressing."), "{late}");
    let web = cluster.until(WEB, |web| condition(web, "ReplicaFailure")["reason"] == "FailedCreate").await;
    let failure = condition(&web, "ReplicaFailure")["message"].as_str().unwrap();
    assert!(failure.contains("exceeded quota: q"), "{failure}");
    edit(&cluster, json!({ "replicas": 1 })).await;
    let is_well = |web: &Value| number(web, "replicas") == 1 && condition(web, "ReplicaFailure").is_null();
    cluster.until(WEB, is_well).await;
}

/// [WL-172] Every way to delete a Deployment.
#[tokio::test]
async fn deployment_is_deleted_with_its_sets_and_pods_as_asked() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    for policy in ["Foreground", "Background"] {
        deploy(&cluster, 2, json!({})).await;
        rolls_out(&cluster, 3).await;
        let pods = items(&cluster, PODS).await;
        cluster.delete(WEB, json!({ "propagationPolicy": policy })).await.expect(200);
        for pod in &pods {
            cluster.until(&format!("{PODS}/{}", name(pod)), leaves).await;
        }
        assert_eq!(cluster.get(WEB).await.code == 200, policy == "Foreground", "it stays for as long as its pods");
        assert_eq!(items(&cluster, PODS).await.len(), 2, "nothing replaces what is deleted");
        for pod in &pods {
            cluster.finish(&name(pod)).await;
        }
        cluster.until_gone(WEB).await;
        while !items(&cluster, SETS).await.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    // Left behind, and taken in again by one of the same name: no pod is restarted.
    deploy(&cluster, 2, json!({})).await;
    rolls_out(&cluster, 3).await;
    let uids = |all: &[Value]| all.iter().map(|it| it["metadata"]["uid"].clone()).collect::<Vec<_>>();
    let (sets, pods) = (items(&cluster, SETS).await, items(&cluster, PODS).await);
    cluster.delete(WEB, json!({ "propagationPolicy": "Orphan" })).await.expect(200);
    cluster.until_gone(WEB).await;
    assert_eq!(uids(&items(&cluster, PODS).await), uids(&pods));
    deploy(&cluster, 2, json!({})).await;
    let web = rolls_out(&cluster, 3).await;
    let adopted = items(&cluster, SETS).await;
    assert_eq!((uids(&adopted), uids(&items(&cluster, PODS).await)), (uids(&sets), uids(&pods)));
    assert_eq!(adopted[0]["metadata"]["ownerReferences"][0]["uid"], web["metadata"]["uid"]);
}

/// [AD-88] [TR-77] [TR-85] [WL-47] Success does not wait for drains; the set of the old pods does.
#[tokio::test]
async fn deployment_is_rolled_out_while_old_pods_leave_and_forgets_their_set_after_them() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    deploy(&cluster, 1, json!({ "revisionHistoryLimit": 0 })).await;
    rolls_out(&cluster, 2).await;
    let old = name(&items(&cluster, PODS).await[0]);
    set_image(&cluster, "two").await;
    let of_old = |pod: &&Value| name(pod) == old;
    let new = loop {
        let pods = items(&cluster, PODS).await;
        if let Some(new) = pods.iter().find(|pod| !of_old(pod)) {
            break name(new);
        }
        tokio::task::yield_now().await;
    };
    let binding = json!({ "metadata": { "name": new }, "target": { "kind": "Node", "name": "n1" } });
    cluster.post(&format!("{PODS}/{new}/binding"), binding).await.expect(201);
    cluster.report(&new, "Running", true).await;
    cluster.until(&format!("{PODS}/{old}"), leaves).await;
    let drains = |web: &Value| is_rolled_out(web) && number(web, "terminatingReplicas") == 1;
    cluster.until(WEB, drains).await;
    assert_eq!(items(&cluster, SETS).await.len(), 2, "its pod has not ended");
    cluster.finish(&old).await;
    while items(&cluster, SETS).await.len() > 1 {
        tokio::task::yield_now().await;
    }
    let web = cluster.get(WEB).await.expect(200);
    assert!(is_rolled_out(&web), "{web:#}");
}

/// [WL-52]
#[tokio::test]
async fn deployment_continues_after_its_controllers_ended_at_any_moment() {
    let mut cluster = Cluster::start().await;
    cluster.node("n1").await;
    deploy(&cluster, 3, json!({ "revisionHistoryLimit": 0 })).await;
    rolls_out(&cluster, 4).await;
    set_image(&cluster, "two").await;
    for looks in 0..6 {
        // Somewhere in the rollout.
        for _ in 0..looks {
            node_looks(&cluster, 4).await;
        }
        cluster.stop_controllers().await;
        cluster.start_controllers(patient());
    }
    rolls_out(&cluster, 4).await;
    while items(&cluster, SETS).await.len() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(revisions(&cluster).await, [("2".to_owned(), json!("two"), json!(3))]);
}

/// [TR-87] With a budget that spares nobody, and without one if the owner asks for it: the pod that serves leaves when another serves.
#[tokio::test]
async fn deployment_has_a_successor_ready_before_its_only_pod_is_evicted() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    deploy(&cluster, 1, json!({})).await;
    rolls_out(&cluster, 1).await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } });
    cluster.post(budgets, json!({ "metadata": { "name": "b" }, "spec": spec })).await.expect(201);
    let counted =
        |budget: &Value| budget["status"]["currentHealthy"] == 1 && budget["status"]["observedGeneration"] == 1;
    cluster.until(&format!("{budgets}/b"), counted).await;
    let causes = evict_only_pod(&cluster).await;
    assert_eq!(causes, ["DisruptionBudget", "SurgeInProgress"]);

    cluster.delete(&format!("{budgets}/b"), json!({})).await.expect(200);
    cluster.patch(WEB, json!({ "metadata": { "annotations": { "adieu.dev/evict-surge": "true" } } })).await.expect(200);
    assert_eq!(evict_only_pod(&cluster).await, ["SurgeInProgress"]);
}

/// Evicts the only pod as `kubectl drain` does: again and again until it is let go. At any time a ready pod stays. Answers why it was
/// refused at first.
async fn evict_only_pod(cluster: &Cluster) -> Vec<String> {
    let serves = |pod: &&Value| condition(pod, "Ready")["status"] == "True" && !leaves(pod);
    let old = items(cluster, PODS).await.iter().find(serves).map(name).expect("one serves");
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": old } });
    let first = cluster.post(&format!("{PODS}/{old}/eviction"), eviction.clone()).await.expect(429);
    let causes = first["details"]["causes"].as_array().unwrap();
    let causes = causes.iter().map(|cause| cause["reason"].as_str().unwrap().to_owned()).collect();
    let going = async {
        let mut most = 0;
        loop {
            let pods = node_looks(cluster, 2).await;
            most = pods.len().max(most);
            assert!(items(cluster, PODS).await.iter().any(|pod| serves(&pod)), "nobody serves");
            let answer = cluster.post(&format!("{PODS}/{old}/eviction"), eviction.clone()).await;
            if answer.code == 201 {
                return most;
            }
            assert_eq!(answer.code, 429, "{}", answer.body);
        }
    };
    let most = tokio::time::timeout(PATIENCE, going).await.expect("it is let go");
    assert_eq!(most, 2, "its successor was there before");
    let law = |pods: &[Value]| assert!(pods.iter().any(|pod| serves(&pod)), "nobody serves");
    nodes_work(cluster, 1, law, is_rolled_out).await;
    let left: Vec<String> = items(cluster, PODS).await.iter().map(name).collect();
    assert!(left.len() == 1 && left[0] != old, "{left:?}");
    causes
}
