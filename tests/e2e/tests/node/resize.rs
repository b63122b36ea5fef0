//! Other resources for pods that run (`pods/resize`): at once, by another run, later, or never.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox, is_ready, status};
use e2e::stage::Stage;
use e2e::{Shared, complaints};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

async fn run(stage: &Stage, manifest: Value) -> Result<PodWatch> {
    let pod: Pod = serde_json::from_value(manifest)?;
    let mut watch = PodWatch::on(&stage.client, pod.metadata.name.as_deref().unwrap()).await?;
    stage.pods().create(&PostParams::default(), &pod).await?;
    watch.ready().await?;
    Ok(watch)
}

async fn resize(stage: &Stage, pod: &str, container: &str, resources: Value) -> Result<()> {
    let patch = json!({ "spec": { "containers": [{ "name": container, "resources": resources }] } });
    let params = PatchParams::default();
    stage.pods().patch_subresource("resize", pod, &params, &Patch::Strategic(&patch)).await.map(drop)?;
    Ok(())
}

fn resizes(pod: &Pod) -> Vec<&PodCondition> {
    let all = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.filter(|condition| condition.type_.starts_with("PodResize")).collect()
}

/// Whether all that is asked for is there, and nothing more is told of it.
fn is_resized(pod: &Pod) -> bool {
    let asked = |name: &str| pod.spec.as_ref()?.containers.iter().find(|it| it.name == name)?.resources.clone();
    let statuses = pod.status.as_ref().and_then(|it| it.container_statuses.as_deref()).unwrap_or_default();
    let seen = pod.status.as_ref().and_then(|it| it.observed_generation);
    let given =
        statuses.iter().all(|it| it.resources.clone().unwrap_or_default() == asked(&it.name).unwrap_or_default());
    resizes(pod).is_empty() && is_ready(pod) && given && seen == pod.metadata.generation
}

/// The control group of a run that has a file of this name, in whichever hierarchy that is.
fn group_with(pod: &Pod, run: &str, file: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let roots = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let instances = roots.flat_map(|root| std::fs::read_dir(root).into_iter().flatten().flatten());
    let uid = pod.metadata.uid.as_ref().unwrap();
    instances.map(|it| it.path().join(uid).join(run)).find(|group| group.join(file).exists())
}

fn in_group(pod: &Pod, run: &str, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(group_with(pod, run, file)?.join(file)).unwrap();
    Some(text.trim().to_owned())
}

/// The limits of memory, in bytes, and of time, in microseconds of each tenth of a second.
fn limits(pod: &Pod, run: &str) -> (Option<String>, Option<String>) {
    let memory = in_group(pod, run, "memory.limit_in_bytes").or_else(|| in_group(pod, run, "memory.max"));
    let quota = in_group(pod, run, "cpu.max").and_then(|it| it.split(' ').next().map(str::to_owned));
    (memory, in_group(pod, run, "cpu.cfs_quota_us").or(quota))
}

/// The same of the pod as a whole; with cgroup2 there is some room for its shim on top.
fn are_of_pod(pod: &Pod, mebibytes: u64, quota: u64) -> Result<()> {
    let (memory, time) = if group_with(pod, "", "memory.max").is_some() { (16, 10_000) } else { (0, 0) };
    ensure!(limits(pod, "") == are(mebibytes + memory, quota + time), "{:?}", limits(pod, ""));
    Ok(())
}

fn are(mebibytes: u64, quota: u64) -> (Option<String>, Option<String>) {
    (Some((mebibytes << 20).to_string()), Some(quota.to_string()))
}

fn millis(cpu: &str) -> i64 {
    cpu.strip_suffix('m').map_or_else(|| cpu.parse::<i64>().unwrap() * 1000, |millis| millis.parse().unwrap())
}

fn runs(pod: &Pod) -> Vec<(String, i32)> {
    let all = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
    all.map(|it| (it.container_id.clone().unwrap_or_default(), it.restart_count)).collect()
}

