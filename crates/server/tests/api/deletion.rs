//! Deletion, scenario by scenario.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, Events, configmap, pod, version};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn grace(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

fn deadline(object: &Value) -> jiff::Timestamp {
    object["metadata"]["deletionTimestamp"].as_str().unwrap().parse().unwrap()
}

/// What the watch of `path` says next, as `TYPE grace`.
async fn told(events: &mut Events) -> (String, Option<i64>, u64) {
    let event = events.next().await.unwrap();
    (event["type"].as_str().unwrap().to_owned(), grace(&event["object"]), version(&event["object"]))
}

/// [AD-1] [AD-23] [AD-24] [AD-25] [AD-27] [AD-43] The observed run of api-deletion 3.2, step by step.
#[tokio::test]
async fn a_delete_can_be_repeated_and_shortened_but_never_lengthened() {
    let api = Api::start().await;
    let before = api.running_pod("p", |_| {}).await;
    let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(&before))).await;
    let path = format!("{PODS}/p");

    let asked = jiff::Timestamp::now();
    let first = api.delete(&path).await.expect(200);
    assert_eq!(grace(&first), Some(30));
    assert_eq!(first["metadata"]["generation"], 2);
    // Whole seconds on the wire.
    let (begin, answered) = (deadline(&first).as_second() - 30, jiff::Timestamp::now());
    assert!((asked.as_second()..=answered.as_second()).contains(&begin), "{asked} {begin} {answered}");
    assert_eq!(told(&mut events).await, ("MODIFIED".to_owned(), Some(30), version(&first)));

    let again = api.delete(&path).await.expect(200);
    let longer = api.delete_with(&path, &json!({ "gracePeriodSeconds": 60 })).await;
    assert!(longer.warnings()[0].contains("grace can only be shortened"), "{:?}", longer.warnings());
    assert_eq!((again, longer.expect(200)), (first.clone(), first.clone()));

    let shorter = api.delete_with(&path, &json!({ "gracePeriodSeconds": 10 })).await.expect(200);
    assert_eq!(grace(&shorter), Some(10));
    assert_eq!(deadline(&first).duration_since(deadline(&shorter)).as_secs(), 20);
    assert_eq!(shorter["metadata"]["generation"], 2);
    assert_eq!(told(&mut events).await, ("MODIFIED".to_owned(), Some(10), version(&shorter)));

    let gone = api.delete_with(&path, &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    assert_eq!(grace(&gone), Some(0));
    let marked = told(&mut events).await;
    let deleted = told(&mut events).await;
    assert_eq!((marked.0.as_str(), marked.1), ("MODIFIED", Some(0)));
    assert_eq!(deleted, ("DELETED".to_owned(), Some(0), version(&gone)));
    assert!(version(&shorter) < marked.2 && marked.2 < deleted.2);
    api.get(&path).await.expect(404);
}

/// [AD-2] [AD-4]
#[tokio::test]
async fn the_first_delete_chooses_its_grace() {
    let api = Api::start().await;
    api.running_pod("long", |_| {}).await;
    let long = api.delete(&format!("{PODS}/long?gracePeriodSeconds=60")).await.expect(200);
    assert_eq!(grace(&long), Some(60));
    api.running_pod("negative", |_| {}).await;
    let negative = api.delete_with(&format!("{PODS}/negative"), &json!({ "gracePeriodSeconds": -5 })).await.expect(200);
    assert_eq!(grace(&negative), Some(1));
    api.get(&format!("{PODS}/negative")).await.expect(200);
}

/// [AD-5] [AD-6] [AD-9]
#[tokio::test]
async fn a_pod_with_nothing_to_stop_goes_at_once_in_two_events() {
    let api = Api::start().await;
    api.post(PODS, &pod("unscheduled")).await.expect(201);
    api.running_pod("done", |_| {}).await;
    api.set_phase("done", "Succeeded").await;
    let last = api.running_pod("hasty", |pod| pod["spec"]["terminationGracePeriodSeconds"] = json!(0)).await;
    for name in ["unscheduled", "done", "hasty"] {
        let query = format!("{PODS}?watch=1&fieldSelector=metadata.name={name}&resourceVersion={}", version(&last));
        let mut events = api.watch(&query).await;
        let wish = if name == "hasty" { json!({}) } else { json!({ "gracePeriodSeconds": 45 }) };
        let answer = api.delete_with(&format!("{PODS}/{name}"), &wish).await.expect(200);
        assert_eq!(grace(&answer), Some(0), "{name}");
        assert_eq!(events.next_line().await, format!("MODIFIED {name}"));
        let (kind, _, revision) = told(&mut events).await;
        assert_eq!((kind.as_str(), revision), ("DELETED", version(&answer)));
        api.get(&format!("{PODS}/{name}")).await.expect(404);
    }
}

