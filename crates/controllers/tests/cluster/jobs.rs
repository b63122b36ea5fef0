//! Jobs and CronJobs against a real server.

use serde_json::{Value, json};

use crate::harness::{Cluster, PODS, patient};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

async fn job(cluster: &Cluster, spec: Value) -> Value {
    let mut spec = spec;
    let containers = json!([{ "name": "app", "image": "busybox" }]);
    spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
    cluster.post(JOBS, json!({ "metadata": { "name": "sum" }, "spec": spec })).await.expect(201)
}

/// The names of the pods of the Job, when it says that this many are active.
async fn active(cluster: &Cluster, count: usize) -> Vec<String> {
    cluster.until(&format!("{JOBS}/sum"), |job| job["status"]["active"] == json!(count)).await;
    pods(cluster).await.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

async fn pods(cluster: &Cluster) -> Vec<Value> {
    cluster.get(PODS).await.expect(200)["items"].as_array().unwrap().clone()
}

async fn bind(cluster: &Cluster, name: &str) {
    let binding = json!({ "metadata": { "name": name }, "target": { "kind": "Node", "name": "n1" } });
    cluster.post(&format!("{PODS}/{name}/binding"), binding).await.expect(201);
}

fn has(job: &Value, condition: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|it| it["type"] == condition && it["status"] == "True")
}

/// [WL-102] [WL-104] [WL-138]
#[tokio::test]
async fn indexed_job_completes_and_goes_when_its_time_is_over() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    let made = job(&cluster, json!({ "completions": 3, "parallelism": 2, "completionMode": "Indexed" })).await;
    let path = format!("{JOBS}/sum");
    for done in 0..3 {
        let left: Vec<String> = active(&cluster, 2.min(3 - done)).await;
        let phases = pods(&cluster).await;
        let running = phases.iter().find(|pod| pod["status"]["phase"] != "Succeeded").unwrap();
        let (name, metadata) = (running["metadata"]["name"].as_str().unwrap(), &running["metadata"]);
        assert!(left.contains(&name.to_owned()));
        assert_eq!(metadata["finalizers"], json!([FINALIZER]));
        let uid = made["metadata"]["uid"].as_str().unwrap();
        for (label, value) in [
            ("batch.kubernetes.io/controller-uid", uid),
            ("controller-uid", uid),
            ("batch.kubernetes.io/job-name", "sum"),
            ("job-name", "sum"),
        ] {
            assert_eq!(metadata["labels"][label], value, "{label}");
        }
        let index = metadata["labels"]["batch.kubernetes.io/job-completion-index"].as_str().unwrap();
        assert_eq!(running["spec"]["hostname"], format!("sum-{index}"));
        assert!(name.starts_with(&format!("sum-{index}-")), "{name}");
        bind(&cluster, name).await;
        cluster.report(name, "Running", true).await;
        cluster.report(name, "Succeeded", false).await;
        let counted = |job: &Value| job["status"]["succeeded"] == json!(done + 1);
        cluster.until(&path, counted).await;
    }
    let complete = cluster.until(&path, |job| has(job, "Complete")).await;
    let types: Vec<&str> =
        complete["status"]["conditions"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["SuccessCriteriaMet", "Complete"]);
    assert_eq!(complete["status"]["completedIndexes"], "0-2");
    assert!(complete["status"]["completionTime"].is_string());
    for pod in pods(&cluster).await {
        assert!(pod["metadata"]["finalizers"].is_null(), "nobody is held: {}", pod["metadata"]);
    }
    cluster.patch(&path, json!({ "spec": { "ttlSecondsAfterFinished": 0 } })).await.expect(200);
    cluster.until_gone(&path).await;
    assert!(pods(&cluster).await.is_empty(), "its pods went before it");
}

