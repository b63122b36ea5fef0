//! A node that is short of something: who has to go, what everyone is told, and how it gets better.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::complaints::{AFTER_A_CRASH, Expected};
use e2e::pods::{PodWatch, SOON, busybox, is_ready, phase, terminated};
use e2e::stage::Stage;
use e2e::story::{Actor, POLITE, uptime};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

const LOW: &[Expected] = &[Expected { text: "node under pressure; evicting a pod", because: "this is what is tried" }];

async fn create(instance: &Instance, manifest: Value) -> Result<PodWatch> {
    let pod: Pod = serde_json::from_value(manifest)?;
    let watch = PodWatch::on(&instance.client().await?, pod.metadata.name.as_deref().unwrap()).await?;
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    pods.create(&PostParams::default(), &pod).await?;
    Ok(watch)
}

/// Whether the node says that its disk is full, and whether it keeps pods away for that.
async fn disk_pressure(instance: &Instance) -> Result<(bool, bool)> {
    let node = Api::<Node>::all(instance.client().await?).get(instance.node_name()).await?;
    let conditions = node.status.context("a status")?.conditions.context("conditions")?;
    let says = conditions.iter().any(|it| it.type_ == "DiskPressure" && it.status == "True");
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    Ok((says, taints.iter().any(|it| it.key == "node.kubernetes.io/disk-pressure")))
}

/// Waits until the instance's disk has room for so many mebibytes: what a pod had is given back soon after it is gone.
async fn has_room(instance: &Instance, mebibytes: u64) -> Result<()> {
    let enough = async {
        loop {
            let disk = rustix::fs::statvfs(instance.dir())?;
            if disk.f_bavail * disk.f_frsize >= mebibytes * 1024 * 1024 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, enough).await.context("the disk stays full")?
}

/// Each fills something that all share: one after the other.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// [NT-165] The pod that fills the disk is evicted and says why, although it ends well; those within what they
/// asked for stay; nobody comes while the pressure lasts, and who waited comes when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_the_pod_that_filled_it() -> Result<()> {
    let _alone = ALONE.lock().await;
    const OPTIONS: &[&str] = &["--eviction-hard", "nodefs.available<100Mi", "--eviction-linger", "12"];
    let instance = Instance::start_on_small_disk(256, OPTIONS).await?;
    let shared = Shared::new()?;
    let quiet = "trap 'exit 0' TERM; echo up >> /shared/quiet; sleep 1000 & wait";
    let mut modest = busybox("modest", 30, quiet, &shared);
    modest["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "1Mi".into();
    let mut modest = create(&instance, modest).await?;
    let greedy = "trap 'echo TERM >> /shared/log; exit 0' TERM; read word < /shared/gate; \
                  dd if=/dev/zero of=/filled bs=1M count=180; echo full >> /shared/log; sleep 1000 & wait";
    let mut greedy = create(&instance, busybox("greedy", 600, greedy, &shared)).await?;
    modest.ready().await?;
    greedy.ready().await?;
    assert_eq!(disk_pressure(&instance).await?, (false, false));
    let kubectl = Kubectl::newest(&instance)?;
    let mut told = kubectl.follow(&["get", "events", "-w", "--no-headers", "--field-selector=reason=Evicted"])?;

    shared.open_gate().await?;
    greedy.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    let pod = greedy.last.take().unwrap();
    let status = pod.status.as_ref().unwrap();
    let message = status.message.as_deref().unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    ensure!(
        message.starts_with("The node was low on resource: ephemeral-storage. Threshold quantity: 100Mi, available: ")
            && message.contains(". Container app was using ")
            && message.ends_with(", request is 0, has larger consumption of ephemeral-storage. "),
        "{message:?}"
    );
    let target = status.conditions.iter().flatten().find(|it| it.type_ == "DisruptionTarget").context("disrupted")?;
    assert_eq!((target.reason.as_deref(), target.message.as_deref()), (Some("TerminationByKubelet"), Some(message)));
    assert_eq!(shared.lines("log").last().map(String::as_str), Some("TERM"), "it was asked, if only for a second");
    let event = told.next().await?;
    ensure!(event.contains("Warning") && event.contains("The node was low on resource: ephemeral-storage."), "{event}");
    assert_eq!(disk_pressure(&instance).await?, (true, true), "the pressure is said to last for a while");

    // Nobody is sent to a node that is short of something; whoever waits comes as soon as it is not.
    let mut late = create(&instance, busybox("late", 1, quiet, &shared)).await?;
    let waits = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let words = "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }.";
        conditions.into_iter().any(|it| {
            (&*it.type_, it.reason.as_deref(), it.message.as_deref())
                == ("PodScheduled", Some("Unschedulable"), Some(words))
        })
    };
    late.until("Unschedulable", waits).await?;
    late.ready().await?;
    assert_eq!(disk_pressure(&instance).await?, (false, false));
    ensure!(is_ready(modest.last.as_ref().unwrap()));
    assert_eq!(shared.wait_lines("quiet", 2).await?.len(), 2, "the modest pod ran on");
    complaints::ensure_none(&instance, LOW)
}

