//! One pod, its whole life, told by stock kubectl: Debian's 1.20 (SPDY exec, empty OpenAPI v2) and a newer one where present.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox, terminated};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a pod has that does not want to leave.
const LONG: Duration = Duration::from_secs(210);

/// Says hello, then waits for TERM and says goodbye.
const POLITE: &str = "trap 'echo goodbye; exit 0' TERM; echo hello; sleep 1000 & wait";

#[tokio::test(flavor = "multi_thread")]
async fn a_busybox_pod_lives_and_leaves() -> Result<()> {
    let instance = Instance::start().await?;
    // Nobody runs it: whoever sees it has begun to look.
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    pods.create(&PostParams::default(), &held("lighthouse")?).await?;
    for kubectl in Kubectl::all(&instance)? {
        whole_life(&instance, &kubectl).await.with_context(|| kubectl.name())?;
    }
    complaints::ensure_none(&instance, &[])
}

async fn object(kubectl: &Kubectl, pod: &str) -> Result<Value> {
    Ok(serde_json::from_str(&kubectl.run(&["get", "pod", pod, "-o", "json"]).await?)?)
}

async fn whole_life(instance: &Instance, kubectl: &Kubectl) -> Result<()> {
    let shared = Shared::new()?;
    let manifest = busybox("polite", 30, POLITE, &shared);
    let mut watching = kubectl.follow(&["get", "pods", "-w", "--output-watch-events=true"])?;
    while !watching.next().await?.contains("lighthouse") {}

    assert_eq!(kubectl.apply(&manifest).await?, "pod/polite created\n");
    PodWatch::on(&instance.client().await?, "polite").await?.ready().await?;
    let before = object(kubectl, "polite").await?;
    // Every kubectl patches the order of the volumes when the account's token is one more than the manifest names.
    assert_eq!(kubectl.apply(&manifest).await?, "pod/polite configured\n");
    assert_eq!(object(kubectl, "polite").await?, before, "and nothing has changed by it");

    let table = kubectl.run(&["get", "pod", "polite"]).await?;
    ensure!(table.contains("polite   1/1     Running   0"), "get: {table}");
    let wide = kubectl.run(&["get", "pod", "polite", "-o", "wide"]).await?;
    let object = object(kubectl, "polite").await?;
    let (ip, node) = (object["status"]["podIP"].as_str().unwrap(), object["spec"]["nodeName"].as_str().unwrap());
    ensure!(wide.contains(ip) && wide.contains(node), "get -o wide: {wide}");
    let yaml = kubectl.run(&["get", "pod", "polite", "-o", "yaml"]).await?;
    ensure!(yaml.contains("phase: Running") && yaml.contains("terminationGracePeriodSeconds: 30"), "{yaml}");
    describes(kubectl).await?;

    exec(kubectl).await?;

    let mut log = kubectl.follow(&["logs", "-f", "polite"])?;
    assert_eq!(log.next().await?, "hello");
    ensure!(kubectl.run(&["delete", "pod", "polite"]).await?.starts_with("pod \"polite\" deleted"), "delete says so");
    assert_eq!(log.rest().await?, ["goodbye"], "the last words come through, then it ends");

    let mut words = Vec::new();
    while !words.iter().any(|line: &String| line.contains("DELETED")) {
        words.push(watching.next().await?);
    }
    let story = words.join("\n");
    for word in ["ADDED", "ContainerCreating", "Running", "Terminating", "DELETED"] {
        ensure!(story.contains(word), "get -w lacks {word}:\n{story}");
    }
    let gone = kubectl.run(&["get", "pod", "polite"]).await.unwrap_err().to_string();
    ensure!(gone.contains("Error from server (NotFound): pods \"polite\" not found"), "{gone}");
    Ok(())
}

/// Events are told off the path of everything else, so they may come a moment later.
async fn describes(kubectl: &Kubectl) -> Result<()> {
    const WORDS: [&str; 4] =
        ["Successfully assigned default/polite", "already present on machine", "Container started", "adieu://"];
    let begun = Instant::now();
    loop {
        let described = kubectl.run(&["describe", "pod", "polite"]).await?;
        let Some(missing) = WORDS.iter().find(|word| !described.contains(**word)) else { return Ok(()) };
        ensure!(begun.elapsed() < SOON, "describe lacks {missing:?}: {described}");
    }
}

