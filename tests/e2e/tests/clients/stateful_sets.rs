//! StatefulSets and DaemonSets with real containers, told by stock kubectl.

use anyhow::{Context, Result, ensure};
use e2e::{Instance, Kubectl, Shared, complaints};
use serde_json::{Value, json};

/// Says who it is when it begins, when its hook runs and when it is asked to exit; the hook takes its time.
fn template(app: &str, version: &str, hook: &str, shared: &Shared) -> Value {
    let script = format!(
        "trap 'echo term $HOSTNAME >> /shared/{app}; exit 0' TERM; echo start $HOSTNAME {version} >> /shared/{app}; touch /tmp/up; sleep 1000 & wait"
    );
    let pre_stop = json!({ "exec": { "command": ["sh", "-c", hook] } });
    // It counts as started when it has said so.
    let post_start = json!({ "exec": { "command": ["sh", "-c", "until [ -e /tmp/up ]; do sleep 0.02; done"] } });
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": {
            "terminationGracePeriodSeconds": 20,
            "containers": [{
                "name": "app", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
                "env": [{ "name": "VERSION", "value": version }],
                "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
                "lifecycle": { "postStart": post_start, "preStop": pre_stop },
            }],
            "volumes": [{ "name": "shared", "hostPath": { "path": shared.path() } }],
        },
    })
}

fn workload(kind: &str, name: &str, template: &Value, extra: Value) -> Value {
    let mut spec = json!({ "selector": { "matchLabels": { "app": name } }, "template": template });
    spec.as_object_mut().into_iter().for_each(|spec| spec.extend(extra.as_object().cloned().unwrap_or_default()));
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

async fn field(kubectl: &Kubectl, object: &str, path: &str) -> Result<String> {
    kubectl.run(&["get", object, "-o", &format!("jsonpath={{{path}}}")]).await
}

fn position(lines: &[String], wanted: &str) -> Result<usize> {
    lines.iter().position(|line| line == wanted).with_context(|| format!("{wanted} in {lines:?}"))
}

/// [WL-57] [WL-63] [TR-79] The next lower pod is asked to leave when the higher one is gone, hook and all; an update spares the
/// partition; `rollout` and `scale` of stock kubectl know what is going on.
#[tokio::test(flavor = "multi_thread")]
async fn stateful_set_leaves_in_order_and_updates_by_partition() -> Result<()> {
    let (instance, shared) = (Instance::start().await?, Shared::new()?);
    let kubectl = Kubectl::newest(&instance)?;
    let hook = "echo hook $HOSTNAME >> /shared/web; sleep 1; echo hooked $HOSTNAME >> /shared/web";
    let rolling = |partition: u32| {
        json!({ "replicas": 3, "serviceName": "web",
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } })
    };
    kubectl.apply(&workload("StatefulSet", "web", &template("web", "v1", hook, &shared), rolling(0))).await?;
    let said = kubectl.run(&["rollout", "status", "statefulset/web", "--timeout=90s"]).await?;
    ensure!(said.contains("partitioned roll out complete: 3 new pods have been updated"), "{said}");
    assert_eq!(shared.lines("web"), ["start web-0 v1", "start web-1 v1", "start web-2 v1"]);

    // Down to one: each is gone, with its hook and its signal, before the next is asked.
    kubectl.run(&["scale", "statefulset/web", "--replicas=1"]).await?;
    kubectl.run(&["wait", "pod/web-1", "--for=delete", "--timeout=90s"]).await?;
    let lines = shared.lines("web");
    let order = ["hook web-2", "hooked web-2", "term web-2", "hook web-1", "hooked web-1", "term web-1"];
    assert_eq!(lines[3..], order);
    kubectl.run(&["scale", "statefulset/web", "--replicas=3"]).await?;
    kubectl.run(&["rollout", "status", "statefulset/web", "--timeout=90s"]).await?;

    // A canary, then everybody, then back.
    kubectl.apply(&workload("StatefulSet", "web", &template("web", "v2", hook, &shared), rolling(2))).await?;
    let said = kubectl.run(&["rollout", "status", "statefulset/web", "--timeout=90s"]).await?;
    ensure!(said.contains("partitioned roll out complete: 1 new pods have been updated"), "{said}");
    let version = ".spec.containers[0].env[0].value";
    assert_eq!(field(&kubectl, "pod/web-2", version).await?, "v2");
    assert_eq!(field(&kubectl, "pod/web-1", version).await?, "v1");
    kubectl.apply(&workload("StatefulSet", "web", &template("web", "v2", "true", &shared), rolling(0))).await?;
    kubectl.run(&["rollout", "status", "statefulset/web", "--timeout=90s"]).await?;
    let lines = shared.lines("web");
    let last = |name: &str| lines.iter().rposition(|line| *line == format!("start {name} v2")).context("it is updated");
    ensure!(last("web-2")? < last("web-1")? && last("web-1")? < last("web-0")?, "from the top: {lines:?}");
    let history = kubectl.run(&["rollout", "history", "statefulset/web"]).await?;
    ensure!(history.lines().filter(|line| line.starts_with(['1', '2', '3'])).count() == 3, "{history}");
    kubectl.run(&["rollout", "undo", "statefulset/web", "--to-revision=1"]).await?;
    kubectl.run(&["rollout", "status", "statefulset/web", "--timeout=90s"]).await?;
    assert_eq!(field(&kubectl, "pod/web-0", version).await?, "v1");
    let status = field(&kubectl, "statefulset/web", ".status").await?;
    let status: Value = serde_json::from_str(&status)?;
    assert_eq!(status["currentRevision"], status["updateRevision"]);
    kubectl.run(&["delete", "statefulset/web", "--timeout=90s"]).await?;
    complaints::ensure_none(&instance, &[])
}

