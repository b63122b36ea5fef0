//! What a namespace asks of what is put into it: limit ranges, pod security and quotas, on every way in.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, configmap, pod};

const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How long a keeper may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn quota(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": name }, "spec": spec })
}

fn sized(name: &str, cpu: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
    pod
}

fn message(answer: Answer, code: u16) -> String {
    answer.expect(code)["message"].as_str().unwrap().to_owned()
}

async fn apply(api: &Api, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/apply-patch+yaml")];
    api.send(Method::PATCH, &format!("{path}?fieldManager=t"), &headers, body.to_string()).await
}

/// Waits until the quota says that it has `used` in use.
async fn in_use(api: &Api, name: &str, used: &Value) {
    let seen = async {
        let (page, mut watch) = api.store.list_and_watch("resourcequotas", "default");
        let mut now = page.items.iter().find(|quota| *quota.key.name == *name).map(|quota| quota.value());
        while now.as_ref().is_none_or(|quota| quota["status"]["used"] != *used) {
            match watch.next().await.expect("the store stays open") {
                store::Change::Added(quota) | store::Change::Modified { after: quota, .. } => {
                    if *quota.key.name == *name {
                        now = Some(quota.value());
                    }
                }
                store::Change::Deleted { .. } => {}
            }
        }
    };
    if tokio::time::timeout(PATIENCE, seen).await.is_err() {
        panic!("{name} never had {used} in use: {}", api.get(&format!("{QUOTAS}/{name}")).await.text);
    }
}

#[tokio::test]
async fn a_limit_range_gives_and_refuses() {
    let api = Api::start().await;
    let range = json!({ "apiVersion": "v1", "kind": "LimitRange", "metadata": { "name": "r" }, "spec": { "limits": [
        { "type": "Container", "default": { "cpu": "500m" }, "defaultRequest": { "cpu": "100m" }, "max": { "cpu": "1" } },
        { "type": "PersistentVolumeClaim", "max": { "storage": "1Gi" } }] } });
    api.post("/api/v1/namespaces/default/limitranges", &range).await.expect(201);
    let given = api.post(PODS, &pod("silent")).await.expect(201);
    let resources = &given["spec"]["containers"][0]["resources"];
    assert_eq!(*resources, json!({ "limits": { "cpu": "500m" }, "requests": { "cpu": "100m" } }));
    let annotation = &given["metadata"]["annotations"]["kubernetes.io/limit-ranger"];
    assert_eq!(annotation, "LimitRanger plugin set: cpu request for container app; cpu limit for container app");
    assert_eq!(given["status"]["qosClass"], "Burstable");

    let mut greedy = pod("greedy");
    greedy["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "2" } });
    let refused = "pods \"greedy\" is forbidden: maximum cpu usage per Container is 1, but limit is 2";
    assert_eq!(message(api.post(PODS, &greedy).await, 403), refused);
    assert_eq!(message(api.post(&format!("{PODS}?dryRun=All"), &greedy).await, 403), refused);
    assert_eq!(message(apply(&api, &format!("{PODS}/greedy"), &greedy).await, 403), refused);

    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "2Gi" } } } });
    let refused = "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, \
                   but request is 2Gi";
    assert_eq!(message(api.post(claims, &claim).await, 403), refused);
}

