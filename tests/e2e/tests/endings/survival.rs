//! `kill -9` of everything that can be killed, at the worst moments; then `adieu down` leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::complaints::{AFTER_A_CRASH, Expected};
use e2e::leftovers::{Kind, Traces};
use e2e::pace::Pace;
use e2e::pods::{PodWatch, SOON, busybox, ip, phase, terminated, with_pre_stop};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const IGNORES_TERM: &str =
    "trap 'echo TERM >> /shared/log' TERM; echo up >> /shared/log; while :; do sleep 1000 & wait $!; done";

/// The least that an agent leaves a pod after it has come back.
const AFTER_A_RESTART: Duration = Duration::from_secs(3);

async fn pods(instance: &Instance) -> Result<Api<Pod>> {
    Ok(Api::namespaced(instance.client().await?, "default"))
}

/// Creates the pod and waits until it is Ready and its script has written its first line.
async fn create(instance: &Instance, shared: &Shared, name: &str, manifest: Value) -> Result<()> {
    let mut watch = PodWatch::on(&instance.client().await?, name).await?;
    pods(instance).await?.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    Ok(())
}

async fn delete(instance: &Instance, name: &str) -> Result<Instant> {
    let asked = Instant::now();
    pods(instance).await?.delete(name, &DeleteParams::default()).await?;
    Ok(asked)
}

async fn address(instance: &Instance, name: &str) -> Result<String> {
    ip(&pods(instance).await?.get(name).await?).context("it has an address")
}

