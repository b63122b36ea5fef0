//! Probes of running pods: what they leave behind, and those that speak to a server of somebody else's making.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use e2e::complaints::AFTER_A_CRASH;
use e2e::pods::{PodWatch, SOON, busybox, is_ready};
use e2e::{Instance, Kubectl, Shared, complaints, workspace};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// `tests/e2e/clients/health.py`.
struct Server {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    port: u16,
}

impl Server {
    async fn start() -> Result<Self> {
        let python = workspace().join("target/tools/python/bin/python");
        ensure!(python.exists(), "{} is missing; run scripts/setup test", python.display());
        let mut command = Command::new(python);
        command.arg(workspace().join("tests/e2e/clients/health.py")).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let input = child.stdin.take().context("piped")?;
        let mut output = BufReader::new(child.stdout.take().context("piped")?).lines();
        let port = output.next_line().await?.context("a port")?.parse()?;
        Ok(Self { _child: child, input, output, port })
    }

    /// Has it say this from now on.
    async fn says(&mut self, service: &str, status: &str) -> Result<()> {
        let line = format!("{service} {status}");
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let told = tokio::time::timeout(SOON, self.output.next_line()).await.context("no answer")??;
        ensure!(told.as_ref() == Some(&line), "{told:?}");
        Ok(())
    }
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    statuses.and_then(|all| all.first()).map_or(0, |status| status.restart_count)
}

/// A pod on the node's own network, whose probes ask the server there: ready as the service says, restarted as the server
/// says.
#[tokio::test(flavor = "multi_thread")]
async fn a_grpc_server_says_whether_a_container_is_ready_and_alive() -> Result<()> {
    let mut server = Server::start().await?;
    server.says("shop", "NOT_SERVING").await?;
    server.says("-", "SERVING").await?;
    let instance = Instance::start().await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    let mut pod = busybox("shop", 1, "trap 'exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait", &shared);
    pod["spec"]["hostNetwork"] = true.into();
    let probe = |service: Option<&str>| {
        let grpc = json!({ "port": server.port, "service": service });
        json!({ "grpc": grpc, "periodSeconds": 1, "timeoutSeconds": 10, "failureThreshold": 1 })
    };
    pod["spec"]["containers"][0]["readinessProbe"] = probe(Some("shop"));
    pod["spec"]["containers"][0]["livenessProbe"] = probe(None);
    let mut stranger = pod.clone();
    stranger["metadata"]["name"] = "stranger".into();
    stranger["spec"]["containers"][0]["readinessProbe"] = probe(Some("nobody"));
    let unhealthy = |pod: &str| {
        let selector = format!("--field-selector=reason=Unhealthy,involvedObject.name={pod}");
        kubectl.follow(&["get", "events", "-w", "--no-headers", &selector])
    };
    let (mut told, mut told_stranger) = (unhealthy("shop")?, unhealthy("stranger")?);
    let mut watch = PodWatch::on(&client, "shop").await?;
    kubectl.apply(&pod).await?;
    kubectl.apply(&stranger).await?;
    let event = told.next().await?;
    let words = "Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")";
    ensure!(event.contains(words), "{event}");
    let event = told_stranger.next().await?;
    ensure!(event.contains("Readiness probe failed: error: health rpc probe failed: code 5:"), "{event}");

    server.says("shop", "SERVING").await?;
    watch.ready().await?;
    server.says("shop", "NOT_SERVING").await?;
    watch.until("unready", |pod| !is_ready(pod)).await?;
    assert_eq!(watch.last.as_ref().map(restarts), Some(0), "it is alive");
    server.says("-", "NOT_SERVING").await?;
    watch.until("restarted", |pod| restarts(pod) > 0).await?;
    complaints::ensure_none(&instance, &[])
}

/// How many processes of this machine were started as `sleep SECONDS`.
fn sleepers(seconds: &str) -> Result<usize> {
    let pids = std::fs::read_dir("/proc")?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    let wanted = format!("sleep\0{seconds}\0");
    Ok(pids.filter(|pid| std::fs::read(pid.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes())).count())
}