/// [NT-91] in part: exec runs beside the first process, with its exit code, with and without a terminal and input.
async fn exec(kubectl: &Kubectl) -> Result<()> {
    let hostname = kubectl.run(&["exec", "polite", "--", "hostname"]).await?;
    assert_eq!(hostname, "polite\n");
    let echoed = kubectl.run_with(&["exec", "-i", "polite", "--", "cat"], "through the pipe\n").await?;
    assert_eq!(echoed, "through the pipe\n");
    let failed = kubectl.command(&["exec", "polite", "--", "sh", "-c", "echo no >&2; exit 7"]).output().await?;
    assert_eq!(failed.status.code(), Some(7), "{}", String::from_utf8_lossy(&failed.stderr));
    ensure!(String::from_utf8_lossy(&failed.stderr).starts_with("no\n"), "stderr comes through");
    let terminal = kubectl.run_in_terminal(&["exec", "-it", "polite", "--", "tty"]).await?;
    ensure!(terminal.contains("/dev/pts/0\r\n"), "{terminal:?}");
    let absent = kubectl.command(&["exec", "polite", "--", "no-such-program"]).output().await?;
    ensure!(!absent.status.success(), "a program that is not there cannot run");
    ensure!(String::from_utf8_lossy(&absent.stderr).contains("no-such-program"), "{absent:?}");
    Ok(())
}

/// [NT-88] The image's own stop signal: nginx gets QUIT, finishes what it was doing, and exits 0.
#[tokio::test(flavor = "multi_thread")]
async fn nginx_serves_and_is_stopped_by_its_images_signal() -> Result<()> {
    let instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let client = instance.client().await?;
    let mut watch = PodWatch::on(&client, "web").await?;
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": "nginx", "image": "nginx", "ports": [{ "containerPort": 80 }],
            "readinessProbe": { "httpGet": { "path": "/", "port": 80 }, "periodSeconds": 1 } }] },
    });
    kubectl.apply(&manifest).await?;
    watch.ready().await?;
    let ip = watch.last.as_ref().and_then(|p| p.status.as_ref()?.pod_ip.clone()).context("an address")?;
    ensure!(get(&ip).await?.starts_with("HTTP/1.1 200"), "nginx answers");

    // An idle connection is closed by a graceful stop (QUIT) and would be cut by a fast one (TERM) just the same, but
    // only QUIT makes nginx log a graceful shutdown.
    let mut log = kubectl.follow(&["logs", "-f", "web"])?;
    // It reads: nobody can follow the log of a pod that is gone.
    log.next().await?;
    kubectl.run(&["delete", "pod", "web"]).await?;
    let (_, last) = watch.gone(SOON).await?;
    let text = log.rest().await?.join("\n");
    ensure!(text.contains("signal 3 (SIGQUIT) received"), "nginx was stopped by QUIT: {text}");
    let end = terminated(&last).context("the container ended")?;
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    assert_eq!(last.status.unwrap().phase.as_deref(), Some("Succeeded"));
    complaints::ensure_none(&instance, &[])
}

async fn get(ip: &str) -> Result<String> {
    let mut stream = TcpStream::connect((ip, 80)).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// [NT-23] A long grace shown as `Terminating`, cut short by a second delete, although TERM is ignored.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_delete_with_a_shorter_grace_takes_effect_at_once() -> Result<()> {
    let instance = Instance::start().await?;
    for kubectl in Kubectl::all(&instance)? {
        let shared = Shared::new()?;
        let script =
            "trap 'echo TERM >> /shared/log' TERM; echo up >> /shared/log; while :; do sleep 1000 & wait $!; done";
        let mut watch = PodWatch::on(&instance.client().await?, "stubborn").await?;
        kubectl.apply(&busybox("stubborn", LONG.as_secs(), script, &shared)).await?;
        watch.ready().await?;
        shared.wait_lines("log", 1).await?;

        kubectl.run(&["delete", "pod", "stubborn", "--wait=false"]).await?;
        let table = kubectl.run(&["get", "pod", "stubborn"]).await?;
        ensure!(table.contains("1/1     Terminating"), "{}: {table}", kubectl.name());
        assert_eq!(shared.wait_lines("log", 2).await?[1], "TERM");

        kubectl.run(&["delete", "pod", "stubborn", "--grace-period=1", "--wait=false"]).await?;
        // The request is older than this, however long kubectl took to make it.
        let asked = Instant::now();
        let (gone, last) = watch.gone(SOON).await?;
        // KILL comes two seconds after the stop signal, which is older still; then the pod has yet to go. Whoever waits out the
        // first grace takes minutes.
        let took = gone.saturating_duration_since(asked);
        ensure!(took < LONG / 2, "{}: gone after {took:?}", kubectl.name());
        assert_eq!(terminated(&last).unwrap().exit_code, 137);
        assert_eq!(shared.lines("log").len(), 2, "the stop signal is sent once");
    }
    complaints::ensure_none(&instance, &[])
}

