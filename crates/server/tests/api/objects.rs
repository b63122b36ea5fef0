//! Create, update, status, conflicts, refusals.

use http::Method;
use serde_json::{Value, json};
use server::Identity;

use crate::harness::{Api, configmap, pod, version};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

#[tokio::test]
async fn a_created_object_is_the_servers_own() {
    let api = Api::start().await;
    let mut sent = pod("p");
    sent["metadata"]["uid"] = json!("mine");
    sent["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    sent["metadata"]["generation"] = json!(7);
    let answer = api.post(PODS, &sent).await;
    assert_eq!(answer.headers["cache-control"], "no-cache, private");
    assert_eq!(answer.headers["audit-id"].len(), 36);
    assert_eq!(answer.headers["content-type"], "application/json");
    let made = answer.expect(201);
    assert_eq!((made["kind"].as_str(), made["apiVersion"].as_str()), (Some("Pod"), Some("v1")));
    let metadata = &made["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_eq!((metadata["namespace"].as_str(), metadata["generation"].as_i64()), (Some("default"), Some(1)));
    assert!(metadata.get("deletionTimestamp").is_none());
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(api.get(&format!("{PODS}/p")).await.expect(200), made);
    let taken = api.post(PODS, &pod("p")).await.expect(409);
    assert_eq!(taken["message"], "pods \"p\" already exists");
}

/// Appendix 16.
#[tokio::test]
async fn a_generated_name_is_a_new_one_each_time() {
    let api = Api::start().await;
    let sent = json!({ "metadata": { "generateName": "web-" } });
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let made = api.post(MAPS, &sent).await.expect(201);
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        names.insert(name);
    }
    assert_eq!(names.len(), 5);
    api.post(&format!("{MAPS}?dryRun=All"), &sent).await.expect(201);
    let listed = api.get(MAPS).await.expect(200);
    let generated =
        listed["items"].as_array().unwrap().iter().filter(|map| map["metadata"].get("generateName").is_some());
    assert_eq!(generated.count(), 5, "a dry run stores nothing");
}

#[tokio::test]
async fn creates_that_make_no_sense_are_refused() {
    let api = Api::start().await;
    let missing = api.post("/api/v1/namespaces/nonens/pods", &pod("p")).await.expect(404);
    assert_eq!(missing["message"], "namespaces \"nonens\" not found");
    let mut elsewhere = configmap("x");
    elsewhere["metadata"]["namespace"] = json!("kube-system");
    let status = api.post(MAPS, &elsewhere).await.expect(400);
    assert_eq!(
        status["message"],
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    let mut versioned = configmap("x");
    versioned["metadata"]["resourceVersion"] = json!("5");
    let status = api.post(MAPS, &versioned).await.expect(500);
    assert_eq!(status["message"], "resourceVersion should not be set on objects to be created");
    let mut nameless = pod("p");
    nameless["spec"]["containers"][0].as_object_mut().unwrap().remove("image");
    let status = api.post(PODS, &nameless).await.expect(422);
    assert!(status["message"].as_str().unwrap().contains("spec.containers[0].image: Required value"), "{status}");
    assert_eq!(status["details"]["kind"], "Pod");
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_about_or_refused() {
    let api = Api::start().await;
    let mut sent = pod("p");
    sent["spec"]["contaners"] = json!([]);
    let strict = api.post(&format!("{PODS}?fieldValidation=Strict"), &sent).await.expect(400);
    let message = strict["message"].as_str().unwrap();
    assert!(message.contains("strict decoding error: unknown field \"spec.contaners\""), "{message}");
    let warned = api.post(PODS, &sent).await;
    assert_eq!(warned.warnings(), [r#"299 - "unknown field \"spec.contaners\"""#]);
    assert!(warned.expect(201)["spec"].get("contaners").is_none());
    sent["metadata"]["name"] = json!("q");
    let ignored = api.post(&format!("{PODS}?fieldValidation=Ignore"), &sent).await;
    assert!(ignored.warnings().is_empty());
}

#[tokio::test]
async fn yaml_is_read_and_other_formats_are_415() {
    let api = Api::start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yam\ndata:\n  a: b\n";
    let made = api.send(Method::POST, MAPS, &[("content-type", "application/yaml")], yaml).await.expect(201);
    assert_eq!(made["data"]["a"], "b");
    let status = api.send(Method::POST, MAPS, &[("content-type", "application/cbor")], yaml).await.expect(415);
    assert_eq!(status["reason"], "UnsupportedMediaType");
    let bare = api.send(Method::POST, MAPS, &[], configmap("bare").to_string()).await;
    bare.expect(201);
    api.send(Method::POST, MAPS, &[], "{").await.expect(400);
    let refused = api.send(Method::GET, MAPS, &[("accept", "application/cbor")], "").await.expect(406);
    let written = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(refused["message"], format!("only the following media types are accepted: {written}"));
}

/// Appendix 1: `kubectl create namespace` sends protobuf.
#[tokio::test]
async fn a_protobuf_body_is_read_and_answered_in_json() {
    let api = Api::start().await;
    let metadata = [b"\x0a\x04team".as_slice()].concat();
    let namespace = [&[0x0a, u8::try_from(metadata.len()).unwrap()], metadata.as_slice()].concat();
    let types = [b"\x0a\x02v1".as_slice(), b"\x12\x09Namespace"].concat();
    let mut body = b"k8s\0".to_vec();
    body.extend([&[0x0a, u8::try_from(types.len()).unwrap()], types.as_slice()].concat());
    body.extend([&[0x12, u8::try_from(namespace.len()).unwrap()], namespace.as_slice()].concat());
    let headers = [
        ("content-type", "application/vnd.kubernetes.protobuf"),
        ("accept", "application/vnd.kubernetes.protobuf,application/json"),
    ];
    let path = "/api/v1/namespaces?fieldManager=kubectl-create&fieldValidation=Strict";
    let made = api.send(Method::POST, path, &headers, body).await.expect(201);
    assert_eq!((made["kind"].as_str(), made["metadata"]["name"].as_str()), (Some("Namespace"), Some("team")));
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    let unmagic = api.send(Method::POST, path, &headers, "{}").await;
    unmagic.expect(400);
}

/// Appendix 15 and 17.
#[tokio::test]
async fn an_update_needs_the_newest_version_or_none() {
    let api = Api::start().await;
    let first = api.post(MAPS, &configmap("x")).await.expect(201);
    let path = format!("{MAPS}/x");
    let mut second = first.clone();
    second["data"] = json!({ "a": "2" });
    let updated = api.put(&path, &second).await.expect(200);
    assert!(version(&updated) > version(&first));
    let stale = api.put(&path, &second).await.expect(409);
    assert_eq!(
        stale["message"],
        "Operation cannot be fulfilled on configmaps \"x\": the object has been modified; please apply your changes \
         to the latest version and try again"
    );
    assert_eq!(stale["reason"], "Conflict");
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&updated))).await;
    let same = api.put(&path, &updated).await.expect(200);
    assert_eq!(same, updated, "a write that changes nothing is none");
    let unconditional = api.put(&path, &configmap("x")).await.expect(200);
    assert!(version(&unconditional) > version(&updated));
    let event = events.next().await.unwrap();
    assert_eq!(version(&event["object"]), version(&unconditional), "and no event");

    let mut other = configmap("y");
    other["metadata"]["name"] = json!("y");
    let status = api.put(&path, &other).await.expect(400);
    assert_eq!(status["message"], "the name of the object (y) does not match the name on the URL (x)");
    let mut recreated = configmap("x");
    recreated["metadata"]["uid"] = json!("another");
    assert_eq!(api.put(&path, &recreated).await.expect(409)["reason"], "Conflict");
    api.put(&format!("{MAPS}/none"), &configmap("none")).await.expect(404);
}

#[tokio::test]
async fn a_lease_is_made_by_put_and_then_needs_its_version() {
    let api = Api::start().await;
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "me" } });
    let made = api.put(&format!("{LEASES}/l"), &lease).await.expect(201);
    assert_eq!(made["apiVersion"], "coordination.k8s.io/v1");
    let status = api.put(&format!("{LEASES}/l"), &lease).await.expect(422);
    assert!(
        status["message"].as_str().unwrap().contains("metadata.resourceVersion: Invalid value: 0: must be specified")
    );
    let mut next = made.clone();
    next["spec"]["holderIdentity"] = json!("you");
    api.put(&format!("{LEASES}/l"), &next).await.expect(200);
    let listed = api.get("/apis/coordination.k8s.io/v1/leases").await.expect(200);
    assert_eq!((listed["kind"].as_str(), listed["items"].as_array().unwrap().len()), (Some("LeaseList"), 1));
}

