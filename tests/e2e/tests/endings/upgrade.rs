//! Another program in the place of the one that runs, as an upgrade of the package puts it, under running pods.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::complaints::AFTER_A_CRASH;
use e2e::pace::Pace;
use e2e::pods::{PodWatch, SOON, busybox, terminated};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};

/// The least that an agent leaves a pod after it has come back.
const AFTER_A_RESTART: Duration = Duration::from_secs(3);

async fn pods(instance: &Instance) -> Result<Api<Pod>> {
    Ok(Api::namespaced(instance.client().await?, "default"))
}

async fn create(instance: &Instance, shared: &Shared, name: &str, grace: u64, script: &str) -> Result<()> {
    let mut watch = PodWatch::on(&instance.client().await?, name).await?;
    let manifest = serde_json::from_value(busybox(name, grace, script, shared))?;
    pods(instance).await?.create(&PostParams::default(), &manifest).await?;
    watch.ready().await?;
    shared.wait_lines("log", 1).await?;
    Ok(())
}

/// The inode of the program that each shim of the instance runs.
fn shims(instance: &Instance) -> Result<Vec<u64>> {
    let dir = instance.dir().to_string_lossy().into_owned();
    let mut shims = Vec::new();
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        // Others come and go meanwhile.
        let words = fs::read(path.join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if words.starts_with("adieu\0shim\0")
            && words.contains(&dir)
            && let Ok(program) = fs::metadata(path.join("exe"))
        {
            shims.push(program.ino());
        }
    }
    shims.sort_unstable();
    Ok(shims)
}

/// [NT-146] [NT-144] Pods run on, with the same processes; one that is leaving keeps its deadline and gets no second signal; pods that
/// come later run beside them.
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_leaves_running_pods_alone_and_a_leaving_one_its_deadline() -> Result<()> {
    let mut instance = Instance::start_from_a_copy().await?;
    let (steady, leaving, pace) = (Shared::new()?, Shared::new()?, Pace::start()?);
    create(
        &instance,
        &steady,
        "steady",
        1,
        "echo up >> /shared/log; read word < /shared/gate; echo after $word; sleep 1000",
    )
    .await?;
    let grace = Duration::from_secs(8);
    let stays = "trap 'echo TERM >> /shared/log; sleep 2; echo stays >> /shared/log' TERM; echo up >> /shared/log; \
                 while :; do sleep 1000 & wait $!; done";
    create(&instance, &leaving, "leaving", grace.as_secs(), stays).await?;
    let before = pods(&instance).await?.get("steady").await?;
    let old = fs::metadata(instance.program())?.ino();
    assert_eq!(shims(&instance)?, [old, old], "both shims run the program");

    let asked = Instant::now();
    pods(&instance).await?.delete("leaving", &DeleteParams::default()).await?;
    leaving.wait_lines("log", 2).await?;
    instance.replace_program()?;
    // As a package does it: the former agent is asked to stop, and the next one is another program.
    instance.stop().await?;
    // Whoever counted anew would be so much later.
    leaving.wait_lines("log", 3).await?;
    instance.up().await?;
    let mut watch = PodWatch::on(&instance.client().await?, "leaving").await?;
    let due = (asked + grace).max(Instant::now() + AFTER_A_RESTART);

    let (gone, last) = watch.gone(SOON).await?;
    let took = gone - asked;
    ensure!(took >= grace, "ended before its deadline, after {took:?}");
    ensure!(gone <= due + pace.forgives(), "the deadline moved: {took:?}");
    assert_eq!(leaving.lines("log"), ["up", "TERM", "stays"], "the stop signal is sent once");
    assert_eq!(terminated(&last).context("it ended")?.exit_code, 137);

    let next = Shared::new()?;
    create(&instance, &next, "next", 1, "echo up >> /shared/log; sleep 1000").await?;
    let new = fs::metadata(instance.program())?.ino();
    assert_ne!(new, old, "it is another program");
    let mut expected = [old, new];
    expected.sort_unstable();
    assert_eq!(shims(&instance)?, expected, "each pod's shim is of the program that started it");

    let after = pods(&instance).await?.get("steady").await?;
    assert_eq!(before.status, after.status, "the same containers, started when they were");
    assert_eq!(steady.lines("log"), ["up"]);
    // The old shim does what the new agent asks.
    let kubectl = Kubectl::newest(&instance)?;
    assert_eq!(kubectl.run(&["exec", "steady", "--", "echo", "served"]).await?, "served\n");
    steady.open_gate().await?;
    kubectl.run(&["delete", "pod", "steady", "next"]).await?;
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}