/// [AD-11] [AD-12]
#[tokio::test]
async fn a_missing_pod_is_404_and_names_itself() {
    let api = Api::start().await;
    for namespace in ["default", "nowhere"] {
        let status = api.delete(&format!("/api/v1/namespaces/{namespace}/pods/p1")).await.expect(404);
        assert_eq!(status["message"], "pods \"p1\" not found");
        assert_eq!(status["reason"], "NotFound");
        assert_eq!(status["details"], json!({ "name": "p1", "kind": "pods" }));
    }
}

/// [AD-13] [AD-14] [AD-15] [AD-16] [AD-17]
#[tokio::test]
async fn options_come_from_the_body_or_else_from_the_query() {
    let api = Api::start().await;
    api.running_pod("both", |_| {}).await;
    let path = format!("{PODS}/both?gracePeriodSeconds=3");
    assert_eq!(grace(&api.delete_with(&path, &json!({ "gracePeriodSeconds": 9 })).await.expect(200)), Some(9));

    // k8s\0, Unknown { typeMeta { "v1", "DeleteOptions" }, raw = DeleteOptions { gracePeriodSeconds = 7 } }
    api.running_pod("proto", |_| {}).await;
    let mut body = b"k8s\0".to_vec();
    let meta = [b"\x0a\x02v1".as_slice(), b"\x12\x0dDeleteOptions"].concat();
    body.extend([0x0a, u8::try_from(meta.len()).unwrap()]);
    body.extend(&meta);
    body.extend([0x12, 2, 0x08, 7]);
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    let answer = api.send(Method::DELETE, &format!("{PODS}/proto"), &headers, body).await.expect(200);
    assert_eq!(grace(&answer), Some(7));

    api.running_pod("p", |_| {}).await;
    let path = format!("{PODS}/p");
    let text = api.send(Method::DELETE, &path, &[("content-type", "text/plain")], "x").await.expect(415);
    assert!(text["message"].as_str().unwrap().starts_with("the body of the request was in an unknown format"));
    api.delete_with(&path, &json!({ "kind": "Pod", "apiVersion": "v1" })).await.expect(400);
    let policy = api.delete_with(&path, &json!({ "propagationPolicy": "Nope" })).await.expect(422);
    assert_eq!(policy["details"]["kind"], "DeleteOptions");
    let both = json!({ "propagationPolicy": "Orphan", "orphanDependents": true });
    api.delete_with(&path, &both).await.expect(422);
    assert_eq!(grace(&api.get(&path).await.expect(200)), None);
    api.delete_with(&path, &json!({ "kind": "DeleteOptions", "apiVersion": "apps/v1" })).await.expect(200);
}

/// [AD-18]
#[tokio::test]
async fn the_old_way_to_ask_for_background_is_answered_202() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    let answer = api.delete_with(&format!("{PODS}/p"), &json!({ "orphanDependents": false })).await.expect(202);
    assert_eq!(answer["kind"], "Pod");
}

/// [AD-19]
#[tokio::test]
async fn a_delete_can_be_answered_with_a_table() {
    let api = Api::start().await;
    api.running_pod("p", |_| {}).await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let table = api.send(Method::DELETE, &format!("{PODS}/p"), &accept, "").await.expect(200);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][2], "Terminating");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

/// [AD-21] [AD-22]
#[tokio::test]
async fn preconditions_guard_a_delete() {
    let api = Api::start().await;
    let pod = api.running_pod("p", |_| {}).await;
    let path = format!("{PODS}/p");
    let wrong = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "of-another" } });
    let status = api.delete_with(&path, &wrong).await.expect(409);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        status["message"],
        format!(
            "Operation cannot be fulfilled on Pod \"p\": the UID in the precondition (of-another) does not match the \
             UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    assert_eq!(status["details"]["kind"], "Pod");
    let stale = json!({ "gracePeriodSeconds": 0, "preconditions": { "resourceVersion": "1" } });
    api.delete_with(&path, &stale).await.expect(409);
    assert_eq!(api.get(&path).await.expect(200), pod, "a refused delete writes nothing");
    let current = pod["metadata"]["resourceVersion"].clone();
    let right = json!({ "gracePeriodSeconds": 0, "preconditions": { "resourceVersion": current, "uid": uid } });
    api.delete_with(&path, &right).await.expect(200);
    api.get(&path).await.expect(404);
}