#[tokio::test]
async fn spec_and_status_are_written_by_separate_endpoints() {
    let api = Api::start().await;
    let pod = api.running_pod("p", |_| {}).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["spec"]["nodeName"], "n1");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "PodScheduled" && c["status"] == "True"));
    let mut both = pod.clone();
    both["status"]["phase"] = json!("Failed");
    both["metadata"]["labels"] = json!({ "a": "b" });
    let main = api.put(&format!("{PODS}/p"), &both).await.expect(200);
    assert_eq!(
        (main["status"]["phase"].as_str(), main["metadata"]["labels"]["a"].as_str()),
        (Some("Running"), Some("b"))
    );
    let mut status = main.clone();
    status["status"]["phase"] = json!("Failed");
    status["spec"]["containers"][0]["image"] = json!("other");
    let status = api.put(&format!("{PODS}/p/status"), &status).await.expect(200);
    assert_eq!(status["status"]["phase"], "Failed");
    assert_eq!(status["spec"]["containers"][0]["image"], "busybox");
    assert_eq!(api.get(&format!("{PODS}/p/status")).await.expect(200), status);
    let again = json!({ "target": { "kind": "Node", "name": "n2" } });
    let bound = api.post(&format!("{PODS}/p/binding"), &again).await.expect(409);
    assert!(bound["message"].as_str().unwrap().contains("pod p is already assigned to node \"n1\""), "{bound}");
}