/// [WL-84] [WL-88] One pod on the node; its successor starts when it is gone, hook and all; `rollout` knows.
#[tokio::test(flavor = "multi_thread")]
async fn daemon_set_pod_is_replaced_after_its_hook() -> Result<()> {
    let (instance, shared) = (Instance::start().await?, Shared::new()?);
    let kubectl = Kubectl::newest(&instance)?;
    let hook = "echo hook >> /shared/log; sleep 1; echo hooked >> /shared/log";
    kubectl.apply(&workload("DaemonSet", "log", &template("log", "v1", hook, &shared), json!({}))).await?;
    let said = kubectl.run(&["rollout", "status", "daemonset/log", "--timeout=90s"]).await?;
    ensure!(said.contains("daemon set \"log\" successfully rolled out"), "{said}");
    kubectl.apply(&workload("DaemonSet", "log", &template("log", "v2", hook, &shared), json!({}))).await?;
    kubectl.run(&["rollout", "status", "daemonset/log", "--timeout=90s"]).await?;
    let lines = shared
        .wait_until("log", e2e::pods::SOON, |lines| lines.iter().filter(|it| it.starts_with("start")).count() == 2)
        .await?;
    let started = |version: &str| lines.iter().position(|line| line.starts_with("start") && line.ends_with(version));
    let second = started("v2").with_context(|| format!("{lines:?}"))?;
    ensure!(position(&lines, "hooked")? < second, "{lines:?}");
    ensure!(lines.iter().position(|line| line.starts_with("term")).is_some_and(|term| term < second), "{lines:?}");
    kubectl.run(&["rollout", "undo", "daemonset/log"]).await?;
    kubectl.run(&["rollout", "status", "daemonset/log", "--timeout=90s"]).await?;
    let versions = kubectl
        .run(&["get", "pods", "-l", "app=log", "-o", "jsonpath={.items[*].spec.containers[0].env[0].value}"])
        .await?;
    assert_eq!(versions, "v1");
    let table = kubectl.run(&["get", "daemonset/log", "--no-headers"]).await?;
    let columns: Vec<&str> = table.split_whitespace().take(6).collect();
    assert_eq!(columns, ["log", "1", "1", "1", "1", "1"]);
    complaints::ensure_none(&instance, &[])
}