/// The volumes of a pod that was evicted go when its containers are dead, although its object stays: the pressure ends, and nobody
/// else has to leave for it.
#[tokio::test(flavor = "multi_thread")]
async fn evicted_pod_gives_back_its_empty_dir_while_its_object_stays() -> Result<()> {
    let _alone = ALONE.lock().await;
    const OPTIONS: &[&str] = &["--eviction-hard", "nodefs.available<100Mi", "--eviction-linger", "0"];
    let instance = Instance::start_on_small_disk(256, OPTIONS).await?;
    let shared = Shared::new()?;
    let quiet = "trap 'exit 0' TERM; echo up >> /shared/quiet; sleep 1000 & wait";
    let mut modest = create(&instance, busybox("modest", 30, quiet, &shared)).await?;
    let greedy = "trap 'exit 0' TERM; read word < /shared/gate; dd if=/dev/zero of=/scratch/filled bs=1M count=180; sleep 1000 & wait";
    let mut greedy = busybox("greedy", 600, greedy, &shared);
    let list = |value: &mut Value, item: Value| value.as_array_mut().unwrap().push(item);
    list(&mut greedy["spec"]["volumes"], json!({ "name": "scratch", "emptyDir": {} }));
    let mount = json!({ "name": "scratch", "mountPath": "/scratch" });
    list(&mut greedy["spec"]["containers"][0]["volumeMounts"], mount);
    let mut greedy = create(&instance, greedy).await?;
    modest.ready().await?;
    greedy.ready().await?;

    shared.open_gate().await?;
    greedy.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    has_room(&instance, 150).await?;
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    ensure!(
        pods.get_opt("greedy").await?.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()),
        "its object stays"
    );
    // Whoever comes next comes after the pressure, and the modest one has seen all of it.
    let mut late = create(&instance, busybox("late", 1, quiet, &shared)).await?;
    late.ready().await?;
    ensure!(is_ready(&pods.get("modest").await?), "nobody else had to leave");
    assert_eq!(shared.wait_lines("quiet", 2).await?.len(), 2, "the modest pod ran on");
    complaints::ensure_none(&instance, LOW)
}

/// Fills the disk once it is let, and stays when it is asked to leave.
const FILLS: &str = "trap 'say TERM' TERM; say up; read word < /shared/gate; \
                     dd if=/dev/zero of=/filled bs=1M count=180 2> /dev/null; say full; \
                     while :; do sleep 1000 & wait $!; done";