#[tokio::test]
async fn racing_writers_all_get_through() {
    let api = std::sync::Arc::new(Api::start().await);
    api.post(MAPS, &configmap("x")).await.expect(201);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..20 {
        let api = std::sync::Arc::clone(&api);
        writers.spawn(async move {
            let mut map = configmap("x");
            map["data"] = json!({ "a": format!("{writer}") });
            api.put(&format!("{MAPS}/x"), &map).await.expect(200)
        });
    }
    let written = writers.join_all().await;
    let versions: std::collections::BTreeSet<u64> = written.iter().map(version).collect();
    assert_eq!(versions.len(), 20);
}

#[tokio::test]
async fn too_long_a_body_is_413() {
    let api = Api::start().await;
    let mut map = configmap("x");
    map["data"]["a"] = json!("x".repeat(3 * 1024 * 1024));
    let status = api.post(MAPS, &map).await.expect(413);
    assert_eq!(status["reason"], "RequestEntityTooLarge");
}

#[tokio::test]
async fn unknown_path_is_404_and_unsupported_method_is_405() {
    let api = Api::start().await;
    let status = api.get("/api/v1/namespaces/default/widgets").await.expect(404);
    assert_eq!(status["message"], "the server could not find the requested resource");
    api.get("/nothing/here").await.expect(404);
    api.get("/apis/apps/v9/namespaces/default/deployments").await.expect(404);
    api.send(Method::PUT, PODS, &[], "").await.expect(405);
    api.send(Method::POST, "/healthz", &[], "").await.expect(405);
}

