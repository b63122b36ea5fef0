//! Jobs and CronJobs as stock kubectl sees them, with real containers.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::{Instance, Kubectl, Shared, complaints};
use serde_json::{Value, json};

/// A Job whose pods run `script`, with a shared folder of the host at `/shared`.
fn job(name: &str, script: &str, shared: &Shared, spec: Value) -> Value {
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": spec });
    job["spec"]["template"] = json!({ "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "app",
            "image": "busybox",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
        }],
        "volumes": [{ "name": "shared", "hostPath": { "path": shared.path() } }],
    } });
    job
}

async fn object(kubectl: &Kubectl, words: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&kubectl.run(&[&["get", "-o", "json"], words].concat()).await?)?)
}

async fn waits_for(kubectl: &Kubectl, condition: &str, job: &str) -> Result<()> {
    let condition = format!("--for=condition={condition}");
    kubectl.run(&["wait", &condition, job, "--timeout=90s"]).await.map(|_| ())
}

/// Failures that do not count and one that does, indexes, a copy made by hand from a CronJob, and a Job that is deleted while it runs.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_fail_complete_are_copied_and_deleted() -> Result<()> {
    let instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let shared = Shared::new()?;
    // Index 1 fails once; its successor, ten seconds later, is told so by what the first one left behind.
    let script = "echo $JOB_COMPLETION_INDEX on $(hostname); \
        if [ $JOB_COMPLETION_INDEX = 1 ] && [ ! -e /shared/failed ]; then touch /shared/failed; exit 3; fi";
    let indexed = json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimit": 1 });
    kubectl.apply(&job("indexed", script, &shared, indexed)).await?;
    // Exit 42 ends the Job at once, and the other pod with it.
    let rules = json!([{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }]);
    let failing = json!({ "completions": 2, "parallelism": 2, "podFailurePolicy": { "rules": rules } });
    let script = "if mkdir /shared/first; then exit 42; fi; trap 'exit 0' TERM; sleep 1000 & wait";
    kubectl.apply(&job("failing", script, &shared, failing)).await?;
    kubectl.apply(&job("long", "trap 'exit 0' TERM; sleep 1000 & wait", &shared, json!({}))).await?;
    let template = job("nightly", "echo from the template", &shared, json!({}))["spec"].clone();
    let cron = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly" },
        "spec": { "schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "jobTemplate": { "spec": template } } });
    kubectl.apply(&cron).await?;
    let said = kubectl.run(&["create", "job", "--from=cronjob/nightly", "now"]).await?;
    ensure!(said.contains("job.batch/now created"), "{said}");

    waits_for(&kubectl, "failed", "job/failing").await?;
    let failed = object(&kubectl, &["job", "failing"]).await?;
    let last = failed["status"]["conditions"].as_array().context("conditions")?.last().unwrap().clone();
    ensure!(last["reason"] == "PodFailurePolicy", "{last}");
    let message = last["message"].as_str().unwrap();
    ensure!(message.contains("failed with exit code 42 matching FailJob rule at index 0"), "{message}");
    ensure!(failed["status"]["active"].is_null() && failed["status"]["terminating"] == 0, "{}", failed["status"]);

    waits_for(&kubectl, "complete", "job/now").await?;
    ensure!(kubectl.run(&["logs", "job/now"]).await? == "from the template\n", "the log of its pod");
    let owner = &object(&kubectl, &["job", "now"]).await?["metadata"]["ownerReferences"][0];
    ensure!(owner["kind"] == "CronJob" && owner["name"] == "nightly", "{owner}");

    waits_for(&kubectl, "complete", "job/indexed").await?;
    let done = object(&kubectl, &["job", "indexed"]).await?["status"].clone();
    ensure!(done["completedIndexes"] == "0-2" && done["failed"] == 1 && done["succeeded"] == 3, "{done}");
    ensure!(done["uncountedTerminatedPods"] == json!({}), "{done}");
    let words = kubectl.run(&["logs", "-l", "batch.kubernetes.io/job-completion-index=2"]).await?;
    ensure!(words == "2 on indexed-2\n", "{words}");
    let table = kubectl.run(&["get", "jobs,cronjobs"]).await?;
    for words in ["indexed   ", "3/3", "nightly   ", "Europe/Berlin"] {
        ensure!(table.contains(words), "{words}: {table}");
    }

    // Its pod is asked to leave, has its grace, and is gone with it.
    let pod = "--selector=job-name=long";
    kubectl.run(&["wait", "--for=condition=ready", "pod", pod, "--timeout=90s"]).await?;
    kubectl.run(&["delete", "job", "long"]).await?;
    kubectl.run(&["wait", "--for=delete", "pod", pod, "--timeout=90s"]).await?;
    let left = object(&kubectl, &["pods"]).await?;
    for pod in left["items"].as_array().unwrap() {
        ensure!(pod["metadata"]["finalizers"].is_null(), "nobody is held: {}", pod["metadata"]);
    }
    complaints::ensure_none(&instance, &[])
}