/// [AD-32]
#[tokio::test]
async fn a_finalizer_outlasts_the_node_and_its_removal_ends_the_pod() {
    let api = Api::start().await;
    api.running_pod("p", |pod| pod["metadata"]["finalizers"] = json!(["x.io/y"])).await;
    let path = format!("{PODS}/p");
    api.delete(&path).await.expect(200);
    let held = api.delete_with(&path, &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    assert_eq!((grace(&held), held["metadata"]["finalizers"].clone()), (Some(0), json!(["x.io/y"])));

    let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(&held))).await;
    let mut free = held.clone();
    free["metadata"]["finalizers"] = json!([]);
    let answer = api.put(&path, &free).await.expect(200);
    assert_eq!(version(&answer), version(&held), "the answer carries the version that was replaced");
    assert!(answer["metadata"].get("finalizers").is_none());
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["finalizers"], json!(["x.io/y"]), "the last stored state");
    assert!(version(&event["object"]) > version(&held));
    api.get(&path).await.expect(404);
}

/// [AD-34] [AD-38] [AD-74]
#[tokio::test]
async fn a_terminating_pod_takes_status_writes_and_no_new_finalizers() {
    let api = Api::start().await;
    api.running_pod("p", |pod| pod["metadata"]["finalizers"] = json!(["x.io/y"])).await;
    let path = format!("{PODS}/p");
    let marked = api.delete(&path).await.expect(200);
    let mut more = marked.clone();
    more["metadata"]["finalizers"] = json!(["x.io/y", "a.b/c"]);
    let status = api.put(&path, &more).await.expect(422);
    assert!(status["message"].as_str().unwrap().contains("no new finalizers can be added"), "{status}");
    let mut none = marked.clone();
    none["metadata"]["finalizers"] = json!([]);
    let freed = api.put(&path, &none).await.expect(200);
    assert_eq!(grace(&freed), Some(30), "the node still has the last word");

    let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(&freed))).await;
    let ended = api.set_phase("p", "Failed").await;
    assert_eq!(grace(&ended), Some(30));
    let last = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": freed["metadata"]["uid"] } });
    let gone = api.delete_with(&path, &last).await.expect(200);
    assert_eq!(deadline(&gone), deadline(&freed), "the final delete of an ended pod keeps the deadline");
    for line in ["MODIFIED p", "MODIFIED p", "DELETED p"] {
        assert_eq!(events.next_line().await, line);
    }
}

/// [AD-39] [AD-40]
#[tokio::test]
async fn a_leaving_pod_keeps_its_name_and_takes_no_node() {
    let api = Api::start().await;
    let mut held = pod("p");
    held["metadata"]["finalizers"] = json!(["x.io/y"]);
    api.post(PODS, &held).await.expect(201);
    api.delete(&format!("{PODS}/p")).await.expect(200);
    let status = api.post(PODS, &pod("p")).await.expect(409);
    assert_eq!(status["message"], "object is being deleted: pods \"p\" already exists");
    assert_eq!(status["reason"], "AlreadyExists");
    let binding = json!({ "target": { "kind": "Node", "name": "n1" } });
    let status = api.post(&format!("{PODS}/p/binding"), &binding).await.expect(409);
    assert!(status["message"].as_str().unwrap().ends_with("pod p is being deleted, cannot be assigned to a host"));
}

/// [AD-41] [AD-42]
#[tokio::test]
async fn a_kind_without_grace_goes_at_once_or_waits_for_its_finalizer() {
    let api = Api::start().await;
    let made = api.post(MAPS, &configmap("plain")).await.expect(201);
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&made))).await;
    let status = api.delete(&format!("{MAPS}/plain")).await.expect(200);
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"], json!({ "name": "plain", "kind": "configmaps", "uid": made["metadata"]["uid"] }));
    assert!(status.get("code").is_none());
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert!(event["object"]["metadata"].get("deletionTimestamp").is_none());

    let mut held = configmap("held");
    held["metadata"]["finalizers"] = json!(["x.io/y"]);
    api.post(MAPS, &held).await.expect(201);
    let first = api.delete(&format!("{MAPS}/held")).await.expect(200);
    let second = api.delete(&format!("{MAPS}/held")).await.expect(200);
    assert_eq!(first["kind"], "ConfigMap");
    assert_eq!((grace(&first), first.clone()), (Some(0), second));
}