/// Appendix 22, and the sentences of section 9.
#[tokio::test]
async fn each_user_gets_what_is_theirs() {
    let api = Api::start().await;
    let ask = |identity: Option<Identity>, method: Method, path: &'static str| {
        let service = match identity {
            Some(identity) => api.server.service_as(identity),
            None => api.server.service(),
        };
        let api = &api;
        async move { api.send_as(service, method, path, &[], "").await }
    };
    for path in ["/healthz", "/livez", "/readyz", "/version", "/version/", "/readyz/ping", "/healthz?verbose"] {
        assert_eq!(ask(None, Method::GET, path).await.code, 200, "{path}");
    }
    let anonymous = ask(None, Method::GET, "/api/v1/pods").await.expect(403);
    assert_eq!(
        anonymous["message"],
        "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API group \"\" at the cluster \
         scope"
    );
    let path = ask(None, Method::GET, "/apis").await.expect(403);
    assert_eq!(path["message"], "forbidden: User \"system:anonymous\" cannot get path \"/apis\"");
    assert_eq!(ask(None, Method::GET, "/api/v1/nonsense").await.code, 403, "nobody learns what is not there");
    let token = [("authorization", "Bearer abc")];
    let bad = api.send_as(api.server.service(), Method::GET, "/api/v1/pods", &token, "").await.expect(401);
    assert_eq!((bad["reason"].as_str(), bad["message"].as_str()), (Some("Unauthorized"), Some("Unauthorized")));

    let node = || Some(Identity::node("n1"));
    assert_eq!(ask(node(), Method::GET, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await.code, 200);
    assert_eq!(ask(node(), Method::GET, "/apis").await.code, 200);
    let refused = ask(node(), Method::DELETE, "/api/v1/namespaces/default").await.expect(403);
    assert_eq!(
        refused["message"],
        "namespaces \"default\" is forbidden: User \"system:node:n1\" cannot delete resource \"namespaces\" in API \
         group \"\" in the namespace \"default\""
    );
    // A header makes nobody anybody.
    let forged = [("impersonate-user", "kubernetes-admin"), ("x-remote-group", "system:masters")];
    let forged = api.send_as(api.server.service(), Method::GET, "/api/v1/pods", &forged, "").await;
    assert_eq!(forged.code, 403);
}

