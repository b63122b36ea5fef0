//! NetworkPolicies as users write them, with stock kubectl: who is reached, by address and by Service, from the first packet of a pod
//! to its last.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::PodWatch;
use e2e::{Instance, Kubectl};
use serde_json::{Value, json};

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "app", "image": "busybox", "command": ["sh", "-c", script] }],
        },
    })
}

fn policy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": name }, "spec": spec,
    })
}

const SERVE: &str = "mkdir /www && echo hello >/www/index.html && exec httpd -f -p 8080 -h /www";

/// Asks for the page at an address and a port. The image's own `wget` wants a resolver that a static program does not have.
fn asking(at: &str, seconds: u32) -> String {
    format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w {seconds} {at} 2>/dev/null")
}

/// A server behind a Service, with a probe, and two who ask it.
struct Shop {
    instance: Instance,
    kubectl: Kubectl,
    address: String,
    service: String,
}

impl Shop {
    async fn open() -> Result<Self> {
        let instance = Instance::start().await?;
        let (client, kubectl) = (instance.client().await?, Kubectl::newest(&instance)?);
        let mut server = pod("web", SERVE);
        let probe = json!({ "tcpSocket": { "port": 8080 }, "periodSeconds": 1, "failureThreshold": 1 });
        server["spec"]["containers"][0]["readinessProbe"] = probe;
        server["spec"]["containers"][0]["ports"] = json!([{ "name": "http", "containerPort": 8080 }]);
        let ports = json!([{ "port": 80, "targetPort": 8080 }]);
        let spec = json!({ "selector": { "app": "web" }, "ports": ports });
        let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" }, "spec": spec });
        kubectl.apply(&service).await?;
        for pod in [server, pod("friend", "sleep 1000"), pod("stranger", "sleep 1000")] {
            let mut watch = PodWatch::on(&client, pod["metadata"]["name"].as_str().unwrap()).await?;
            kubectl.apply(&pod).await?;
            watch.ready().await?;
        }
        let address = kubectl.run(&["get", "pod", "web", "-o", "jsonpath={.status.podIP}"]).await?;
        let service = kubectl.run(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]).await?;
        Ok(Self { instance, kubectl, address, service })
    }

    /// What a pod hears from the server, by its address and by the Service's.
    async fn heard(&self, by: &str) -> Result<(bool, bool)> {
        let asks = |at: String| async move {
            let script = format!("{}; true", asking(&at, 3));
            let heard = self.kubectl.run(&["exec", by, "--", "sh", "-c", &script]).await;
            heard.map(|heard| heard.contains("hello")).with_context(|| format!("{by} asks {at}"))
        };
        Ok((asks(format!("{} 8080", self.address)).await?, asks(format!("{} 80", self.service)).await?))
    }

    /// Waits until a pod hears as much as said by both addresses.
    async fn until(&self, by: &str, wanted: bool, when: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + e2e::pods::SOON;
        loop {
            let heard = self.heard(by).await?;
            if heard == (wanted, wanted) {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "{when}: {by} hears {heard:?} by address and by Service");
        }
    }
}

