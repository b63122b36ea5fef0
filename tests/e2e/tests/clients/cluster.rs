//! A server and nodes that join it: three processes that may each be killed at any moment.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cluster::{NodeProgram, ServerProgram};
use e2e::leftovers::Traces;
use e2e::pods::{PodWatch, SOON, busybox, ip, is_ready};
use e2e::{Kubectl, Shared, instance};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};

/// Runs until it is asked to leave, and says so.
const STAYS: &str = "trap 'echo asked >> /shared/$POD; exit 0' TERM; echo $POD speaks; echo up >> /shared/$POD; \
                     while :; do sleep 0.1; done";
/// Ends with 3 whenever the gate is opened.
const ENDS: &str = "echo up >> /shared/$POD; read word < /shared/gate; exit 3";

/// A pod for one node, put there by the scheduler.
fn pod(name: &str, node: &NodeProgram, script: &str, shared: &Shared) -> Value {
    let mut pod = busybox(name, 5, script, shared);
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node.name() });
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "POD", "value": name }]);
    pod
}

fn restarts(pod: &Pod) -> Option<i32> {
    Some(pod.status.as_ref()?.container_statuses.as_ref()?.first()?.restart_count)
}

/// Shows pods on two nodes to stock kubectl; kills each of the three processes; and nobody loses anything.
#[tokio::test(flavor = "multi_thread")]
async fn node_and_server_survive_each_others_crash() -> Result<()> {
    let shared = Shared::new()?;
    let mut server = ServerProgram::start().await?;
    let mut one = NodeProgram::join(&server, "node-one").await?;
    let mut two = NodeProgram::join(&server, "node-two").await?;
    let client = instance::client(&server.kubeconfig()).await?;
    let kubectl = Kubectl::newest_by(&server.kubeconfig())?;
    let nodes = kubectl.run(&["get", "nodes", "--no-headers"]).await?;
    ensure!(nodes.lines().filter(|line| line.contains(" Ready ")).count() == 2, "{nodes}");

    // Pods on both, seen through the server by every kubectl there is.
    let mut ips = Vec::new();
    for (name, node) in [("first", &one), ("second", &two)] {
        let mut watch = PodWatch::on(&client, name).await?;
        kubectl.apply(&pod(name, node, STAYS, &shared)).await?;
        watch.ready().await?;
        ips.push(watch.last.as_ref().and_then(ip).context("an address")?);
        // What it says is there a moment after it runs.
        ensure!(kubectl.follow(&["logs", "-f", name])?.next().await? == format!("{name} speaks"));
        for kubectl in Kubectl::all_by(&server.kubeconfig())? {
            let seen = async {
                ensure!(kubectl.run(&["logs", name]).await? == format!("{name} speaks\n"));
                ensure!(kubectl.run(&["exec", name, "--", "hostname"]).await? == format!("{name}\n"));
                ensure!(kubectl.run_with(&["exec", "-i", name, "--", "tr", "a-z", "A-Z"], "shout").await? == "SHOUT");
                Ok(())
            };
            seen.await.with_context(|| format!("{name} by {}", kubectl.name()))?;
        }
    }
    // What they use is asked of each of their nodes.
    let (pods, nodes) = (kubectl.run(&["top", "pods"]).await?, kubectl.run(&["top", "nodes"]).await?);
    ensure!(pods.contains("first ") && pods.contains("second "), "{pods}");
    ensure!(nodes.contains("node-one ") && nodes.contains("node-two ") && !nodes.contains("unknown"), "{nodes}");
    let traces = [
        Traces::of_parts(one.dir(), one.pod_cidr(), &ips[..1])?,
        Traces::of_parts(two.dir(), two.pod_cidr(), &ips[1..])?,
    ];

    // The server dies, and the node dies too; it goes on without the server, also with what ends meanwhile.
    let mut watch = PodWatch::on(&client, "ends").await?;
    kubectl.apply(&pod("ends", &one, ENDS, &shared)).await?;
    watch.ready().await?;
    server.kill_9().await?;
    one.kill_9().await?;
    one.start()?;
    shared.open_gate().await?;
    shared.wait_lines("ends", 2).await.context("a container is restarted while the server is away")?;
    server.up().await?;
    one.ready().await?;
    let mut watch = PodWatch::on(&client, "ends").await?;
    watch.until("the restart", |pod| restarts(pod) == Some(1)).await?;
    ensure!(shared.lines("first") == ["up"] && shared.lines("second") == ["up"], "running pods do not notice");
    let ended = kubectl.run(&["get", "pod", "ends", "-o", "jsonpath={.status.containerStatuses[0].lastState}"]).await?;
    ensure!(ended.contains("\"exitCode\":3"), "{ended}");
    ensure!(kubectl.run(&["exec", "first", "--", "hostname"]).await? == "first\n", "the node is found again");

    // A delete that a node misses takes effect when it is back; the grace has begun meanwhile.
    two.kill_9().await?;
    let mut watch = PodWatch::on(&client, "second").await?;
    kubectl.run(&["delete", "pod", "second", "--wait=false"]).await?;
    ensure!(shared.lines("second") == ["up"], "nobody is there to ask it");
    two.start()?;
    two.ready().await?;
    watch.gone(SOON).await?;
    ensure!(shared.lines("second") == ["up", "asked"], "{:?}", shared.lines("second"));
    kubectl.run(&["delete", "pod", "ends", "--now"]).await?;

    // `adieu down` by the running node, and, of one that was killed, alone and without its server.
    let status = String::from_utf8(one.adieu(&["status"]).output().await?.stdout)?;
    ensure!(status.contains("node-one: ready") && status.contains("1: 1 running"), "{status}");
    let mut watch = PodWatch::on(&client, "last").await?;
    kubectl.apply(&pod("last", &two, STAYS, &shared)).await?;
    watch.ready().await?;
    one.down().await?;
    ensure!(shared.lines("first") == ["up", "asked"], "{:?}", shared.lines("first"));
    two.kill_9().await?;
    server.kill_9().await?;
    two.down().await?;
    ensure!(shared.lines("last") == ["up", "asked"], "{:?}", shared.lines("last"));
    traces.iter().try_for_each(Traces::ensure_none)
}