async fn sleepers_are(seconds: &str, wanted: impl Fn(usize) -> bool) -> Result<()> {
    let looking = async {
        while !wanted(sleepers(seconds)?) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    let looked = tokio::time::timeout(SOON, looking).await;
    looked.map_err(|_| anyhow::anyhow!("{:?} processes", sleepers(seconds)))?
}

/// However often a probe's program is given up, it and what it started are gone, and so they are if the agent dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_never_answers_leaves_no_processes() -> Result<()> {
    let mut instance = Instance::start().await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    // Nobody else sleeps exactly as long.
    let seconds = (1_000_000 + std::process::id()).to_string();
    let mut pod = busybox("deaf", 1, "trap 'exit 0' TERM; echo up >> /shared/log; sleep 1000 & wait", &shared);
    let exec = json!({ "command": ["sh", "-c", format!("setsid sleep {seconds} & sleep {seconds}")] });
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({ "exec": exec, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 100 });
    let selector = "--field-selector=reason=Unhealthy,involvedObject.name=deaf";
    let mut told = kubectl.follow(&["get", "events", "-w", "--no-headers", selector])?;
    kubectl.apply(&pod).await?;
    for _ in 0..4 {
        let event = told.next().await?;
        ensure!(event.contains("timed out after 1s"), "{event}");
    }
    // Two are of the attempt that is under way; four attempts were given up.
    sleepers_are(&seconds, |count| count <= 2).await?;
    sleepers_are(&seconds, |count| count > 0).await?;
    instance.kill_9().await?;
    sleepers_are(&seconds, |count| count == 0).await?;
    instance.up().await?;
    sleepers_are(&seconds, |count| count > 0).await?;
    let count = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl.run(&["get", "pod", "deaf", "-o", count]).await?, "0", "the container noticed nothing");
    instance.down().await?;
    assert_eq!(sleepers(&seconds)?, 0, "none outlives its container");
    complaints::ensure_none(&instance, &[])
}

/// What probes have learned outlives the agent: who has come up is not asked again whether it has, and whether it lives is asked
/// on.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_came_up_need_not_come_up_again() -> Result<()> {
    let mut instance = Instance::start().await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    let mut pod = busybox("up", 1, "trap 'exit 0' TERM; sleep 1000 & wait", &shared);
    // Each fails as soon as a file says so.
    let probe = |name: &str| {
        let script = format!("echo asked >> /shared/{name}; [ ! -e /shared/no-{name} ]");
        let exec = json!({ "command": ["sh", "-c", script] });
        json!({ "exec": exec, "periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 1 })
    };
    pod["spec"]["containers"][0]["startupProbe"] = probe("startup");
    pod["spec"]["containers"][0]["livenessProbe"] = probe("liveness");
    let mut watch = PodWatch::on(&instance.client().await?, "up").await?;
    kubectl.apply(&pod).await?;
    watch.ready().await?;
    shared.wait_lines("liveness", 1).await?;
    std::fs::write(shared.path().join("no-startup"), "")?;
    let startups = shared.lines("startup").len();
    instance.kill_9().await?;
    let before = shared.lines("liveness").len();
    instance.up().await?;
    shared.wait_lines("liveness", before + 3).await.context("it is asked whether it lives")?;
    assert_eq!(shared.lines("startup").len(), startups, "it is not asked whether it has come up");
    let mut watch = PodWatch::on(&instance.client().await?, "up").await?;
    watch.ready().await?;
    assert_eq!(watch.last.as_ref().map(restarts), Some(0));
    std::fs::write(shared.path().join("no-liveness"), "")?;
    watch.until("restarted", |pod| restarts(pod) > 0).await?;
    complaints::ensure_none(&instance, AFTER_A_CRASH)
}

/// What a probe's program says is shown to people, and however much it says, no more of it is kept than anybody wants to read;
/// the program is heard to its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_talkative_probe_is_heard_to_its_end_and_quoted_in_part() -> Result<()> {
    let instance = Instance::start().await?;
    let (kubectl, shared) = (Kubectl::newest(&instance)?, Shared::new()?);
    let mut pod = busybox("talks", 1, "trap 'exit 0' TERM; sleep 1000 & wait", &shared);
    let script = "echo I am not well; head -c 200000 /dev/zero | tr '\\0' x; echo heard >> /shared/log; exit 1";
    let exec = json!({ "command": ["sh", "-c", script] });
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({ "exec": exec, "periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 1 });
    let selector = "--field-selector=reason=Unhealthy,involvedObject.name=talks";
    let mut told = kubectl.follow(&["get", "events", "-w", "--no-headers", selector])?;
    kubectl.apply(&pod).await?;
    told.next().await?;
    let message = kubectl.run(&["get", "events", selector, "-o", "jsonpath={.items[0].message}"]).await?;
    ensure!(message.starts_with("Readiness probe failed: I am not well\nxxx"), "{message:.200}");
    ensure!(message.len() < 11 * 1024, "{} bytes are kept", message.len());
    ensure!(!shared.lines("log").is_empty(), "it was cut short");
    complaints::ensure_none(&instance, &[])
}