/// [NT-147] The hook goes on while the agent is away, is not run again, and the deadline is the original one.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_the_pre_stop_hook_changes_nothing() -> Result<()> {
    let mut instance = Instance::start().await?;
    let (shared, pace) = (Shared::new()?, Pace::start()?);
    // Longer than a restart takes; the hook goes on through all of it, as it waits at the gate.
    let grace = Duration::from_secs(12);
    let hook = "echo hook >> /shared/log; sleep 3; echo slept >> /shared/log; \
                read word < /shared/gate; echo hooked >> /shared/log";
    let manifest = with_pre_stop(busybox("hooked", grace.as_secs(), IGNORES_TERM, &shared), hook);
    create(&instance, &shared, "hooked", manifest).await?;
    let asked = delete(&instance, "hooked").await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    // Whoever counted anew would be so much later.
    shared.wait_lines("log", 3).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "hooked").await?;
    let due = (asked + grace).max(Instant::now() + AFTER_A_RESTART);
    shared.open_gate().await?;
    let (gone, last) = watch.gone(SOON).await?;
    let took = gone - asked;
    assert_eq!(shared.lines("log"), ["up", "hook", "slept", "hooked", "TERM"], "each step once, in order");
    ensure!(took >= grace, "ended before its deadline, after {took:?}");
    ensure!(gone <= due + pace.forgives(), "the deadline moved: {took:?}");
    assert_eq!(terminated(&last).unwrap().exit_code, 137);
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// [NT-147] A hook that ended while the agent was away is known to have ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_ends_while_the_agent_is_away_is_not_run_again() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    // The handler waits at the gate, so that the end comes when the test looks.
    let script = "trap 'echo TERM >> /shared/log; read word < /shared/gate; exit 5' TERM; \
                  echo up >> /shared/log; sleep 1000 & wait";
    let hook = "echo hook >> /shared/log; sleep 1; echo hooked >> /shared/log";
    create(&instance, &shared, "away", with_pre_stop(busybox("away", 60, script, &shared), hook)).await?;
    delete(&instance, "away").await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    shared.wait_lines("log", 3).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "away").await?;
    watch.until("Terminating", |pod| pod.metadata.deletion_timestamp.is_some()).await?;
    shared.wait_lines("log", 4).await?;
    shared.open_gate().await?;
    let (_, last) = watch.gone(SOON).await?;
    assert_eq!(shared.lines("log"), ["up", "hook", "hooked", "TERM"], "each step once, in order");
    let end = terminated(&last).context("the container ended")?;
    assert_eq!((end.exit_code, end.reason.as_deref(), phase(&last)), (5, Some("Error"), Some("Failed")));
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// [NT-146] The deadline is restored, not restarted, and the signal is not sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_waiting_for_the_exit_changes_nothing() -> Result<()> {
    let mut instance = Instance::start().await?;
    let (shared, pace) = (Shared::new()?, Pace::start()?);
    let grace = Duration::from_secs(8);
    let script = IGNORES_TERM.replace("echo TERM", "echo TERM >> /shared/log; sleep 3; echo stays");
    create(&instance, &shared, "waiting", busybox("waiting", grace.as_secs(), &script, &shared)).await?;
    let asked = delete(&instance, "waiting").await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    // Whoever counted anew would be so much later.
    shared.wait_lines("log", 3).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "waiting").await?;
    let due = (asked + grace).max(Instant::now() + AFTER_A_RESTART);
    let (gone, last) = watch.gone(SOON).await?;
    let took = gone - asked;
    ensure!(took >= grace, "ended before its deadline, after {took:?}");
    ensure!(gone <= due + pace.forgives(), "the deadline moved: {took:?}");
    assert_eq!(shared.lines("log"), ["up", "TERM", "stays"], "the stop signal is sent once");
    assert_eq!(terminated(&last).unwrap().exit_code, 137);
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// [NT-149] An exit that happened while nobody looked is reported with its real code.
#[tokio::test(flavor = "multi_thread")]
async fn an_exit_while_the_agent_is_away_is_reported_as_it_was() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "echo first words; echo up >> /shared/log; read word < /shared/gate; \
                  echo last words; echo out >> /shared/log; exit 42";
    let mut manifest = busybox("quiet", 30, script, &shared);
    manifest["spec"]["restartPolicy"] = "Never".into();
    create(&instance, &shared, "quiet", manifest).await?;
    instance.kill_9().await?;
    shared.open_gate().await?;
    shared.wait_lines("log", 2).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "quiet").await?;
    watch.until("the exit", |pod| terminated(pod).is_some_and(|end| end.exit_code == 42)).await?;
    watch.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    // A pod that ended by itself stays until somebody deletes it, and its log can still be read.
    let kubectl = Kubectl::newest(&instance)?;
    assert_eq!(kubectl.run(&["logs", "quiet"]).await?, "first words\nlast words\n");
    kubectl.run(&["delete", "pod", "quiet"]).await?;
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// [NT-114] [NT-144] Running pods do not notice that the agent was killed, or stopped, and came back.
#[tokio::test(flavor = "multi_thread")]
async fn running_pods_are_untouched_by_a_restart() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "echo before; echo up >> /shared/log; read word < /shared/gate; echo after $word; sleep 1000";
    create(&instance, &shared, "steady", busybox("steady", 1, script, &shared)).await?;
    let kubectl = Kubectl::newest(&instance)?;
    let started_at = ["exec", "steady", "--", "cut", "-d", " ", "-f", "22", "/proc/1/stat"];
    let started = kubectl.run(&started_at).await?;
    let before = pods(&instance).await?.get("steady").await?;
    instance.kill_9().await?;
    instance.up().await?;
    instance.stop().await?;
    instance.up().await?;
    assert_eq!(kubectl.run(&started_at).await?, started, "it is the same process");
    let mut log = kubectl.follow(&["logs", "-f", "steady"])?;
    assert_eq!(log.next().await?, "before");
    shared.open_gate().await?;
    assert_eq!(log.next().await?, "after go", "what it says goes on to be heard");
    assert_eq!(kubectl.run(&["logs", "steady"]).await?, "before\nafter go\n");
    let after = pods(&instance).await?.get("steady").await?;
    assert_eq!(before.status, after.status, "the restart is not to be seen in the status");
    assert_eq!(before, after, "nor anywhere else");
    assert_eq!(shared.lines("log"), ["up"]);
    kubectl.run(&["delete", "pod", "steady"]).await?;
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// What the agent before said is the word of the one that follows: who says otherwise is put right.
#[tokio::test(flavor = "multi_thread")]
async fn restarted_agent_keeps_reported_statuses() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    create(&instance, &shared, "slandered", busybox("slandered", 1, "echo up >> /shared/log; sleep 1000", &shared))
        .await?;
    instance.kill_9().await?;
    instance.up().await?;
    let restarts = |pod: &Pod| e2e::pods::status(pod, "app").map(|app| app.restart_count);
    let mut watch = PodWatch::on(&instance.client().await?, "slandered").await?;
    for lie in [8, 9] {
        let told = json!({ "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": lie });
        let lies = Patch::Strategic(json!({ "status": { "containerStatuses": [told] } }));
        pods(&instance).await?.patch_status("slandered", &PatchParams::default(), &lies).await?;
        watch.until("the lie", |pod| restarts(pod) == Some(lie)).await?;
        watch.until("the truth", |pod| restarts(pod) == Some(0)).await?;
    }
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// Every pod gets its grace, then nothing of the instance is left on the machine but its files.
#[tokio::test(flavor = "multi_thread")]
async fn adieu_down_leaves_no_processes_mounts_or_links() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    create(&instance, &shared, "one", busybox("one", 30, script, &shared)).await?;
    let traces = Traces::of(&instance, &[address(&instance, "one").await?])?;
    let found = traces.find()?;
    let kinds: BTreeSet<Kind> = found.iter().map(|it| it.kind).collect();
    for kind in [Kind::Process, Kind::ControlGroup, Kind::Namespace, Kind::Link, Kind::Address, Kind::Route] {
        ensure!(
            kinds.contains(&kind),
            "the search for leftovers does not find a {kind:?} of a running pod: {found:#?}"
        );
    }
    let container = |kind| found.iter().any(|it| it.kind == kind && it.what.contains("sleep 1000"));
    ensure!(container(Kind::Process) && container(Kind::Namespace), "it does not find the container: {found:#?}");

    let said = instance.down().await?;
    ensure!(said.contains("every pod has left") && said.contains("adieu is down"), "{said}");
    assert_eq!(shared.lines("log"), ["up", "TERM"], "the pod was asked politely");
    traces.ensure_none()?;

    // Stored objects stay: the pod is there, and says why it ended.
    instance.up().await?;
    let pod = pods(&instance).await?.get("one").await?;
    let status = pod.status.context("a status")?;
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Terminated")));
    complaints::ensure_none(&instance, &[])
}