/// [AD-47]
#[tokio::test]
async fn a_dry_run_shows_the_mark_and_writes_nothing() {
    let api = Api::start().await;
    let pod = api.running_pod("p", |_| {}).await;
    let answer = api.delete(&format!("{PODS}/p?dryRun=All")).await.expect(200);
    assert_eq!((grace(&answer), version(&answer)), (Some(30), version(&pod)));
    assert_eq!(api.get(&format!("{PODS}/p")).await.expect(200), pod);
}

/// [AD-48] [AD-49]
#[tokio::test]
async fn a_collection_is_deleted_object_by_object() {
    let api = Api::start().await;
    let labelled = |pod: &mut Value| pod["metadata"]["labels"] = json!({ "app": "x" });
    api.running_pod("a", labelled).await;
    api.running_pod("b", labelled).await;
    api.running_pod("other", |_| {}).await;
    let mut unscheduled = pod("c");
    labelled(&mut unscheduled);
    api.post(PODS, &unscheduled).await.expect(201);
    let path = format!("{PODS}?labelSelector=app%3Dx");
    let list = api.delete_with(&path, &json!({ "gracePeriodSeconds": 5 })).await.expect(200);
    let items = list["items"].as_array().unwrap();
    assert_eq!((list["kind"].as_str(), items.len()), (Some("PodList"), 3));
    assert!(items.iter().all(|item| item["metadata"].get("deletionTimestamp").is_none()), "as read before");
    for name in ["a", "b"] {
        assert_eq!(grace(&api.get(&format!("{PODS}/{name}")).await.expect(200)), Some(5));
    }
    api.get(&format!("{PODS}/c")).await.expect(404);
    assert_eq!(grace(&api.get(&format!("{PODS}/other")).await.expect(200)), None);
    let nothing = api.delete(&format!("{PODS}?labelSelector=app%3Dnone")).await.expect(200);
    assert_eq!(nothing["items"], json!([]));
    // [AD-50]
    assert_eq!(api.delete("/api/v1/pods").await.expect(405)["reason"], "MethodNotAllowed");
}

/// [AD-51] [AD-59] [AD-60] [AD-63]
#[tokio::test]
async fn an_eviction_says_why_and_then_deletes() {
    let api = Api::start().await;
    let pod = api.running_pod("p", |_| {}).await;
    let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(&pod))).await;
    let path = format!("{PODS}/p/eviction");
    let eviction = |name: &str| json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
    api.post(&path, &eviction("q")).await.expect(400);
    let answer = api.post(&path, &eviction("p")).await.expect(201);
    assert_eq!((answer["status"].as_str(), answer["code"].as_i64()), (Some("Success"), Some(201)));
    let told = events.next().await.unwrap();
    let conditions = told["object"]["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "DisruptionTarget" && c["status"] == "True"), "{told}");
    assert_eq!(grace(&told["object"]), Some(30), "why and that are one write");
    // Again: the pod is leaving as it was told to.
    let leaving = api.get(&format!("{PODS}/p")).await.expect(200);
    api.post(&path, &eviction("p")).await.expect(201);
    assert_eq!(api.get(&format!("{PODS}/p")).await.expect(200), leaving);

    let now = api.running_pod("now", |_| {}).await;
    let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", version(&now))).await;
    let mut at_once = eviction("now");
    at_once["apiVersion"] = json!("policy/v1beta1");
    at_once["deleteOptions"] = json!({ "gracePeriodSeconds": 0 });
    api.post(&format!("{PODS}/now/eviction"), &at_once).await.expect(201);
    api.get(&format!("{PODS}/now")).await.expect(404);
    let [told, gone] = [events.next().await, events.next().await].map(Option::unwrap);
    assert_eq!([&told["type"], &gone["type"]], ["MODIFIED", "DELETED"]);
    assert_eq!([&told, &gone].map(|event| grace(&event["object"])), [Some(0), Some(0)]);
    assert!(told["object"]["status"]["conditions"].to_string().contains("EvictionByEvictionAPI"), "{told}");
    assert!(gone["object"]["status"]["conditions"].to_string().contains("EvictionByEvictionAPI"), "{gone}");
}