/// [NP-2] [NP-3] [NP-46] The server is closed by a policy, to its address and by its Service, opened to whom another names, and all the
/// time ready: also while nobody looks after the node, and afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn pod_is_reached_by_whom_policies_name_also_when_the_agent_is_killed() -> Result<()> {
    let mut shop = Shop::open().await?;
    shop.until("friend", true, "without a policy").await?;
    let said = shop.kubectl.apply(&policy("closed", json!({ "podSelector": {} }))).await?;
    ensure!(!said.contains("Warning"), "{said}");
    shop.until("friend", false, "closed").await?;
    shop.until("stranger", false, "closed").await?;
    let from = json!([{ "podSelector": { "matchLabels": { "app": "friend" } } }]);
    let rule = json!([{ "from": from, "ports": [{ "port": "http" }] }]);
    let open = json!({ "podSelector": { "matchLabels": { "app": "web" } }, "ingress": rule });
    shop.kubectl.apply(&policy("open", open)).await?;
    shop.until("friend", true, "opened to friends").await?;
    ensure!(shop.heard("stranger").await? == (false, false), "and to nobody else");
    shop.kubectl.run(&["label", "pod", "stranger", "--overwrite", "app=friend"]).await?;
    shop.until("stranger", true, "a stranger that became a friend").await?;
    shop.kubectl.run(&["label", "pod", "stranger", "--overwrite", "app=stranger"]).await?;
    shop.until("stranger", false, "and is none again").await?;

    shop.instance.kill_9().await?;
    shop.instance.up().await?;
    ensure!(shop.heard("stranger").await? == (false, false), "after a crash");
    shop.until("friend", true, "after a crash").await?;
    let readiness =
        "jsonpath={.status.conditions[?(@.type==\"Ready\")].status} {.status.containerStatuses[0].restartCount}";
    let ready = shop.kubectl.run(&["get", "pod", "web", "-o", readiness]).await?;
    ensure!(ready == "True 0", "its probes pass: {ready}");
    let told =
        shop.kubectl.run(&["get", "events", "--field-selector", "involvedObject.name=web,reason=Unhealthy"]).await?;
    ensure!(!told.contains("Unhealthy"), "{told}");
    shop.kubectl.run(&["delete", "networkpolicy", "closed", "open"]).await?;
    shop.until("stranger", true, "without policies").await?;
    let refused = policy("wrong", json!({ "podSelector": {}, "ingress": [{ "ports": [{ "endPort": 9 }] }] }));
    let refused = shop.kubectl.apply(&refused).await.unwrap_err().to_string();
    ensure!(refused.contains("spec.ingress[0].ports[0].endPort"), "{refused}");
    Ok(())
}

/// [NP-33] [NP-34] [NP-36] Whatever a new pod sends first is refused; the usual policy opens the cluster DNS to it and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn new_pod_is_under_its_policies_from_its_first_packet() -> Result<()> {
    let shop = Shop::open().await?;
    let client = shop.instance.client().await?;
    shop.until("friend", true, "without a policy").await?;
    let selected = json!({ "matchLabels": { "kept": "in" } });
    let deny = json!({ "podSelector": selected, "policyTypes": ["Egress"] });
    shop.kubectl.apply(&policy("kept-in", deny)).await?;
    // Its very first process asks as often as it can.
    let ask = format!(
        "for i in 1 2 3 4 5; do {} | grep -q hello && exit 1; done; \
         nslookup kubernetes.default.svc.cluster.local 2>/dev/null | grep -q 10.87.0.1 && exit 2; exit 0",
        asking(&format!("{} 8080", shop.address), 1)
    );
    for number in 0..4 {
        let name = format!("new-{number}");
        let mut new = pod(&name, "sleep 1000");
        new["metadata"]["labels"]["kept"] = json!("in");
        new["spec"]["restartPolicy"] = json!("Never");
        new["spec"]["initContainers"] = json!([{ "name": "first", "image": "busybox", "command": ["sh", "-c", ask] }]);
        let mut watch = PodWatch::on(&client, &name).await?;
        shop.kubectl.apply(&new).await?;
        watch.ready().await.with_context(|| format!("the first process of {name} heard something"))?;
    }
    let peer = json!({
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "kube-system" } },
        "podSelector": { "matchLabels": { "k8s-app": "kube-dns" } },
    });
    let ports = json!([{ "port": 53, "protocol": "UDP" }, { "port": 53, "protocol": "TCP" }]);
    let egress = json!([{ "to": [peer], "ports": ports }]);
    let dns = json!({ "podSelector": selected, "policyTypes": ["Egress"], "egress": egress });
    shop.kubectl.apply(&policy("dns", dns)).await?;
    let look = "for i in $(seq 200); do nslookup kubernetes.default.svc.cluster.local 2>/dev/null | grep -q 10.87.0.1 && \
                exec echo found; sleep 0.1; done; echo nothing";
    let found = shop.kubectl.run(&["exec", "new-0", "--", "sh", "-c", look]).await?;
    ensure!(found == "found\n", "{found}");
    ensure!(shop.heard("new-0").await? == (false, false), "names are found, and nobody is reached");
    Ok(())
}