/// What is refused at the start says why, and what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_join_says_why() -> Result<()> {
    let server = ServerProgram::start().await?;
    let mut node = NodeProgram::join(&server, "node-three").await?;
    node.kill_9().await?;
    let admin = server.kubeconfig().to_string_lossy().into_owned();
    for (words, told) in [
        (&["node", "--kubeconfig", admin.as_str()][..], "is not a node's"),
        (&["node", "--node-name", "other"], "lets in \"node-three\" only"),
        (&["node", "--node-api", "127.0.0.1:0", "--pod-cidr", "10.99.0.0/16"], "was last used with"),
        (&["up"], "was last used by `adieu node`"),
        (&["server"], "use `adieu node` on it"),
        (&["server", "add-node", "Not a name"], "cannot name a node"),
        (&["server", "add-node", "four"], "no server has run on"),
    ] {
        let output = node.adieu(words).output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(told), "{words:?}: {said}");
    }
    node.down().await?;
    Ok(())
}

/// A node that says nothing any more is noticed, by its pods too; it comes back, and so does everything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_is_noticed_and_comes_back() -> Result<()> {
    let shared = Shared::new()?;
    // A little longer than a node that is well takes to speak again.
    let server = ServerProgram::start_with(&["--node-monitor-grace-period", "20"]).await?;
    let mut node = NodeProgram::join(&server, "node-five").await?;
    let client = instance::client(&server.kubeconfig()).await?;
    let kubectl = Kubectl::newest_by(&server.kubeconfig())?;
    let mut watch = PodWatch::on(&client, "stays").await?;
    kubectl.apply(&pod("stays", &node, STAYS, &shared)).await?;
    watch.ready().await?;
    node.kill_9().await?;
    let until = async |object: &str, condition: &str| {
        kubectl.run(&["wait", object, &format!("--for=condition={condition}"), "--timeout=120s"]).await
    };
    until("node/node-five", "Ready=Unknown").await?;
    until("pod/stays", "Ready=False").await?;
    let line = kubectl.run(&["get", "node", "node-five", "--no-headers"]).await?;
    ensure!(line.contains(" NotReady "), "{line}");
    // Who is kept away, and who is let in again, is written after what the node is.
    let taints_until = async |wanted: &str| {
        let taints = ["get", "node", "node-five", "-o", "jsonpath={.spec.taints[*].key}"];
        let written = async {
            while kubectl.run(&taints).await? != wanted {}
            anyhow::Ok(())
        };
        tokio::time::timeout(SOON, written).await.with_context(|| format!("the taints are not {wanted:?}"))?
    };
    taints_until("node.kubernetes.io/unreachable").await?;
    let told = kubectl.run(&["describe", "node", "node-five"]).await?;
    for word in
        ["node.kubernetes.io/unreachable:NoSchedule", "NodeStatusUnknown", "Kubelet stopped posting node status."]
    {
        ensure!(told.contains(word), "{word}: {told}");
    }
    ensure!(!told.contains(":NoExecute"), "while nobody is well, nobody is given up: {told}");
    node.start()?;
    node.ready().await?;
    until("node/node-five", "Ready").await?;
    until("pod/stays", "Ready").await?;
    ensure!(shared.lines("stays") == ["up"], "the pod did not notice: {:?}", shared.lines("stays"));
    taints_until("").await?;
    node.down().await?;
    Ok(())
}