/// What pods, their containers and their node use, by every kubectl: who computes is told apart from who sleeps, and only
/// those are told who may see it.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_top_shows_pods_containers_and_nodes() -> Result<()> {
    let instance = Instance::start().await?;
    let (client, newest, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    let mut pod = busybox("used", 0, "while :; do :; done", &shared);
    let mut idle = pod["spec"]["containers"][0].clone();
    (idle["name"], idle["command"]) = ("idle".into(), json!(["sleep", "1000"]));
    pod["spec"]["containers"].as_array_mut().unwrap().push(idle);
    pod["metadata"]["labels"] = json!({ "does": "compute" });
    newest.apply(&pod).await?;
    PodWatch::on(&client, "used").await?.ready().await?;
    for kubectl in Kubectl::all(&instance)? {
        top(&instance, &kubectl).await.with_context(|| kubectl.name())?;
    }
    let path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/used";
    let told: Value = serde_json::from_str(&newest.run(&["get", "--raw", path]).await?)?;
    ensure!(told["kind"] == "PodMetrics" && told["metadata"]["labels"]["does"] == "compute", "{told}");
    let window: f64 = told["window"].as_str().and_then(|text| text.strip_suffix('s')).unwrap().parse()?;
    ensure!(window >= 1.0 && told["timestamp"].is_string(), "{told}");
    let absent = newest.run(&["get", "--raw", &format!("{path}-not")]).await.unwrap_err().to_string();
    ensure!(absent.contains("podmetrics.metrics.k8s.io") && absent.contains("not found"), "{absent}");

    let stranger = newest.run(&["top", "pods", "--as=jane"]).await.unwrap_err().to_string();
    ensure!(stranger.contains("cannot list resource \"pods\" in API group \"metrics.k8s.io\""), "{stranger}");
    newest.run(&["create", "rolebinding", "jane", "--clusterrole=view", "--user=jane"]).await?;
    ensure!(newest.run(&["top", "pods", "--as=jane"]).await?.contains("used"), "who may view sees what is used");
    newest.run(&["delete", "pod", "used", "--now"]).await?;
    complaints::ensure_none(&instance, &[])
}

async fn top(instance: &Instance, kubectl: &Kubectl) -> Result<()> {
    let told = kubectl.run(&["top", "pod", "used", "--containers", "--no-headers"]).await?;
    let used = |container: &str| -> Option<u64> {
        let lines = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.into_iter().find(|words| words.get(1) == Some(&container))?;
        line.get(2)?.strip_suffix('m')?.parse().ok()
    };
    let (busy, idle) = (used("app").context("who computes")?, used("idle").context("who sleeps")?);
    ensure!(busy > idle, "{told}");
    let told = kubectl.run(&["top", "pods", "-l", "does=compute", "--no-headers"]).await?;
    ensure!(told.starts_with("used ") && told.lines().count() == 1, "{told}");
    ensure!(kubectl.run(&["top", "pods", "-l", "does=nothing"]).await?.is_empty(), "nobody does nothing");
    let told = kubectl.run(&["top", "node", "--no-headers"]).await?;
    ensure!(told.starts_with(instance.node_name()) && told.contains('%') && !told.contains("unknown"), "{told}");
    Ok(())
}

