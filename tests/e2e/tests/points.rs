//! `kill -9` of the agent at every point where it writes a termination down: before each record is in the journal, and
//! before each is durable. Enumerated, not sampled: a tracer kills the process as it enters its nth such call, for n from one
//! until a termination has no nth.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::complaints::AFTER_A_CRASH;
use e2e::pods::{PodWatch, SOON, busybox, with_pre_stop};
use e2e::{Instance, Shared, complaints};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use tokio::process::{Child, Command};

/// So many instances suffer at a time.
const AT_A_TIME: usize = 3;
const GRACE: Duration = Duration::from_secs(4);

const POLITE: &str = "trap 'echo TERM >> /shared/polite; exit 7' TERM; echo up >> /shared/polite; sleep 1000 & wait";
const HOOK: &str = "echo hook >> /shared/polite; sleep 0.3; echo hooked >> /shared/polite";
const DEAF: &str =
    "trap 'echo TERM >> /shared/deaf' TERM; echo up >> /shared/deaf; while :; do sleep 1000 & wait $!; done";

/// Kills the process when its journal's thread enters `call` for the nth time.
struct Tracer(Child);

impl Tracer {
    async fn attach(instance: &Instance, call: &str, number: usize) -> Result<Self> {
        let thread = instance.thread("journal")?;
        let tracer = Command::new("strace")
            .args(["-qq", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:signal=KILL:when={number}")])
            .arg("-P")
            .arg(instance.journal())
            .args(["-p", &thread.to_string()])
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot run strace; run scripts/setup test")?;
        let status = PathBuf::from(format!("/proc/{thread}/status"));
        let begun = Instant::now();
        // The kernel tells nobody when a tracer has come.
        while std::fs::read_to_string(&status)?.contains("TracerPid:\t0\n") {
            ensure!(begun.elapsed() < SOON, "strace does not attach");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Self(tracer))
    }

    async fn detach(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.0.id().context("it runs")?)?).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        self.0.wait().await?;
        Ok(())
    }
}

/// Ends a pod and dies at the nth `call`; `false` if the pod had left before that. What is seen of the end is the same.
async fn dies_at(call: &str, number: usize) -> Result<bool> {
    let mut instance = Instance::start().await?;
    let shared = Shared::new()?;
    let mut pod = with_pre_stop(busybox("leaving", GRACE.as_secs(), POLITE, &shared), HOOK);
    let mut deaf = busybox("leaving", 0, DEAF, &shared)["spec"]["containers"][0].take();
    deaf["name"] = "deaf".into();
    pod["spec"]["containers"].as_array_mut().context("containers")?.push(deaf);
    let mut watch = PodWatch::on(&instance.client().await?, "leaving").await?;
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    watch.ready().await?;
    shared.wait_lines("polite", 1).await?;
    shared.wait_lines("deaf", 1).await?;

    let tracer = Tracer::attach(&instance, call, number).await?;
    let asked = Instant::now();
    let answered = pods.delete("leaving", &DeleteParams::default()).await;
    let (struck, (gone, last)) = match watch.gone(SOON).await {
        Ok(seen) => {
            tracer.detach().await?;
            (false, (seen.0, Some(seen.1)))
        }
        // The watch has died with the process.
        Err(_) => {
            tokio::time::timeout(SOON, instance.killed()).await.context("the pod did not leave, and nobody died")??;
            instance.up().await?;
            let client = instance.client().await?;
            let mut again = PodWatch::on(&client, "leaving").await?;
            let pods: Api<Pod> = Api::namespaced(client, "default");
            // Whoever got no answer asks again.
            if answered.is_err() {
                let _ = pods.delete("leaving", &DeleteParams::default()).await;
            }
            // Its last act may have been the last of all, and nobody can see the object any more.
            match pods.get_opt("leaving").await? {
                None => (true, (Instant::now(), None)),
                Some(_) => (true, again.gone(SOON).await.map(|(gone, last)| (gone, Some(last)))?),
            }
        }
    };
    assert_eq!(shared.lines("polite"), ["up", "hook", "hooked", "TERM"], "each step once, in order");
    assert_eq!(shared.lines("deaf"), ["up", "TERM"], "the stop signal is sent once");
    ensure!(gone - asked >= GRACE, "killed before its deadline, after {:?}", gone - asked);
    complaints::ensure_none(&instance, AFTER_A_CRASH)?;
    let Some(last) = last else { return Ok(struck) };
    let mut ends = Vec::new();
    for container in last.status.context("a status")?.container_statuses.context("containers")? {
        let end = container.state.and_then(|state| state.terminated).context("every container has ended")?;
        ends.push((container.name, end.exit_code, end.reason.unwrap_or_default(), container.restart_count));
    }
    ends.sort();
    let expected = [("app", 7, "Error", 0), ("deaf", 137, "Error", 0)];
    assert_eq!(ends, expected.map(|(name, code, why, starts)| (name.to_owned(), code, why.to_owned(), starts)));
    Ok(struck)
}

async fn every(call: &str) -> Result<()> {
    let mut points = 0;
    loop {
        let numbers = points + 1..=points + AT_A_TIME;
        let named =
            |number| async move { dies_at(call, number).await.with_context(|| format!("{call} number {number}")) };
        let struck = try_join_all(numbers.map(named)).await?;
        points += struck.iter().filter(|struck| **struck).count();
        if struck.contains(&false) {
            println!("{points} points before {call}");
            // The request, the hook's end, both signals' answers, both ends, and the object's.
            ensure!(points >= 5, "a termination is written down in {points} steps only");
            return Ok(());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_before_any_record_is_written_changes_nothing() -> Result<()> {
    every("write").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_before_any_record_is_durable_changes_nothing() -> Result<()> {
    every("fdatasync").await
}