/// The promise of the design: a delete is on the watch within a millisecond or so of its commit.
#[tokio::test]
async fn a_watcher_hears_of_a_delete_before_the_one_who_asked() {
    let api = Api::start().await;
    let mut events = api.watch(&format!("{PODS}?watch=1&resourceVersion={}", api.store.revision().0)).await;
    for round in 0..20 {
        let name = format!("p{round}");
        api.post(PODS, &pod(&name)).await.expect(201);
        assert_eq!(events.next_line().await, format!("ADDED {name}"));
        api.delete(&format!("{PODS}/{name}")).await.expect(200);
        // Both events are ready by the time the delete is answered.
        for line in [format!("MODIFIED {name}"), format!("DELETED {name}")] {
            let next = tokio::time::timeout(std::time::Duration::from_millis(100), events.next_line()).await;
            assert_eq!(next.expect("the event is there already"), line);
        }
    }
}

/// Evictions that race for one budget take it pod by pod, and no further.
#[tokio::test]
async fn a_budget_holds_when_everybody_evicts_at_once() {
    let api = Api::start().await;
    for n in 0..5 {
        let name = format!("w{n}");
        let mut pod = api.running_pod(&name, |pod| pod["metadata"]["labels"] = json!({ "app": "w" })).await;
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        api.put(&format!("/api/v1/namespaces/default/pods/{name}/status"), &pod).await.expect(200);
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 3, "selector": { "matchLabels": { "app": "w" } } } });
    let mut budget = api.post(budgets, &budget).await.expect(201);
    let evict = |n: usize| {
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": format!("w{n}") } });
        let api = &api;
        async move { api.post(&format!("/api/v1/namespaces/default/pods/w{n}/eviction"), &body).await }
    };
    // Nobody has counted yet: come back.
    let early = evict(0).await;
    assert_eq!((early.code, early.headers["retry-after"].to_str().unwrap()), (429, "10"));
    budget["status"] = json!({ "observedGeneration": 1, "disruptionsAllowed": 2, "currentHealthy": 5, "desiredHealthy": 3, "expectedPods": 5 });
    api.put(&format!("{budgets}/b/status"), &budget).await.expect(200);
    let answers = futures::future::join_all((0..5).map(evict)).await;
    let mut codes: Vec<u16> = answers.iter().map(|answer| answer.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [201, 201, 429, 429, 429]);
    let refused = answers.iter().find(|answer| answer.code == 429).unwrap();
    assert!(refused.headers.get("retry-after").is_none(), "drain retries by itself, and says so");
    let left = api.get(&format!("{budgets}/b")).await.expect(200);
    assert_eq!(left["status"]["disruptionsAllowed"], 0);
    assert_eq!(left["status"]["disruptedPods"].as_object().unwrap().len(), 2);
}

/// A budget is spent on pods that were evicted, and on nothing else: whoever loses the pod to another takes nothing.
#[tokio::test]
async fn an_eviction_that_comes_too_late_costs_nothing() {
    let api = Api::start().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 0, "selector": { "matchLabels": { "app": "w" } } } });
    let mut budget = api.post(budgets, &budget).await.expect(201);
    budget["status"] =
        json!({ "observedGeneration": 1, "disruptionsAllowed": 100, "currentHealthy": 100, "expectedPods": 100 });
    api.put(&format!("{budgets}/b/status"), &budget).await.expect(200);
    let mut evicted = std::collections::BTreeSet::new();
    for n in 0..20 {
        let name = format!("w{n}");
        let mut pod = api.running_pod(&name, |pod| pod["metadata"]["labels"] = json!({ "app": "w" })).await;
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        api.put(&format!("{PODS}/{name}/status"), &pod).await.expect(200);
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": name } });
        let (path, own) = (format!("{PODS}/{name}/eviction"), format!("{PODS}/{name}?gracePeriodSeconds=0"));
        let (answer, gone) = futures::join!(api.post(&path, &body), api.delete(&own));
        assert_eq!(gone.code, 200, "{}", gone.text);
        if answer.code == 201 {
            evicted.insert(name);
        }
    }
    let left = api.get(&format!("{budgets}/b")).await.expect(200);
    let spent: std::collections::BTreeSet<String> =
        left["status"]["disruptedPods"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    assert_eq!(spent, evicted);
    assert_eq!(left["status"]["disruptionsAllowed"], 100 - evicted.len());
}

/// [AD-50]
#[tokio::test]
async fn a_collection_is_deleted_in_one_namespace_only() {
    let api = Api::start().await;
    api.post(PODS, &pod("p")).await.expect(201);
    let refused = api.delete("/api/v1/pods").await.expect(405);
    assert_eq!(refused["reason"], "MethodNotAllowed");
    assert_eq!(refused["message"], "the server does not allow this method on the requested resource");
    api.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(api.delete(PODS).await.expect(200)["items"].as_array().unwrap().len(), 1);
}