/// [WL-119] in part, [WL-123] in part: the status that the server takes is the one that makes sense.
#[tokio::test]
async fn job_is_counted_by_the_controllers_that_come_after_a_crash() {
    let mut cluster = Cluster::start().await;
    cluster.node("n1").await;
    job(&cluster, json!({ "completions": 3, "parallelism": 3, "backoffLimit": 1 })).await;
    let path = format!("{JOBS}/sum");
    let names = active(&cluster, 3).await;
    cluster.stop_controllers().await;
    for name in &names {
        bind(&cluster, name).await;
        cluster.report(name, "Succeeded", false).await;
        cluster.delete(&format!("{PODS}/{name}"), json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    }
    assert_eq!(pods(&cluster).await.len(), 3, "they wait until they are counted");
    let early = json!({ "status": { "conditions": [{ "type": "Complete", "status": "True" }] } });
    let refused = cluster.patch(&format!("{path}/status"), early).await.expect(422);
    assert!(
        refused["message"].as_str().unwrap().contains("without the SuccessCriteriaMet=true condition"),
        "{refused}"
    );
    cluster.start_controllers(patient());
    let complete = cluster.until(&path, |job| has(job, "Complete")).await;
    assert_eq!(complete["status"]["succeeded"], 3);
    for name in &names {
        cluster.until_gone(&format!("{PODS}/{name}")).await;
    }
}

/// [WL-122] [WL-127]
#[tokio::test]
async fn deleted_job_takes_its_pods_with_it_or_leaves_them_without_the_finalizer() {
    let mut cluster = Cluster::start().await;
    cluster.node("n1").await;
    let path = format!("{JOBS}/sum");
    job(&cluster, json!({ "completions": 1 })).await;
    let names = active(&cluster, 1).await;
    bind(&cluster, &names[0]).await;
    cluster.report(&names[0], "Running", true).await;
    cluster.stop_controllers().await;
    cluster.delete(&path, json!({ "propagationPolicy": "Background" })).await.expect(200);
    cluster.start_controllers(patient());
    let pod = format!("{PODS}/{}", names[0]);
    let leaving = cluster.until(&pod, |pod| pod["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30, "it has its grace");
    cluster.until(&pod, |pod| pod["metadata"]["finalizers"].is_null()).await;
    cluster.finish(&names[0]).await;
    cluster.until_gone(&pod).await;

    // Without a word about it, the pods of a Job stay.
    job(&cluster, json!({ "completions": 1 })).await;
    let names = active(&cluster, 1).await;
    cluster.delete(&path, json!({})).await.expect(200);
    cluster.until_gone(&path).await;
    let pod = format!("{PODS}/{}", names[0]);
    let left = cluster.until(&pod, |pod| pod["metadata"]["finalizers"].is_null()).await;
    assert!(left["metadata"]["deletionTimestamp"].is_null() && left["metadata"]["ownerReferences"].is_null());
}

/// [WL-133] in part, [WL-137] in part: a CronJob of a real server.
#[tokio::test]
async fn cron_job_makes_a_job_lists_it_and_sees_its_end() {
    let cluster = Cluster::start().await;
    let containers = json!([{ "name": "app", "image": "busybox" }]);
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
    let spec = json!({ "schedule": "@every 1s", "concurrencyPolicy": "Forbid", "timeZone": "Europe/Berlin",
        "jobTemplate": { "metadata": { "labels": { "app": "c" } }, "spec": { "template": template } } });
    cluster.post(CRON_JOBS, json!({ "metadata": { "name": "tick" }, "spec": spec })).await.expect(201);
    let path = format!("{CRON_JOBS}/tick");
    let listed = cluster.until(&path, |cron| cron["status"]["active"].is_array()).await;
    let name = listed["status"]["active"][0]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("tick-") && listed["status"]["lastScheduleTime"].is_string(), "{}", listed["status"]);
    cluster.patch(&path, json!({ "spec": { "suspend": true } })).await.expect(200);
    let job = cluster.get(&format!("{JOBS}/{name}")).await.expect(200);
    assert_eq!((&job["metadata"]["labels"]["app"], &job["spec"]["backoffLimit"]), (&json!("c"), &json!(6)));
    let scheduled = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str().unwrap();
    assert!(scheduled.ends_with(":00") && scheduled.contains('+'), "{scheduled}");
    cluster.delete(&format!("{JOBS}/{name}"), json!({ "propagationPolicy": "Background" })).await.expect(200);
    cluster.until(&path, |cron| cron["status"]["active"].is_null()).await;
    cluster.delete(&path, json!({})).await.expect(200);
    cluster.until_gone(&path).await;
}
