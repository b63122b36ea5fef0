//! All the ways a pod can end, or fail to begin: told side by side on one instance.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::complaints::Expected;
use e2e::pace::Pace;
use e2e::pods::{PodWatch, SOON, busybox, is_ready, phase, state, terminated, waits_for};
use e2e::{Instance, Kubectl, Shared, complaints, stories};
use futures::future::{FutureExt, join_all, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

/// How long the end of a pod may take that has nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(1);

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

struct Stage {
    client: kube::Client,
    kubectl: Kubectl,
    pace: Pace,
}

impl Stage {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates the pod and watches it from before that.
    async fn create(&self, manifest: Value) -> Result<PodWatch> {
        let pod: Pod = serde_json::from_value(manifest)?;
        let watch = PodWatch::on(&self.client, pod.metadata.name.as_deref().context("a name")?).await?;
        self.pods().create(&PostParams::default(), &pod).await?;
        Ok(watch)
    }

    /// Deletes the pod, which must be gone soon; answers how it looked in the end.
    async fn gone_at_once(&self, name: &str, watch: &mut PodWatch) -> Result<Pod> {
        let asked = Instant::now();
        self.pods().delete(name, &DeleteParams::default()).await?;
        let (gone, last) = watch.gone(SOON).await?;
        ensure!(gone - asked < AT_ONCE + self.pace.forgives(), "gone after {:?}", gone - asked);
        Ok(last)
    }
}

/// Every story is told to its end even if another one fails, and every failure is told.
#[tokio::test(flavor = "multi_thread")]
async fn every_exit_is_reported_as_it_happened() -> Result<()> {
    let instance = Instance::start().await?;
    let stage = Stage { client: instance.client().await?, kubectl: Kubectl::newest(&instance)?, pace: Pace::start()? };
    let stories = stories![&stage;
        an_image_that_cannot_be_pulled, a_secret_that_is_not_there, a_hook_that_ends_its_container, a_container_that_crashes_again_and_again,
        the_first_of_two_containers_is_shown_terminated, container_without_signal_handler_is_killed_under_every_restart_policy,
        container_that_exits_0_succeeded_under_every_restart_policy, a_pod_that_may_not_set_what_it_asks_for,
        run_as_non_root_container_of_a_root_image_does_not_start,
    ];
    let told = stories.into_iter().map(|(title, story)| async move {
        match AssertUnwindSafe(story).catch_unwind().await {
            Ok(outcome) => outcome.err().map(|error| format!("{title}: {error:#}")),
            Err(_) => Some(format!("{title}: an assertion failed, see above")),
        }
    });
    let failed: Vec<String> = join_all(told).await.into_iter().flatten().collect();
    if !failed.is_empty() {
        bail!("{} stories end badly:\n{}", failed.len(), failed.join("\n"));
    }
    complaints::ensure_none(&instance, &[])
}

/// [NT-45] The error is shown, then the back-off from it; a delete ends it as Failed, at once.
async fn an_image_that_cannot_be_pulled(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    let mut manifest = busybox("no-image", 30, "true", &shared);
    manifest["spec"]["containers"][0]["image"] = "localhost:1/absent:1".into();
    let mut events = stage.kubectl.follow(&[
        "get",
        "events",
        "-w",
        "--field-selector=involvedObject.name=no-image,reason=BackOff",
        "--no-headers",
    ])?;
    let mut watch = stage.create(manifest).await?;
    watch.until("ErrImagePull", |pod| waits_for(pod, "app") == Some("ErrImagePull")).await?;
    watch.until("ImagePullBackOff", |pod| waits_for(pod, "app") == Some("ImagePullBackOff")).await?;
    let table = stage.kubectl.run(&["get", "pod", "no-image"]).await?;
    ensure!(table.contains("0/1     ImagePullBackOff"), "{table}");
    let event = events.next().await?;
    ensure!(event.contains(r#"Back-off pulling image "localhost:1/absent:1""#), "{event}");
    let last = stage.gone_at_once("no-image", &mut watch).await?;
    assert_eq!(phase(&last), Some("Failed"));
    Ok(())
}

/// [NT-46]
async fn container_without_signal_handler_is_killed_under_every_restart_policy(stage: &Stage) -> Result<()> {
    try_join_all(POLICIES.map(|policy| a_process_without_a_handler_is_killed(stage, policy))).await.map(drop)
}

/// Nothing handles TERM, so KILL comes when the grace is spent.
async fn a_process_without_a_handler_is_killed(stage: &Stage, policy: &str) -> Result<()> {
    let shared = Shared::new()?;
    let name = format!("deaf-{}", policy.to_lowercase());
    let mut manifest = busybox(&name, 30, "", &shared);
    manifest["spec"]["restartPolicy"] = policy.into();
    manifest["spec"]["containers"][0]["command"] = json!(["sleep", "1000"]);
    let mut watch = stage.create(manifest).await?;
    watch.ready().await?;
    let asked = Instant::now();
    stage.pods().delete(&name, &DeleteParams::default().grace_period(1)).await?;
    let (gone, last) = watch.gone(SOON).await?;
    let took = gone - asked;
    // KILL never comes less than 2 s after the stop signal, however short the grace.
    ensure!(took >= Duration::from_secs(2), "no time between TERM and KILL: {took:?}");
    ensure!(took < Duration::from_secs(2) + stage.pace.forgives(), "gone only after {took:?}");
    let end = terminated(&last).context("the container ended")?;
    assert_eq!((end.exit_code, end.reason.as_deref(), phase(&last)), (137, Some("Error"), Some("Failed")));
    Ok(())
}

/// [NT-47]
async fn container_that_exits_0_succeeded_under_every_restart_policy(stage: &Stage) -> Result<()> {
    try_join_all(POLICIES.map(|policy| a_process_that_exits_0_has_succeeded(stage, policy))).await.map(drop)
}

/// An exit with 0 on TERM is a success, and not restarted.
async fn a_process_that_exits_0_has_succeeded(stage: &Stage, policy: &str) -> Result<()> {
    let shared = Shared::new()?;
    let name = format!("polite-{}", policy.to_lowercase());
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    let mut manifest = busybox(&name, 30, script, &shared);
    manifest["spec"]["restartPolicy"] = policy.into();
    let mut watch = stage.create(manifest).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    let last = stage.gone_at_once(&name, &mut watch).await?;
    let end = terminated(&last).context("the container ended")?;
    assert_eq!((end.exit_code, end.reason.as_deref(), phase(&last)), (0, Some("Completed"), Some("Succeeded")));
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    Ok(())
}

/// [NT-51] The pod waits and says what for; a delete does not wait with it, and what never ran is not
/// told as if it had.
async fn a_secret_that_is_not_there(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    let mut manifest = busybox("no-secret", 30, "sleep 1000", &shared);
    manifest["spec"]["volumes"][0] = json!({ "name": "shared", "secret": { "secretName": "not-there" } });
    let mut events = stage.kubectl.follow(&[
        "get",
        "events",
        "-w",
        "--field-selector=involvedObject.name=no-secret,reason=FailedMount",
        "--no-headers",
    ])?;
    let mut watch = stage.create(manifest).await?;
    let event = events.next().await?;
    let words = "MountVolume.SetUp failed for volume \"shared\" : secret \"not-there\" not found";
    ensure!(event.contains("Warning") && event.contains(words), "{event}");
    let described = stage.kubectl.run(&["describe", "pod", "no-secret"]).await?;
    ensure!(described.contains("FailedMount") && !described.contains("Pulled"), "{described}");
    watch.until("a status", |pod| waits_for(pod, "app") == Some("ContainerCreating")).await?;
    ensure!(!watch.last.as_ref().is_some_and(is_ready), "it cannot be ready without its volume");
    let last = stage.gone_at_once("no-secret", &mut watch).await?;
    let end = terminated(&last).context("it is told as lost")?;
    let told = (phase(&last), end.exit_code, end.reason.as_deref(), end.started_at.is_some());
    assert_eq!(told, (Some("Failed"), 137, Some("ContainerStatusUnknown"), false));
    Ok(())
}

/// A hook that ends its container from inside: whoever is on its way out already is not asked to stop.
async fn a_hook_that_ends_its_container(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    // Who waited for the hook would wait for minutes.
    let mut manifest = busybox("ends-itself", 600, script, &shared);
    let command = json!(["sh", "-c", "kill -TERM 1; sleep 1000"]);
    manifest["spec"]["containers"][0]["lifecycle"] = json!({ "preStop": { "exec": { "command": command } } });
    let mut watch = stage.create(manifest).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    stage.pods().delete("ends-itself", &DeleteParams::default()).await?;
    let (_, last) = watch.gone(SOON).await?;
    assert_eq!(terminated(&last).map(|end| end.exit_code), Some(0));
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    let told = ["get", "events", "--field-selector=involvedObject.name=ends-itself", "-o=jsonpath={.items[*].reason}"];
    let told = stage.kubectl.run(&told).await?;
    ensure!(!told.contains("StopSignalSent") && !told.contains("FailedPreStopHook"), "{told}");
    Ok(())
}

/// A container that keeps crashing is shown so, with its last end and its count, and leaves at once when deleted.
async fn a_container_that_crashes_again_and_again(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    let mut watch = stage.create(busybox("crashes", 30, "echo up >> /shared/log; exit 3", &shared)).await?;
    watch.until("CrashLoopBackOff", |pod| waits_for(pod, "app") == Some("CrashLoopBackOff")).await?;
    let status = watch.last.clone().unwrap().status.unwrap().container_statuses.unwrap().remove(0);
    let end = status.last_state.and_then(|last| last.terminated).context("it says how it ended")?;
    assert_eq!((end.exit_code, end.reason.as_deref(), status.ready), (3, Some("Error"), false));
    let table = stage.kubectl.run(&["get", "pod", "crashes"]).await?;
    ensure!(table.contains("0/1     CrashLoopBackOff"), "{table}");
    let last = stage.gone_at_once("crashes", &mut watch).await?;
    assert_eq!(phase(&last), Some("Failed"));
    // The back-off may have been over before the request came; whoever started is counted then.
    let starts = e2e::pods::status(&last, "app").context("a status")?.restart_count + 1;
    assert_eq!(
        shared.lines("log").len(),
        usize::try_from(starts)?,
        "every start is counted, and none comes on its way out"
    );
    Ok(())
}

/// [NT-61] Each container's end is shown when it comes, not when the last of them comes.
async fn the_first_of_two_containers_is_shown_terminated(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    let slow = "trap 'echo TERM >> /shared/slow; read word < /shared/gate; exit 4' TERM; \
                echo up >> /shared/slow; sleep 1000 & wait";
    let mut manifest = busybox("two", 60, slow, &shared);
    let containers = manifest["spec"]["containers"].as_array_mut().unwrap();
    let mut quick = containers[0].clone();
    quick["name"] = "quick".into();
    quick["command"][2] = "trap 'exit 0' TERM; echo up >> /shared/quick; sleep 1000 & wait".into();
    containers.push(quick);
    let mut watch = stage.create(manifest).await?;
    watch.ready().await?;
    shared.wait_lines("slow", 1).await?;
    shared.wait_lines("quick", 1).await?;
    stage.pods().delete("two", &DeleteParams::default()).await?;
    let ended = |pod: &Pod, name: &str| state(pod, name)?.terminated.as_ref().map(|end| end.exit_code);
    let runs = |pod: &Pod, name: &str| state(pod, name).is_some_and(|state| state.running.is_some());
    watch.until("one end", |pod| ended(pod, "quick") == Some(0) && runs(pod, "app")).await?;
    shared.wait_lines("slow", 2).await?;
    // The other one waits at the gate, so nothing more happens before it is let through.
    let table = stage.kubectl.run(&["get", "pod", "two"]).await?;
    ensure!(table.contains("1/2     Terminating"), "{table}");
    shared.open_gate().await?;
    let (_, last) = watch.gone(SOON).await?;
    assert_eq!((ended(&last, "app"), ended(&last, "quick"), phase(&last)), (Some(4), Some(0), Some("Failed")));
    Ok(())
}

/// A pod that asks for a kernel parameter it may not set is turned away, and people are told why. Nothing of it ran, so
/// nothing is said of its containers.
async fn a_pod_that_may_not_set_what_it_asks_for(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    for (name, host, sysctl, words) in [
        ("unsafe", false, "kernel.msgmax", "\"kernel.msgmax\" not allowlisted"),
        ("shared", true, "net.ipv4.tcp_syncookies", "\"net.ipv4.tcp_syncookies\" not allowed with host Net enabled"),
    ] {
        let mut manifest = busybox(name, 30, "sleep 1000", &shared);
        manifest["spec"]["hostNetwork"] = host.into();
        manifest["spec"]["securityContext"] = json!({ "sysctls": [{ "name": sysctl, "value": "1" }] });
        // On the way through the API nobody minds: what a node allows is its own affair.
        let mut watch = stage.create(manifest).await?;
        let failed = watch.until_one("turned away", |pod| phase(pod) == Some("Failed")).await?;
        let status = failed.status.context("it has one")?;
        let told = format!("Pod was rejected: forbidden sysctl: {words}");
        assert_eq!((status.reason.as_deref(), status.message), (Some("SysctlForbidden"), Some(told)));
        assert_eq!(status.container_statuses, None);
        let table = stage.kubectl.run(&["get", "pod", name]).await?;
        ensure!(table.contains("0/1     SysctlForbidden"), "{table}");
        stage.gone_at_once(name, &mut watch).await?;
    }
    Ok(())
}

/// A container that must not run as root and would is not made; the pod waits and says what for.
async fn run_as_non_root_container_of_a_root_image_does_not_start(stage: &Stage) -> Result<()> {
    let shared = Shared::new()?;
    let mut manifest = busybox("rootless", 30, "sleep 1000", &shared);
    manifest["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
    let mut watch = stage.create(manifest).await?;
    let refused = |pod: &Pod| waits_for(pod, "app") == Some("CreateContainerConfigError");
    let waits = watch.until_one("CreateContainerConfigError", refused).await?;
    let message = state(&waits, "app").and_then(|state| state.waiting.as_ref()?.message.clone()).unwrap_or_default();
    let uid = waits.metadata.uid.clone().unwrap_or_default();
    let why = "container has runAsNonRoot and image will run as root";
    assert_eq!(message, format!("{why} (pod: \"rootless_default({uid})\", container: app)"));
    let status = waits.status.as_ref().and_then(|status| status.container_statuses.as_ref()).context("a status")?;
    assert_eq!((phase(&waits), status[0].restart_count, &status[0].container_id), (Some("Pending"), 0, &None));
    stage.gone_at_once("rootless", &mut watch).await.map(drop)
}

/// A pod whose shim is killed runs again in another sandbox: one restart, not put off, and its end is told whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_sandbox_costs_one_restart() -> Result<()> {
    const KILLED: Expected = Expected { text: "the pod's shim is gone; ending the pod", because: "it was killed" };
    let instance = Instance::start().await?;
    let (client, shared) = (instance.client().await?, Shared::new()?);
    let mut watch = PodWatch::on(&client, "shaken").await?;
    let manifest: Pod = serde_json::from_value(busybox("shaken", 1, "echo up >> /shared/log; sleep 1000", &shared))?;
    Api::namespaced(client, "default").create(&PostParams::default(), &manifest).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    let first = e2e::pods::status(watch.last.as_ref().context("seen")?, "app").context("a status")?.clone();

    instance.kill_shim()?;
    let again = |pod: &Pod| is_ready(pod) && e2e::pods::status(pod, "app").is_some_and(|app| app.restart_count > 0);
    let back = watch.until_one("its second run", again).await?;
    let second = e2e::pods::status(&back, "app").context("a status")?;
    assert_eq!(second.restart_count, 1);
    let end = second.last_state.clone().and_then(|last| last.terminated).context("its end is told")?;
    assert_eq!((end.exit_code, end.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(end.container_id, first.container_id);
    assert_eq!(end.started_at, first.state.and_then(|state| state.running?.started_at));
    ensure!(end.finished_at.is_some(), "{end:?}");
    assert_eq!(shared.wait_lines("log", 2).await?, ["up", "up"]);
    complaints::ensure_none(&instance, &[KILLED])
}