/// [NT-148] [NT-159] A soft threshold leaves a pod the grace that it grants, no more and no less, also if the agent is killed
/// over it; and the reason is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn a_soft_threshold_grants_its_grace_whatever_becomes_of_the_agent() -> Result<()> {
    let _alone = ALONE.lock().await;
    let options = ["--eviction-soft", "nodefs.available<100Mi", "--eviction-soft-grace", "nodefs.available=1"];
    let options = [&options[..], &["--eviction-max-grace", "6", "--eviction-linger", "1"]].concat();
    let mut stage = Stage::on(Instance::start_on_small_disk(256, &options).await?).await?;
    let pod = stage.pod("greedy")?.grace(600).main("app", FILLS).run().await?;
    let let_in = uptime();
    pod.shared.open_gate().await?;
    pod.hears("app TERM").await?;
    let Actor { shared, .. } = pod;
    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    let mut watch = PodWatch::on(&stage.instance.client().await?, "greedy").await?.patient(e2e::stage::PATIENCE);
    watch.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    let (over, pod) = (uptime(), watch.last.clone().unwrap());
    assert_eq!(pod.status.as_ref().unwrap().reason.as_deref(), Some("Evicted"));
    assert_eq!(terminated(&pod).unwrap().exit_code, 137);
    // A second before somebody has to go, and six to go in.
    ensure!(over >= let_in + 7.0, "over {:.3} s after the disk began to fill, of 7", over - let_in);
    ensure!(shared.lines("log").iter().filter(|line| line.ends_with("TERM")).count() == 1, "{:?}", shared.lines("log"));
    complaints::ensure_none(&stage.instance, &[LOW, AFTER_A_CRASH].concat())
}

/// [NT-161] [NT-164] Who is leaving already has to hurry; who is critical stays, whatever it uses, and somebody else goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_leaving_pod_has_to_hurry_and_a_critical_one_stays() -> Result<()> {
    let _alone = ALONE.lock().await;
    const NOBODY: Expected =
        Expected { text: "there is no pod that may be evicted", because: "the one that fills the disk is critical" };
    let options = ["--eviction-hard", "nodefs.available<100Mi", "--eviction-linger", "1"];
    let stage = Stage::on(Instance::start_on_small_disk(256, &options).await?).await?;
    let vital = stage.pod("vital")?.spec("priorityClassName", "system-node-critical".into());
    let mut vital = vital.main("app", FILLS).run().await?;
    let resources = json!({ "requests": { "ephemeral-storage": "10Mi" } });
    let mut modest = stage.pod("modest")?.main("app", POLITE).with("resources", resources).run().await?;
    let script = "trap 'say TERM; dd if=/dev/zero of=/filled bs=1M count=180 2> /dev/null; say full' TERM; say up; \
                  while :; do sleep 1000 & wait $!; done";
    let mut leaving = stage.pod("leaving")?.main("app", script).run().await?;
    leaving.delete(&["--grace-period=200"]).await?;
    leaving.hears("app full").await?;
    leaving.gone().await?.was("Failed", &[("app", 137, "Error")])?;
    has_room(&stage.instance, 180).await?;
    modest.said_only(&["app up"])?;

    vital.shared.open_gate().await?;
    vital.hears("app full").await?;
    modest.watch.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    assert_eq!(modest.watch.last.as_ref().unwrap().status.as_ref().unwrap().reason.as_deref(), Some("Evicted"));
    for reason in ["NodeReady", "NodeHasNoDiskPressure", "EvictionThresholdMet", "NodeHasDiskPressure"] {
        stage.told(stage.instance.node_name(), reason).await?;
    }
    ensure!(is_ready(&stage.pods().get("vital").await?), "it stays");
    vital.said_only(&["app up", "app full"])?;
    vital.delete(&["--grace-period=1"]).await?;
    vital.gone().await?;
    complaints::ensure_none(&stage.instance, &[LOW, &[NOBODY]].concat())
}

/// How much memory the machine has left, in mebibytes.
fn memory_left() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:")).context("MemAvailable")?;
    Ok(line.split_whitespace().nth(1).context("a number")?.parse::<u64>()? / 1024)
}