/// Appendix 13 and 20: discovery in both its forms, and enough OpenAPI for kubectl.
#[tokio::test]
async fn discovery_lists_every_group_and_resource() {
    let api = Api::start().await;
    assert_eq!(api.get("/api").await.expect(200)["versions"], json!(["v1"]));
    let legacy = api.get("/api/v1").await.expect(200);
    let eviction = legacy["resources"].as_array().unwrap().iter().find(|r| r["name"] == "pods/eviction").unwrap();
    assert_eq!((eviction["group"].as_str(), eviction["version"].as_str()), (Some("policy"), Some("v1")));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let aggregated = api.send(Method::GET, "/api", &[("accept", accept)], "").await;
    let media = aggregated.headers["content-type"].to_str().unwrap().to_owned();
    assert!(media.contains("as=APIGroupDiscoveryList"), "{media}");
    let tag = aggregated.headers["etag"].to_str().unwrap().to_owned();
    let names = |document: &Value| -> Vec<String> {
        let resources = document["items"][0]["versions"][0]["resources"].as_array().unwrap();
        resources.iter().map(|r| r["resource"].as_str().unwrap().to_owned()).collect()
    };
    for name in names(&aggregated.expect(200)) {
        assert!(legacy["resources"].as_array().unwrap().iter().any(|r| r["name"] == json!(name)), "{name}");
    }
    let again = api.send(Method::GET, "/api", &[("accept", accept), ("if-none-match", &tag)], "").await;
    assert_eq!((again.code, again.text.as_str()), (304, ""));
    assert_eq!(api.get("/apis/coordination.k8s.io").await.expect(200)["kind"], "APIGroup");
    api.get("/apis/nothing.io").await.expect(404);

    let index = api.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = api.get(&url).await.expect(200);
    let pod = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"];
    assert!(["get", "put", "patch", "delete"].iter().all(|verb| pod[verb]["operationId"].is_string()), "{pod}");
    let old = [("accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")];
    let old = api.send(Method::GET, "/openapi/v2", &old, "").await;
    assert_eq!(old.code, 200);
    assert_eq!(old.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let definitions = &api.get("/openapi/v2").await.expect(200)["definitions"];
    assert!(definitions["io.k8s.api.core.v1.Pod"]["description"].is_string());
    let version = api.get("/version").await.expect(200);
    assert_eq!(
        (version["minor"].as_str(), version["gitVersion"].as_str()),
        (Some("36"), Some(crate::harness::VERSION))
    );
}

#[tokio::test]
async fn schemas_are_sent_small_to_those_who_can_read_them_so() {
    let api = Api::start().await;
    let path = "/openapi/v3/api/v1";
    let plain = api.get(path).await;
    assert!(plain.headers.get("content-encoding").is_none());
    let whole = plain.text.len();
    let document = plain.expect(200);
    assert!(document["components"]["schemas"]["io.k8s.api.core.v1.Pod"].is_object());
    let request = http::Request::get(path).header("accept-encoding", "gzip, br");
    let request = request.body(http_body_util::Full::new(bytes::Bytes::new())).unwrap();
    let response = tower::ServiceExt::oneshot(api.service(), request).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let small = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(small[..2], [0x1f, 0x8b]);
    assert!(small.len() * 5 < whole, "{} of {whole}", small.len());
}

#[tokio::test]
async fn the_server_counts_what_it_answers() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces/default/configmaps", &configmap("c")).await.expect(201);
    let _watch = api.watch("/api/v1/configmaps?watch=1").await;
    api.get("/api/v1/namespaces/default/made-up-by-a-client").await.expect(404);
    let page = api.get("/metrics").await.text;
    let has = |line: &str| assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    has(r#"apiserver_request_total{verb="create",resource="configmaps",group="",code="201"} 1"#);
    has(r#"apiserver_request_duration_seconds_count{verb="create",resource="configmaps"} 1"#);
    has(r#"apiserver_longrunning_requests{verb="watch"} 1"#);
    has(r#"apiserver_storage_objects{resource="namespaces"} 4"#);
    assert!(page.contains("process_resident_memory_bytes ") && !page.contains("made-up"));
    let nobody = api.send_as(api.server.service(), http::Method::GET, "/metrics", &[], "").await;
    assert_eq!(nobody.code, 403);
    assert_eq!(api.get("/livez?verbose").await.text, "[+]ping ok\nlivez check passed\n", "no more than is looked at");
    assert_eq!(api.get("/livez/ping").await.text, "ok");
    assert_eq!(api.get("/livez/store").await.code, 404);
    let verbose = api.get("/readyz?verbose&exclude=ping&exclude=moon").await.text;
    assert_eq!(
        verbose,
        "[+]ping excluded: ok\n[+]store ok\nwarn: some health checks cannot be excluded: no matches for \"moon\"\nreadyz check passed\n"
    );
}

/// Whoever waits for a pod behind a gate can see what it waits for.
#[tokio::test]
async fn a_gated_pod_says_so_from_the_first() {
    let api = Api::start().await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
    let made = api.post("/api/v1/namespaces/default/pods", &gated).await.expect(201);
    let condition = &made["status"]["conditions"][0];
    assert_eq!(condition["type"], "PodScheduled");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("SchedulingGated")));
    assert!(condition["lastTransitionTime"].is_string(), "{condition}");
    let free = api.post("/api/v1/namespaces/default/pods", &pod("free")).await.expect(201);
    assert!(free["status"].get("conditions").is_none(), "{free:#}");
}

/// Clients that write only the tolerations they know do not take away those that every pod has.
#[tokio::test]
async fn tolerations_of_every_pod_survive_those_that_are_written_anew() {
    let api = Api::start().await;
    let path = "/api/v1/namespaces/default/pods/p";
    let mut made = api.post("/api/v1/namespaces/default/pods", &pod("p")).await.expect(201);
    let given = made["spec"]["tolerations"].as_array().unwrap().clone();
    let own = json!({ "key": "example.com/x", "operator": "Equal", "value": "y", "effect": "NoSchedule" });
    made["spec"]["tolerations"] = json!([own]);
    let stored = api.put(path, &made).await.expect(200);
    let all = stored["spec"]["tolerations"].as_array().unwrap();
    assert!(given.iter().chain([&own]).all(|toleration| all.contains(toleration)), "{all:?}");
    assert_eq!(all.len(), given.len() + 1);
}