/// The same when the instance was killed: `adieu down` does it by itself.
#[tokio::test(flavor = "multi_thread")]
async fn adieu_down_finishes_what_a_crash_left() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let script = "trap 'echo TERM >> /shared/log; exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait";
    create(&instance, &shared, "left", busybox("left", 30, script, &shared)).await?;
    let traces = Traces::of(&instance, &[address(&instance, "left").await?])?;
    instance.kill_9().await?;
    instance.down().await?;
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    traces.ensure_none()?;
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// Whatever has become of the store: pods get their stop signal and their grace, and leave nothing behind. Then the store can be
/// repaired, and the instance goes on.
#[tokio::test(flavor = "multi_thread")]
async fn adieu_down_ends_pods_although_the_store_is_damaged_or_gone() -> Result<()> {
    let mut instance = Instance::start().await?;
    let script = "trap 'echo TERM >> /shared/log; sleep 1; echo bye >> /shared/log; exit 0' TERM; \
                  echo up >> /shared/log; sleep 1000 & wait";
    for is_gone in [false, true] {
        let (shared, name) = (Shared::new()?, if is_gone { "gone" } else { "damaged" });
        create(&instance, &shared, name, busybox(name, 30, script, &shared)).await?;
        let traces = Traces::of(&instance, &[address(&instance, name).await?])?;
        instance.kill_9().await?;
        let folder = instance.dir().join("store");
        if is_gone {
            std::fs::remove_dir_all(&folder)?;
        } else {
            let files = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            let log = files.iter().find(|path| path.extension().is_some_and(|it| it == "log")).context("a log")?;
            let mut bytes = std::fs::read(log)?;
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            std::fs::write(log, bytes)?;
        }
        let status = instance.adieu(&["status"]).output().await?;
        ensure!(String::from_utf8(status.stdout)?.contains("end them with `adieu down`"), "that is the advice");
        let said = instance.down().await?;
        ensure!(said.contains("every pod has left") && said.contains("adieu is down"), "{said}");
        assert_eq!(shared.lines("log"), ["up", "TERM", "bye"], "{name}: the pod was asked politely, and waited for");
        traces.ensure_none()?;
        let log = std::fs::read_to_string(instance.log())?;
        ensure!(log.contains("the pods are ended from the node's own records"), "{log}");

        ensure!(instance.up().await.is_err(), "{name}: it is not served as if nothing had happened");
        let repaired = instance.adieu(&["store", "repair", "--accept-loss"]).output().await?;
        ensure!(repaired.status.success(), "{repaired:?}");
        instance.up().await?;
        let again = Shared::new()?;
        create(&instance, &again, "again", busybox("again", 1, script, &again)).await?;
        pods(&instance).await?.delete("again", &DeleteParams::default().grace_period(0)).await?;
    }
    Ok(())
}