/// The pod that takes the memory is evicted, whatever its grace, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_takes_the_memory_is_evicted() -> Result<()> {
    let _alone = ALONE.lock().await;
    // Others on this machine take and give back memory as well: the pod takes more and more of it until it is asked to stop.
    let threshold = format!("memory.available<{}Mi", memory_left()?.saturating_sub(800));
    let options = ["--eviction-hard", &threshold, "--eviction-linger", "1"];
    let stage = Stage::on(Instance::start_with(&options).await?).await?;
    let script = "trap 'say TERM; exit 0' TERM; say up; i=0; \
                  while [ $i -lt 40 ]; do dd if=/dev/zero of=/memory/$i bs=1M count=50 2> /dev/null; i=$((i + 1)); sleep 0.2; done; \
                  sleep 1000 & wait";
    let mounts = json!([{ "name": "shared", "mountPath": "/shared" }, { "name": "memory", "mountPath": "/memory" }]);
    let draft = stage.pod("greedy")?.main("app", script).with("volumeMounts", mounts);
    let volume = json!({ "name": "memory", "emptyDir": { "medium": "Memory" } });
    let mut pod = draft.volume(volume).create().await?;
    pod.watch.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
    let status = pod.watch.last.as_ref().and_then(|pod| pod.status.clone()).unwrap();
    let message = status.message.unwrap_or_default();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    ensure!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: ")
            && message.ends_with(", request is 0, has larger consumption of memory. "),
        "{message}"
    );
    let target = status.conditions.iter().flatten().find(|it| it.type_ == "DisruptionTarget").context("disrupted")?;
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
    pod.said_in_order(&["app up", "app TERM"])?;
    complaints::ensure_none(&stage.instance, LOW)
}

/// [NT-160] Who stores more than it may goes whatever the node has left: asked first, with a second of grace whatever its own
/// is. That is the pod's own fault, and it stays as it ended, although its containers were to be restarted.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_stores_more_than_it_may_is_evicted_for_good() -> Result<()> {
    const STORES: &str = "trap 'say TERM' TERM; say up; dd if=/dev/zero of=$WHERE/filled bs=1M count=3 2> /dev/null; say full; \
                          while :; do sleep 1000 & wait $!; done";
    let stage = Stage::on(Instance::start().await?).await?;
    let draft = |name: &str, place: &str, limits: Value, volume: Value| {
        let mounts = json!([{ "name": "shared", "mountPath": "/shared" }, { "name": "data", "mountPath": "/data" }]);
        let draft = stage.pod(name)?.grace(600).volume(json!({ "name": "data", "emptyDir": volume }));
        let draft = draft.main("app", &STORES.replace("$WHERE", place)).with("volumeMounts", mounts);
        anyhow::Ok(draft.with("resources", json!({ "limits": limits })))
    };
    let mebi = |count: u64| json!({ "ephemeral-storage": format!("{count}Mi") });
    let modest = draft("modest", "/data", mebi(64), json!({ "sizeLimit": "64Mi" }))?;
    let mut modest = modest.run().await?;
    modest.hears("app full").await?;
    let volume = draft("volume", "/data", json!({}), json!({ "sizeLimit": "1Mi" }))?;
    let total = draft("total", "/data", mebi(2), json!({}))?;
    let own =
        draft("own", "", mebi(2), json!({}))?.main("beside", POLITE).with("resources", json!({ "limits": mebi(64) }));
    let told = [
        (volume, "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "),
        (total, "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "),
        (own, "Container app exceeded its local ephemeral storage limit \"2Mi\". "),
    ];
    let mut pods = Vec::new();
    for (draft, message) in told {
        pods.push((draft.create().await?, message));
    }
    for (pod, message) in &mut pods {
        pod.watch.until("Failed", |pod| phase(pod) == Some("Failed")).await?;
        let name = pod.watch.last.as_ref().unwrap().metadata.name.clone().unwrap();
        let evicted = stage.pods().get(&name).await?;
        let status = evicted.status.as_ref().unwrap();
        assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(*message)));
        ensure!(status.conditions.iter().flatten().all(|it| it.type_ != "DisruptionTarget"), "{status:?}");
        ensure!(status.container_statuses.iter().flatten().all(|it| it.restart_count == 0), "{status:?}");
        assert_eq!(terminated(&evicted).unwrap().exit_code, 137, "it did not go in its second");
        pod.said_in_order(&["app up", "app TERM"])?;
        assert_eq!(stage.told(&name, "Evicted").await?, *message);
        let sent = stage.told(&name, "StopSignalSent").await?;
        ensure!(sent.ends_with(", 2s before SIGKILL"), "{sent}");
    }
    modest.said_only(&["app up", "app full"])?;
    ensure!(is_ready(&stage.pods().get("modest").await?), "it stays");
    modest.delete(&["--grace-period=1"]).await?;
    modest.gone().await?;
    complaints::ensure_none(&stage.instance, &[])
}