/// Limits change in the kernel under a program that goes on, also where it had none before; a container whose policy says so is
/// run again for them; a new agent finds all of it as it was; less memory than is in use is not given until it is.
#[tokio::test(flavor = "multi_thread")]
async fn resources_change_while_a_pod_runs() -> Result<()> {
    let mut stage = Stage::set().await?;
    let shared = Shared::new()?;
    let script = "head -c 31457280 /dev/zero > /dev/shm/big; echo full > /shared/log; \
                  while [ ! -e /shared/free ]; do sleep 0.1; done; rm /dev/shm/big; sleep 1000 & wait";
    let mut pod = busybox("p", 1, script, &shared);
    let amounts = |cpu: &str, memory: &str| json!({ "cpu": cpu, "memory": memory });
    let both = |cpu: &str, memory: &str| json!({ "requests": amounts("10m", "16Mi"), "limits": amounts(cpu, memory) });
    pod["spec"]["containers"][0]["resources"] = both("500m", "64Mi");
    let idle = |name: &str| json!({ "name": name, "image": "busybox", "command": ["sleep", "1000"] });
    let (mut bare, mut again) = (idle("bare"), idle("again"));
    bare["resources"] = json!({ "requests": { "cpu": "10m" } });
    again["resources"] = both("500m", "32Mi");
    again["resizePolicy"] = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
    pod["spec"]["containers"].as_array_mut().unwrap().extend([bare, again]);
    let mut watch = run(&stage, pod).await?;
    shared.wait_lines("log", 1).await?;
    let before = watch.last.clone().unwrap();
    ensure!(limits(&before, "app.0") == are(64, 50_000), "{:?}", limits(&before, "app.0"));
    let shares = in_group(&before, "", "cpu.shares").or_else(|| in_group(&before, "", "cpu.weight"));
    ensure!([Some("30"), Some("2")].contains(&shares.as_deref()), "the pod weighs what all ask for: {shares:?}");

    resize(&stage, "p", "app", both("700m", "128Mi")).await?;
    watch
        .until("more for the first", |pod| status(pod, "app").is_some_and(|_| is_resized(pod) && pod != &before))
        .await?;
    let grown = watch.last.clone().unwrap();
    ensure!(limits(&grown, "app.0") == are(128, 70_000), "{:?}", limits(&grown, "app.0"));
    ensure!(runs(&grown) == runs(&before), "nothing of it was run again");
    ensure!(stage.told("p", "ResizeCompleted").await?.contains("Pod resize completed"));

    resize(&stage, "p", "bare", json!({ "requests": { "cpu": "10m" }, "limits": amounts("300m", "40Mi") })).await?;
    let generation = grown.metadata.generation.unwrap();
    let after = |more: i64| move |pod: &Pod| is_resized(pod) && pod.metadata.generation >= Some(generation + more);
    watch.until("limits for one without", after(1)).await?;
    let limited = watch.last.clone().unwrap();
    ensure!(limits(&limited, "bare.0") == are(40, 30_000), "{:?}", limits(&limited, "bare.0"));
    for file in ["memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max"] {
        let Some(group) = group_with(&limited, "bare.0", file) else { continue };
        ensure!(!std::fs::read_to_string(group.join("cgroup.procs"))?.is_empty(), "its program counts in {group:?}");
    }
    ensure!(runs(&limited) == runs(&before), "nothing of it was run again");
    // Every container is limited by now, and so is the pod.
    are_of_pod(&limited, 128 + 40 + 32, 150_000)?;

    resize(&stage, "p", "again", both("500m", "48Mi")).await?;
    watch.until("another run", after(2)).await?;
    let restarted = watch.last.clone().unwrap();
    let counts: Vec<i32> = runs(&restarted).into_iter().map(|(_, count)| count).collect();
    ensure!(counts == [1, 0, 0], "of `again` alone: {counts:?}");
    ensure!(limits(&restarted, "again.1") == are(48, 50_000), "{:?}", limits(&restarted, "again.1"));
    are_of_pod(&restarted, 128 + 40 + 48, 150_000)?;
    let killing = stage.told("p", "Killing").await?;
    ensure!(killing.contains("Container again resize requires restart"), "{killing}");

    // More than that is in use: the container keeps what it has, also under a new agent, until it is free.
    resize(&stage, "p", "app", both("700m", "24Mi")).await?;
    let in_the_way = |pod: &Pod| {
        let error = resizes(pod).into_iter().find(|it| it.reason.as_deref() == Some("Error"));
        error.and_then(|it| it.message.clone()).is_some_and(|it| it.contains("below current usage"))
    };
    watch.until("it cannot have less", in_the_way).await?;
    let refused = watch.last.clone().unwrap();
    ensure!(limits(&refused, "app.0") == are(128, 70_000), "{:?}", limits(&refused, "app.0"));
    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    let mut watch = PodWatch::on(&stage.client, "p").await?;
    std::fs::write(shared.path().join("free"), "")?;
    watch.until("less, now that it is free", after(3)).await?;
    let shrunk = watch.last.clone().unwrap();
    ensure!(limits(&shrunk, "app.0") == are(24, 70_000), "{:?}", limits(&shrunk, "app.0"));
    ensure!(limits(&shrunk, "bare.0") == are(40, 30_000) && limits(&shrunk, "again.1") == are(48, 50_000));
    ensure!(runs(&shrunk) == runs(&restarted), "a new agent runs nothing again");
    stage.pods().delete("p", &DeleteParams::default()).await?;
    watch.gone(SOON).await?;
    Ok(())
}