/// [AD-83] Whoever waits for the end of a pod waits for that one, not for its name: a StatefulSet makes the next at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_ends_with_its_pod_although_there_is_another_of_its_name() -> Result<()> {
    let shared = Arc::new(Shared::new()?);
    let instance = Instance::start_with(&["--audit-log", &shared.path().join(AUDIT).display().to_string()]).await?;
    let pods: Api<Pod> = Api::namespaced(instance.client().await?, "default");
    for (before, kubectl) in Kubectl::all(&instance)?.into_iter().enumerate() {
        let first = pods.create(&PostParams::default(), &held("db-0")?).await?.uid().context("a uid")?;
        let controller = tokio::spawn(made_anew(pods.clone(), shared.clone(), before));
        let told = kubectl.run(&["delete", "pod", "db-0"]).await.with_context(|| kubectl.name())?;
        ensure!(told.starts_with("pod \"db-0\" deleted"), "{told}");
        let second = controller.await??;
        let found = pods.get("db-0").await?;
        ensure!(second != first && found.uid().as_ref() == Some(&second), "its successor is left alone");
        ensure!(found.metadata.deletion_timestamp.is_none(), "its successor is left alone");
        let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        pods.patch("db-0", &PatchParams::default(), &free).await?;
        pods.delete("db-0", &DeleteParams::default()).await?;
    }
    complaints::ensure_none(&instance, &[])
}

/// A pod that no node runs, and that is gone when its controller says so.
fn held(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "finalizers": ["e2e.example.com/hold"] },
        "spec": { "schedulingGates": [{ "name": "e2e.example.com/never" }],
            "containers": [{ "name": "app", "image": "busybox" }] },
    }))?)
}

/// The name of the audit log in the shared folder.
const AUDIT: &str = "audit.log";

/// A controller that lets its pod go once kubectl watches its end, and makes it anew in the next moment. Answers the uid of the new
/// one. Made anew any earlier, the pod could be another before kubectl first lists it, and no end would ever be seen.
async fn made_anew(pods: Api<Pod>, shared: Arc<Shared>, watched_before: usize) -> Result<String> {
    let watched = |line: &&String| {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl"))
            && event["verb"] == "watch"
            && event["stage"] == "ResponseStarted"
            && event["objectRef"]["resource"] == "pods"
    };
    let enough = |lines: &[String]| lines.iter().filter(watched).count() > watched_before;
    shared.wait_until(AUDIT, 2 * SOON, enough).await.context("kubectl does not watch")?;
    let let_go = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    pods.patch("db-0", &PatchParams::default(), &let_go).await?;
    pods.create(&PostParams::default(), &held("db-0")?).await?.uid().context("a uid")
}

/// [AD-87] A budget that allows nothing keeps its pod from a drain, which says so again and again, and gives up when its time is
/// over; nothing new comes to the node meanwhile, nor afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_a_budget_stops_says_so_until_its_time_is_over() -> Result<()> {
    let instance = Instance::start().await?;
    let kubectl = Kubectl::newest(&instance)?;
    let shared = Shared::new()?;
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "all" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "guarded" } } } });
    kubectl.apply(&budget).await?;
    let mut manifest = busybox("guarded", 1, "sleep 1000", &shared);
    manifest["metadata"]["labels"] = json!({ "app": "guarded" });
    kubectl.apply(&manifest).await?;
    PodWatch::on(&instance.client().await?, "guarded").await?.ready().await?;
    let pod = object(&kubectl, "guarded").await?;
    let node = pod["spec"]["nodeName"].as_str().context("a node")?;

    let limited = ["drain", node, "--force", "--pod-selector=app=guarded", "--timeout=12s"];
    let drained = kubectl.command(&limited).output().await?;
    let told = String::from_utf8_lossy(&drained.stderr);
    assert_eq!(drained.status.code(), Some(1), "{told}");
    let refusal = "error when evicting pods/\"guarded\" -n \"default\" (will retry after 5s): \
                   Cannot evict pod as it would violate the pod's disruption budget.";
    let lines = told.lines().filter(|line| *line == refusal).count();
    ensure!(lines >= 2, "it tries again, and says so: {told}");
    ensure!(told.contains("global timeout reached: 12s"), "{told}");

    let after = kubectl.run(&["get", "node", node, "-o", "jsonpath={.spec.unschedulable}"]).await?;
    assert_eq!(after, "true", "the node stays cordoned");
    let left = object(&kubectl, "guarded").await?;
    assert_eq!(left["metadata"]["uid"], pod["metadata"]["uid"]);
    ensure!(left["metadata"]["deletionTimestamp"].is_null(), "and the pod stays");
    kubectl.run(&["uncordon", node]).await?;
    complaints::ensure_none(&instance, &[])
}