/// [NT-39] [NT-138] Without its server a node ends what files no longer ask for, gracefully, and runs what they ask for anew; of
/// the pods that only the server could speak of it touches none, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn node_without_its_server_ends_only_removed_static_pods() -> Result<()> {
    let shared = Shared::new()?;
    let mut server = ServerProgram::start().await?;
    let mut node = NodeProgram::join(&server, "node-six").await?;
    let client = instance::client(&server.kubeconfig()).await?;
    let kubectl = Kubectl::newest_by(&server.kubeconfig())?;
    let mut stays = PodWatch::on(&client, "stays").await?;
    kubectl.apply(&pod("stays", &node, STAYS, &shared)).await?;
    stays.ready().await?;
    let file = node.dir().join("manifests/web.yaml");
    let put = || {
        let mut manifest = busybox("web", 600, STAYS, &shared);
        manifest["spec"]["containers"][0]["env"] = json!([{ "name": "POD", "value": "web" }]);
        fs::write(file.with_file_name(".web.yaml"), manifest.to_string())?;
        fs::rename(file.with_file_name(".web.yaml"), &file)
    };
    let mut mirror = PodWatch::on(&client, "web-node-six").await?;
    put()?;
    mirror.ready().await?;
    shared.wait_lines("web", 1).await?;

    server.kill_9().await?;
    fs::remove_file(&file)?;
    shared.wait_lines("web", 2).await.context("it is asked to leave")?;
    put()?;
    // The next one begins when nothing is left of the last one.
    ensure!(shared.wait_lines("web", 3).await? == ["up", "asked", "up"]);
    node.kill_9().await?;
    fs::remove_file(&file)?;
    node.start()?;
    ensure!(shared.wait_lines("web", 4).await? == ["up", "asked", "up", "asked"]);
    ensure!(shared.lines("stays") == ["up"], "nobody said that this one has to go: {:?}", shared.lines("stays"));

    server.up().await?;
    node.ready().await?;
    kubectl.run(&["wait", "--for=delete", "pod/web-node-six", "--timeout=60s"]).await?;
    let seen = Api::<Pod>::namespaced(client.clone(), "default").get("stays").await?;
    ensure!(is_ready(&seen) && shared.lines("stays") == ["up"], "{:?}", seen.status);
    node.down().await?;
    Ok(())
}