/// What the node has not got at the moment is given when somebody leaves; what it will never have is refused; until then, and
/// under a new agent, a pod has what it had.
#[tokio::test(flavor = "multi_thread")]
async fn a_resize_that_does_not_fit_waits_or_is_refused() -> Result<()> {
    let mut stage = Stage::set().await?;
    let shared = Shared::new()?;
    let node = Api::<Node>::all(stage.client.clone()).get(stage.instance.node_name()).await?;
    let cpus = node.status.context("a status")?.allocatable.context("it has something to give")?["cpu"].0.clone();
    let half: i64 = cpus.parse::<i64>()? * 500;
    let asks = |halves: i64| json!({ "requests": { "cpu": format!("{}m", half * halves) } });
    let idle = |name: &str| {
        let mut pod = busybox(name, 1, "sleep 1000 & wait", &shared);
        pod["spec"]["containers"][0]["resources"] = asks(1);
        pod
    };
    let mut one = run(&stage, idle("one")).await?;
    run(&stage, idle("other")).await?;
    let because = |reason: &'static str| {
        move |pod: &Pod| resizes(pod).first().is_some_and(|it| it.reason.as_deref() == Some(reason))
    };
    let has = |halves: i64| {
        move |pod: &Pod| {
            let requests = status(pod, "app").and_then(|it| it.resources.as_ref()?.requests.as_ref());
            requests.and_then(|it| it.get("cpu")).map(|cpu| millis(&cpu.0)) == Some(half * halves)
        }
    };
    resize(&stage, "one", "app", asks(2)).await?;
    one.until("it waits", because("Deferred")).await?;
    let words = resizes(one.last.as_ref().unwrap())[0].message.clone().unwrap();
    ensure!(words.starts_with("Node didn't have enough resource: cpu, requested: "), "{words}");
    ensure!(stage.told("one", "ResizeDeferred").await?.contains("Pod resize Deferred"));
    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    let pod = stage.pods().get("one").await?;
    ensure!(has(1)(&pod), "{:?}", pod.status);
    let mut one = PodWatch::on(&stage.client, "one").await?;
    stage.pods().delete("other", &DeleteParams::default()).await?;
    one.until("there is room", |pod| has(2)(pod) && is_resized(pod)).await?;

    resize(&stage, "one", "app", asks(3)).await?;
    one.until("never", because("Infeasible")).await?;
    ensure!(has(2)(one.last.as_ref().unwrap()), "it keeps what it has");
    resize(&stage, "one", "app", asks(1)).await?;
    one.until("less is always to be had", |pod| has(1)(pod) && is_resized(pod)).await?;
    complaints::ensure_none(&stage.instance, complaints::AFTER_A_CRASH)
}