#[tokio::test]
async fn a_quota_refuses_what_is_too_much_on_every_way_in() {
    let api = Api::start().await;
    let hard = json!({ "hard": { "requests.cpu": "1", "pods": "3", "count/pods": "10" } });
    api.post(QUOTAS, &quota("compute", hard)).await.expect(201);
    let silent = "pods \"silent\" is forbidden: failed quota: compute: must specify requests.cpu for: app";
    assert_eq!(message(api.post(PODS, &pod("silent")).await, 403), silent);
    api.post(PODS, &sized("a", "600m")).await.expect(201);
    let refused = |name: &str| {
        format!(
            "pods \"{name}\" is forbidden: exceeded quota: compute, requested: requests.cpu=500m, used: \
             requests.cpu=600m, limited: requests.cpu=1"
        )
    };
    assert_eq!(message(api.post(PODS, &sized("b", "500m")).await, 403), refused("b"));
    assert_eq!(message(api.post(&format!("{PODS}?dryRun=All"), &sized("b", "500m")).await, 403), refused("b"));
    assert_eq!(message(apply(&api, &format!("{PODS}/b"), &sized("b", "500m")).await, 403), refused("b"));
    // A dry run takes nothing.
    for _ in 0..3 {
        api.post(&format!("{PODS}?dryRun=All"), &sized("b", "400m")).await.expect(201);
    }
    let mut generated = sized("", "400m");
    generated["metadata"] = json!({ "generateName": "g-" });
    api.post(PODS, &generated).await.expect(201);
    let used = json!({ "count/pods": "2", "pods": "2", "requests.cpu": "1" });
    in_use(&api, "compute", &used).await;

    // One that has ended gives its room back, and is still there to be counted as an object.
    api.set_phase("a", "Succeeded").await;
    in_use(&api, "compute", &json!({ "count/pods": "2", "pods": "1", "requests.cpu": "400m" })).await;
    api.post(PODS, &sized("c", "600m")).await.expect(201);
    api.delete(PODS).await.expect(200);
    in_use(&api, "compute", &json!({ "count/pods": "0", "pods": "0", "requests.cpu": "0" })).await;
    assert_eq!(api.get(&format!("{QUOTAS}/compute")).await.expect(200)["status"]["hard"]["requests.cpu"], "1");
}

#[tokio::test]
async fn objects_are_counted_by_name_and_updates_that_grow_are_asked() {
    let api = Api::start().await;
    let hard = json!({ "hard": { "count/deployments.apps": "0", "services": "5", "services.nodeports": "1",
        "requests.storage": "2Gi" } });
    api.post(QUOTAS, &quota("objects", hard)).await.expect(201);
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d" }, "spec": {
        "selector": { "matchLabels": { "a": "b" } },
        "template": { "metadata": { "labels": { "a": "b" } }, "spec": pod("")["spec"] } } });
    assert_eq!(
        message(api.post("/apis/apps/v1/namespaces/default/deployments", &deployment).await, 403),
        "deployments.apps \"d\" is forbidden: exceeded quota: objects, requested: count/deployments.apps=1, used: \
         count/deployments.apps=0, limited: count/deployments.apps=0"
    );
    let services = "/api/v1/namespaces/default/services";
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" },
        "spec": { "ports": [{ "name": "a", "port": 80 }, { "name": "b", "port": 81 }] } });
    api.post(services, &service).await.expect(201);
    let open = json!({ "spec": { "type": "NodePort" } });
    assert_eq!(
        message(api.patch(&format!("{services}/s"), &open).await, 403),
        "services \"s\" is forbidden: exceeded quota: objects, requested: services.nodeports=2, used: \
         services.nodeports=0, limited: services.nodeports=1"
    );
    api.patch(&format!("{services}/s"), &json!({ "metadata": { "labels": { "x": "y" } } })).await.expect(200);
    // The server's own service lives in this namespace too.
    in_use(
        &api,
        "objects",
        &json!({ "count/deployments.apps": "0", "requests.storage": "0", "services": "2",
        "services.nodeports": "0" }),
    )
    .await;
}

/// However many come at once, no more are let in than there is room for; also with several quotas over the same pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quota_is_never_exceeded_by_concurrent_creates() {
    let api = std::sync::Arc::new(Api::start().await);
    api.post(QUOTAS, &quota("few", json!({ "hard": { "count/configmaps": "8" } }))).await.expect(201);
    api.post(QUOTAS, &quota("pods", json!({ "hard": { "pods": "9", "requests.cpu": "7" } }))).await.expect(201);
    api.post(QUOTAS, &quota("short", json!({ "hard": { "pods": "5" }, "scopes": ["Terminating"] }))).await.expect(201);
    let before = api.store.list("configmaps", "default", None).unwrap().items.len();
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..60 {
        let api = std::sync::Arc::clone(&api);
        tasks.spawn(async move {
            let mut pod = sized(&format!("p{at}"), "1");
            if at % 2 == 0 {
                pod["spec"]["activeDeadlineSeconds"] = json!(60);
            }
            let map = api.post(CONFIGMAPS, &configmap(&format!("m{at}"))).await.code;
            (map, api.post(PODS, &pod).await.code)
        });
    }
    let answers = tasks.join_all().await;
    assert!(answers.iter().all(|(map, pod)| [201, 403].contains(map) && [201, 403].contains(pod)), "{answers:?}");
    let let_in = |pick: fn(&(u16, u16)) -> u16| answers.iter().filter(|answer| pick(answer) == 201).count();
    assert_eq!(let_in(|answer| answer.0), 8 - before);
    assert_eq!(let_in(|answer| answer.1), 7);
    assert_eq!(api.store.list("pods", "default", None).unwrap().items.len(), 7);
    assert_eq!(api.store.list("configmaps", "default", None).unwrap().items.len(), 8);
    in_use(&api, "pods", &json!({ "pods": "7", "requests.cpu": "7" })).await;
}

