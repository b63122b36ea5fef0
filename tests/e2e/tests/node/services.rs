//! Services as people make and use them: `kubectl expose`, from a pod and from the node, until nobody is left.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::pods::PodWatch;
use e2e::{Instance, Kubectl};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(60);

/// Pods that answer with their names.
fn web() -> Value {
    let script = "echo $HOSTNAME > /tmp/index.html; exec httpd -f -p 8080 -h /tmp";
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "app", "image": "busybox", "command": ["sh", "-c", script],
                    "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 } }],
            } },
        },
    })
}

/// What is said at an address, to the node itself.
async fn ask(at: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await?;
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

/// Asks until both pods have answered.
async fn both<F: Future<Output = Option<String>>>(what: &str, ask: impl Fn() -> F) -> Result<BTreeSet<String>> {
    let since = Instant::now();
    let mut said = BTreeSet::new();
    while said.len() < 2 {
        ensure!(since.elapsed() < PATIENCE, "{what}: only {said:?} answered");
        said.extend(ask().await);
    }
    Ok(said)
}

/// [TR-64] [LB-1]
#[tokio::test(flavor = "multi_thread")]
async fn service_is_reached_by_cluster_ip_and_node_port_and_refuses_when_scaled_to_zero() -> Result<()> {
    let instance = Instance::start().await?;
    let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
    let mut watch = PodWatch::on(&client, "client").await?;
    kubectl.apply(&web()).await?;
    kubectl.run(&["run", "client", "--image=busybox", "--restart=Never", "--", "sleep", "1000"]).await?;
    kubectl.run(&["expose", "rs", "web", "--port=80", "--target-port=8080", "--type=NodePort"]).await?;
    let words = "jsonpath={.spec.clusterIP} {.spec.ports[0].nodePort}";
    let said = kubectl.run(&["get", "service", "web", "-o", words]).await?;
    let (vip, node_port) = said.split_once(' ').context("an address and a port")?;
    let internal = "jsonpath={.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
    let node = kubectl.run(&["get", "nodes", "-o", internal]).await?;
    kubectl.run(&["wait", "--for=jsonpath={.status.readyReplicas}=2", "rs/web", "--timeout=60s"]).await?;
    watch.ready().await?;

    let script = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {vip} 80");
    let inside = ["exec", "client", "--", "sh", "-c", &script];
    let pods =
        both("from a pod", || async { Some(kubectl.run(&inside).await.ok()?.lines().last()?.to_owned()) }).await?;
    ensure!(pods.iter().all(|name| name.starts_with("web-")), "{pods:?}");
    let at_vip = format!("{vip}:80");
    ensure!(both("from the node", || async { ask(&at_vip).await.ok() }).await? == pods);
    let at_node = format!("{node}:{node_port}");
    ensure!(both("by node port", || async { ask(&at_node).await.ok() }).await? == pods);
    let loopback = ask(&format!("127.0.0.1:{node_port}")).await.unwrap_err().kind();
    ensure!(loopback == ErrorKind::ConnectionRefused, "{loopback}");
    // A load balancer is the node itself.
    kubectl.run(&["patch", "service", "web", "-p", r#"{"spec":{"type":"LoadBalancer"}}"#]).await?;
    let told = format!("--for=jsonpath={{.status.loadBalancer.ingress[0].ip}}={node}");
    kubectl.run(&["wait", &told, "service/web", "--timeout=60s"]).await?;

    kubectl.run(&["scale", "rs", "web", "--replicas=0"]).await?;
    let since = Instant::now();
    while !ask(&at_vip).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        ensure!(since.elapsed() < PATIENCE, "the Service of nobody still answers");
    }
    let refused = kubectl.run(&inside).await.unwrap_err().to_string();
    ensure!(refused.contains("refused"), "{refused}");
    Ok(())
}