/// What nobody remembers gets its stop signal and its notice, also if the agent dies once more over it; only then does the
/// pod begin anew.
#[tokio::test(flavor = "multi_thread")]
async fn orphan_sandbox_ends_before_same_uid_pod_starts() -> Result<()> {
    const FORGOTTEN: Expected = Expected { text: "ending an orphan sandbox", because: "its journal was removed" };
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    create(&instance, &shared, "forgotten", busybox("forgotten", 30, IGNORES_TERM, &shared)).await?;
    instance.kill_9().await?;
    std::fs::remove_file(instance.journal())?;
    instance.up().await?;
    shared.wait_lines("log", 2).await?;
    instance.kill_9().await?;
    instance.up().await?;
    assert_eq!(shared.wait_lines("log", 3).await?, ["up", "TERM", "up"]);
    PodWatch::on(&instance.client().await?, "forgotten").await?.ready().await?;
    Kubectl::newest(&instance)?.run(&["delete", "pod", "forgotten", "--grace-period=1"]).await?;
    complaints::ensure_none(&instance, &[AFTER_A_CRASH, &[FORGOTTEN]].concat())
}

/// A long life is remembered in one piece, and whoever starts after a crash knows what the one before knew.
#[tokio::test(flavor = "multi_thread")]
async fn long_pod_journal_is_folded_and_replayed() -> Result<()> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    create(&instance, &shared, "old", busybox("old", 1, IGNORES_TERM, &shared)).await?;
    let api = pods(&instance).await?;
    // Each change is two facts that its worker has to remember.
    for deadline in 0..120 {
        let patch = serde_json::json!({ "spec": { "activeDeadlineSeconds": 100_000 - deadline } });
        api.patch("old", &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    let generation = api.get("old").await?.metadata.generation;
    let seen = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.observed_generation == generation);
    PodWatch::on(&instance.client().await?, "old").await?.until("the last change", seen).await?;
    instance.kill_9().await?;
    instance.up().await?;
    let log = std::fs::read_to_string(instance.log())?;
    let steps = log
        .lines()
        .rfind(|line| line.contains("pod recovered from the journal"))
        .and_then(|line| line.split("steps=").nth(1));
    let steps: usize = steps.and_then(|rest| rest.split(' ').next()?.parse().ok()).context("it goes on")?;
    ensure!(steps < 200, "{steps} steps are kept");
    assert_eq!(shared.lines("log"), ["up"], "the pod does not notice");
    delete(&instance, "old").await?;
    PodWatch::on(&instance.client().await?, "old").await?.gone(SOON).await?;
    assert_eq!(shared.lines("log"), ["up", "TERM"]);
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}