fn labelled(mode: &str, level: &str) -> Value {
    json!({ "metadata": { "labels": { format!("pod-security.kubernetes.io/{mode}"): level } } })
}

#[tokio::test]
async fn a_namespace_takes_the_pods_that_its_labels_allow() {
    let api = Api::start().await;
    let home = "/api/v1/namespaces/default";
    let mut bold = pod("bold");
    bold["spec"]["hostPID"] = json!(true);
    api.post(PODS, &bold).await.expect(201);
    api.post(PODS, &pod("plain")).await.expect(201);
    // Whoever makes a namespace stricter hears of what is there already; a dry run tells the same.
    for path in [format!("{home}?dryRun=All"), home.to_owned()] {
        let stricter = api.patch(&path, &labelled("enforce", "baseline")).await;
        assert_eq!(
            stricter.warnings(),
            [
                "299 - \"existing pods in namespace \\\"default\\\" violate the new PodSecurity enforce level \
             \\\"baseline:latest\\\"\"",
                "299 - \"bold: host namespaces\"",
            ]
        );
        stricter.expect(200);
    }
    bold["metadata"]["name"] = json!("bolder");
    let refused =
        "pods \"bolder\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    assert_eq!(message(api.post(PODS, &bold).await, 403), refused);
    assert_eq!(message(api.post(&format!("{PODS}?dryRun=All"), &bold).await, 403), refused);
    assert_eq!(message(apply(&api, &format!("{PODS}/bolder"), &bold).await, 403), refused);

    // What only warns lets in, and says so; a workload is never refused, but its writer is warned.
    api.patch(home, &labelled("warn", "restricted")).await.expect(200);
    let warned = api.post(PODS, &pod("warned")).await;
    assert!(warned.warnings()[0].starts_with("299 - \"would violate PodSecurity \\\"restricted:latest\\\": allowPriv"));
    warned.expect(201);
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": { "template": {
        "spec": { "restartPolicy": "Never", "hostPID": true, "containers": pod("")["spec"]["containers"] } } } });
    let jobs = api.post("/apis/batch/v1/namespaces/default/jobs", &job).await;
    assert!(jobs.warnings()[0].contains("restricted:latest") && jobs.warnings()[0].contains("hostPID=true"));
    jobs.expect(201);

    // A pod that was there before may be changed, but gets nothing new that is not allowed.
    let relabelled = api.patch(&format!("{PODS}/bold"), &json!({ "metadata": { "labels": { "a": "b" } } })).await;
    assert_eq!(relabelled.warnings(), [] as [&str; 0]);
    relabelled.expect(200);
    let mut debugged = api.get(&format!("{PODS}/plain")).await.expect(200);
    debugged["spec"]["ephemeralContainers"] = json!([{ "name": "d", "image": "busybox",
        "securityContext": { "privileged": true } }]);
    let refused = message(api.put(&format!("{PODS}/plain/ephemeralcontainers"), &debugged).await, 403);
    assert_eq!(
        refused,
        "pods \"plain\" is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"d\" must not set \
         securityContext.privileged=true)"
    );
    let misread = message(api.patch(home, &labelled("enforce", "strict")).await, 422);
    assert_eq!(
        misread,
        "Namespace \"default\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \
         \"strict\": must be one of privileged, baseline, restricted"
    );
}