/// [NT-157] A machine goes down with a hundred pods while its server does not answer: how each of them ended is told at the next
/// start.
#[tokio::test(flavor = "multi_thread")]
async fn statuses_unreported_by_a_shutdown_are_reported_at_the_next_start() -> Result<()> {
    const MANY: usize = 100;
    let shared = Shared::new()?;
    let mut server = ServerProgram::start().await?;
    let unhurried = ["--shutdown-grace", "180", "--shutdown-grace-critical", "10"];
    let mut node = NodeProgram::join_with(&server, "node-seven", &unhurried).await?;
    let client = instance::crowded_client(&server.kubeconfig()).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let script = "trap 'echo asked >> /shared/log; exit 7' TERM; echo up >> /shared/log; sleep 1000 & wait";
    let create = |number: usize| {
        let manifest = busybox(&format!("crowd-{number}"), 120, script, &shared);
        let pods = &pods;
        async move { anyhow::Ok(pods.create(&PostParams::default(), &serde_json::from_value(manifest)?).await?) }
    };
    try_join_all((0..MANY).map(create)).await?;
    let long = Duration::from_secs(120);
    shared.wait_until("log", long, |lines| lines.len() >= MANY).await.context("they run")?;
    server.kill_9().await?;
    node.power_fails().await?;
    let asked = shared.lines("log").iter().filter(|line| *line == "asked").count();
    ensure!(asked == MANY, "{asked} of {MANY} were asked to leave");

    server.up().await?;
    node.start()?;
    node.ready().await?;
    let kubectl = Kubectl::newest_by(&server.kubeconfig())?;
    kubectl.run(&["wait", "pod", "--all", "--for=jsonpath={.status.phase}=Failed", "--timeout=120s"]).await?;
    let all = pods.list(&ListParams::default()).await?.items;
    ensure!(all.len() == MANY, "{} pods are left", all.len());
    for pod in &all {
        let status = pod.status.as_ref().context("a status")?;
        ensure!(status.reason.as_deref() == Some("Terminated"), "{status:?}");
        let ended = status.container_statuses.iter().flatten().filter_map(|it| it.state.as_ref()?.terminated.as_ref());
        ensure!(ended.map(|end| end.exit_code).collect::<Vec<_>>() == [7], "{status:?}");
    }
    node.down().await?;
    Ok(())
}

/// [NT-29] What is left of a pod that neither the server nor the node's own memory knows of is ended, though it does not listen.
#[tokio::test(flavor = "multi_thread")]
async fn orphan_sandbox_unknown_to_server_and_journal_is_ended() -> Result<()> {
    const DEAF: &str = "exec 9<> /shared/gate; trap 'echo asked >> /shared/$POD' TERM; echo up >> /shared/$POD; \
                        while :; do sleep 1000 & wait $!; done";
    let shared = Shared::new()?;
    let server = ServerProgram::start().await?;
    let mut node = NodeProgram::join(&server, "node-eight").await?;
    let client = instance::client(&server.kubeconfig()).await?;
    let kubectl = Kubectl::newest_by(&server.kubeconfig())?;
    let mut watch = PodWatch::on(&client, "deaf").await?;
    let mut deaf = pod("deaf", &node, DEAF, &shared);
    deaf["spec"]["terminationGracePeriodSeconds"] = 600.into();
    kubectl.apply(&deaf).await?;
    watch.ready().await?;
    shared.wait_lines("deaf", 1).await?;
    node.kill_9().await?;
    kubectl.run(&["delete", "pod", "deaf", "--force", "--grace-period=0"]).await?;
    fs::remove_file(node.dir().join("node/journal"))?;
    node.start()?;
    node.ready().await?;
    shared.deserted(SOON).await?;
    ensure!(shared.lines("deaf") == ["up", "asked"], "{:?}", shared.lines("deaf"));
    node.down().await?;
    Ok(())
}
