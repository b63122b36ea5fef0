//! Who may come when a node is full: turned away, waiting for those who leave, or in the place of somebody who matters less.
#![allow(clippy::unwrap_used, reason = "tests")]

use anyhow::{Context, Result, ensure};
use e2e::pods::{PodWatch, SOON, busybox, is_ready, phase};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

struct Stage {
    instance: Instance,
    client: kube::Client,
    kubectl: Kubectl,
    shared: Shared,
    /// Half of the node's CPUs, in thousandths.
    half: i64,
}

impl Stage {
    async fn set() -> Result<Self> {
        let instance = Instance::start().await?;
        let client = instance.client().await?;
        let node = Api::<Node>::all(client.clone()).get(instance.node_name()).await?;
        let has = node.status.context("a status")?.allocatable.context("it has something to give")?;
        let cpus: i64 = has["cpu"].0.parse().with_context(|| format!("{has:?}"))?;
        let kubectl = Kubectl::newest(&instance)?;
        Ok(Self { client, kubectl, shared: Shared::new()?, half: cpus * 500, instance })
    }

    /// A pod that notes when it comes and goes, and asks for so many halves of the node's CPUs; `bound` without a scheduler.
    fn pod(&self, name: &str, halves: i64, bound: bool) -> Value {
        let script = format!(
            "trap 'echo {name} TERM >> /shared/log; [ ! -e /shared/hold-{name} ] || read word < /shared/gate; exit 0' TERM; \
             echo {name} up >> /shared/log; sleep 1000 & wait"
        );
        let mut pod = busybox(name, 600, &script, &self.shared);
        let cpu = format!("{}m", self.half * halves);
        pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": cpu } });
        if bound {
            pod["spec"]["nodeName"] = self.instance.node_name().into();
        }
        pod
    }

    /// When this pod is asked to leave, it waits until the gate is opened.
    fn hold(&self, name: &str) -> Result<()> {
        Ok(std::fs::write(self.shared.path().join(format!("hold-{name}")), "")?)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, manifest: Value) -> Result<PodWatch> {
        let pod: Pod = serde_json::from_value(manifest)?;
        let watch = PodWatch::on(&self.client, pod.metadata.name.as_deref().unwrap()).await?;
        self.pods().create(&PostParams::default(), &pod).await?;
        Ok(watch)
    }

    async fn run(&self, manifest: Value) -> Result<PodWatch> {
        let mut watch = self.create(manifest).await?;
        watch.ready().await?;
        Ok(watch)
    }

    /// Waits until somebody has told this of the pod, with these words in it.
    async fn told(&self, name: &str, reason: &str, words: &str) -> Result<()> {
        let selector = format!("--field-selector=involvedObject.name={name},reason={reason}");
        let mut events = self.kubectl.follow(&["get", "events", "-w", "--no-headers", &selector])?;
        let line = events.next().await.with_context(|| format!("nobody tells {reason} of {name}"))?;
        ensure!(line.contains(words), "{line}");
        Ok(())
    }
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn failed(pod: &Pod) -> bool {
    phase(pod) == Some("Failed")
}

/// Pods that nobody asked whether there is room for them: what a node does not have it does not promise. Room that somebody
/// is about to leave is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn pod_that_exceeds_node_resources_is_rejected() -> Result<()> {
    let stage = Stage::set().await?;
    for (name, resource, much) in [("thinker", "cpu", "10k"), ("hoarder", "memory", "1Pi")] {
        let mut pod = stage.pod(name, 0, true);
        pod["spec"]["containers"][0]["resources"]["requests"] = json!({ resource: much });
        let mut watch = stage.create(pod).await?;
        watch.until("turned away", failed).await?;
        let status = watch.last.unwrap().status.unwrap();
        assert_eq!(status.reason, Some(format!("OutOf{resource}")));
        let words = format!("Pod was rejected: Node didn't have enough resource: {resource}, requested: ");
        ensure!(status.message.as_ref().unwrap().starts_with(&words), "{:?}", status.message);
        stage.told(name, &format!("OutOf{resource}"), "Node didn't have enough resource").await?;
    }
    let mut first = stage.run(stage.pod("first", 2, true)).await?;
    stage.shared.wait_lines("log", 1).await?;
    let mut second = stage.create(stage.pod("second", 1, true)).await?;
    second.until("turned away", failed).await?;
    let status = second.last.as_ref().unwrap().status.as_ref().unwrap();
    let (asked, all) = (stage.half, stage.half * 2);
    let words = format!("requested: {asked}, used: {all}, capacity: ");
    ensure!(status.message.as_ref().unwrap().contains(&words), "{:?}", status.message);

    stage.hold("first")?;
    stage.pods().delete("first", &DeleteParams::default()).await?;
    stage.shared.wait_until("log", SOON, |lines| lines.contains(&"first TERM".to_owned())).await?;
    let mut third = stage.create(stage.pod("third", 2, true)).await?;
    stage.told("third", "WaitingForRoom", "Waiting until others have left").await?;
    // What one waits for nobody gets who comes later.
    let mut fourth = stage.create(stage.pod("fourth", 1, true)).await?;
    fourth.until("turned away", failed).await?;
    third.until("it waits", |pod| phase(pod) == Some("Pending")).await?;
    stage.shared.open_gate().await?;
    first.gone(SOON).await?;
    third.ready().await?;
    assert_eq!(stage.shared.wait_lines("log", 3).await?, ["first up", "first TERM", "third up"]);
    complaints::ensure_none(&stage.instance, &[])
}

/// A pod that names its node asked no scheduler whether it may be there: the node looks at its labels, as they are by then.
#[tokio::test(flavor = "multi_thread")]
async fn pod_with_node_affinity_elsewhere_is_rejected() -> Result<()> {
    let stage = Stage::set().await?;
    let wanting = |name: &str, disk: &str| {
        let mut pod = stage.pod(name, 0, true);
        let term = json!({ "matchExpressions": [{ "key": "disk", "operator": "In", "values": [disk] }] });
        let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } });
        pod["spec"]["affinity"] = json!({ "nodeAffinity": required });
        pod
    };
    let mut selecting = stage.pod("selecting", 0, true);
    selecting["spec"]["nodeSelector"] = json!({ "disk": "fast" });
    for (name, pod) in [("selecting", selecting.clone()), ("wanting", wanting("wanting", "fast"))] {
        let mut watch = stage.create(pod).await?;
        watch.until("turned away", failed).await?;
        let status = watch.last.unwrap().status.unwrap();
        let words = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        assert_eq!(status.reason.as_deref(), Some("NodeAffinity"));
        assert_eq!(status.message, Some(format!("Pod was rejected: {words}")));
        stage.told(name, "NodeAffinity", words).await?;
        stage.pods().delete(name, &DeleteParams::default()).await?;
    }
    stage.kubectl.run(&["label", "node", stage.instance.node_name(), "disk=fast"]).await?;
    stage.run(wanting("welcome", "fast")).await?;
    stage.shared.wait_lines("log", 1).await?;
    // Who is there stays there.
    stage.kubectl.run(&["label", "node", stage.instance.node_name(), "disk=slow", "--overwrite"]).await?;
    let mut other = stage.create(wanting("other", "fast")).await?;
    other.until("turned away", failed).await?;
    ensure!(is_ready(&stage.pods().get("welcome").await?));
    complaints::ensure_none(&stage.instance, &[])
}

/// [NT-162] For a pod that the node cannot do without, from the API or from a file, others give way: no more than needed, those
/// first who were promised least, with their full grace; and it begins when they are gone.
#[tokio::test(flavor = "multi_thread")]
async fn critical_pod_preempts_lower_priority_pods() -> Result<()> {
    let stage = Stage::set().await?;
    let mut cheap = stage.run(stage.pod("cheap", 1, false)).await?;
    let mut dear = stage.pod("dear", 1, false);
    let all = json!({ "cpu": format!("{}m", stage.half), "memory": "32Mi" });
    dear["spec"]["containers"][0]["resources"] = json!({ "requests": all, "limits": all });
    let mut dear = stage.run(dear).await?;
    stage.shared.wait_lines("log", 2).await?;

    stage.hold("cheap")?;
    let mut vital = stage.pod("vital", 1, true);
    vital["spec"]["priorityClassName"] = "system-node-critical".into();
    let mut vital = stage.create(vital).await?;
    stage.shared.wait_until("log", SOON, |lines| lines.contains(&"cheap TERM".to_owned())).await?;
    stage.told("cheap", "Preempting", "Preempted in order to admit critical pod").await?;
    cheap.until("not Ready", |pod| !is_ready(pod)).await?;
    assert_eq!(phase(cheap.last.as_ref().unwrap()), Some("Running"), "it has its grace");
    stage.shared.open_gate().await?;
    gave_way(&mut cheap).await?;
    vital.ready().await?;
    let said = stage.shared.wait_lines("log", 4).await?;
    assert_eq!(said[2..], ["cheap TERM", "vital up"], "one after the other");
    ensure!(is_ready(&stage.pods().get("dear").await?), "nobody leaves without need");

    let manifest = stage.pod("firm", 1, false);
    std::fs::write(stage.instance.dir().join("manifests/firm.yaml"), manifest.to_string())?;
    gave_way(&mut dear).await?;
    let said = stage.shared.wait_lines("log", 6).await?;
    assert_eq!(said[4..], ["dear TERM", "firm up"]);
    ensure!(is_ready(&stage.pods().get("vital").await?), "one critical pod is as good as another");
    complaints::ensure_none(&stage.instance, &[])
}

/// Waits until the pod has ended because it gave way, and says so.
async fn gave_way(watch: &mut PodWatch) -> Result<()> {
    watch.until("Failed", failed).await?;
    let pod = watch.last.as_ref().unwrap();
    let status = pod.status.as_ref().unwrap();
    let words = (status.reason.as_deref(), status.message.as_deref());
    assert_eq!(words, (Some("Preempting"), Some("Preempted in order to admit critical pod")));
    let target = condition(pod, "DisruptionTarget").context("it was disrupted")?;
    assert_eq!((&*target.status, target.reason.as_deref()), ("True", Some("TerminationByKubelet")));
    let words = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!(target.message.as_deref(), Some(words));
    Ok(())
}

/// A pod that matters more gets a node that is full: somebody is asked to leave it, told why, and given the time; nobody is
/// asked by one who is too polite.
#[tokio::test(flavor = "multi_thread")]
async fn scheduler_preempts_for_a_pod_of_higher_priority() -> Result<()> {
    let stage = Stage::set().await?;
    for (name, policy) in [("high", "PreemptLowerPriority"), ("meek", "Never")] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
            "value": 1000, "preemptionPolicy": policy,
        });
        stage.kubectl.apply(&class).await?;
    }
    let classed = |name: &str, class: &str| {
        let mut pod = stage.pod(name, 2, false);
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    let mut low = stage.run(stage.pod("low", 2, false)).await?;
    stage.shared.wait_lines("log", 1).await?;
    let mut polite = stage.create(classed("polite", "meek")).await?;
    stage.told("polite", "FailedScheduling", "Insufficient cpu").await?;
    polite.until("it waits", |pod| condition(pod, "PodScheduled").is_some_and(|it| it.status == "False")).await?;
    stage.pods().delete("polite", &DeleteParams::default()).await?;
    polite.gone(SOON).await?;
    assert_eq!(stage.pods().get("low").await?.metadata.deletion_timestamp, None, "nobody was asked to leave");

    stage.hold("low")?;
    let mut high = stage.create(classed("first", "high")).await?;
    stage.shared.wait_lines("log", 2).await?;
    let nominated = |pod: &Pod| pod.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    high.until("nominated", |pod| nominated(pod).as_deref() == Some(stage.instance.node_name())).await?;
    low.until("leaving", |pod| pod.metadata.deletion_timestamp.is_some()).await?;
    let leaving = low.last.as_ref().unwrap();
    assert_eq!(leaving.metadata.deletion_grace_period_seconds, Some(600), "it has all its grace");
    let target = condition(leaving, "DisruptionTarget").context("it was told why")?;
    assert_eq!((&*target.status, target.reason.as_deref()), ("True", Some("PreemptionByScheduler")));
    let words = "default-scheduler: preempting to accommodate a higher priority pod";
    assert_eq!(target.message.as_deref(), Some(words));
    let uid = high.last.as_ref().unwrap().metadata.uid.clone().unwrap();
    stage.told("low", "Preempted", &format!("Preempted by pod {uid} on node {}", stage.instance.node_name())).await?;
    stage.shared.open_gate().await?;
    let (_, last) = low.gone(SOON).await?;
    ensure!(condition(&last, "DisruptionTarget").is_some(), "it still says why: {:?}", last.status);
    high.ready().await?;
    assert_eq!(nominated(high.last.as_ref().unwrap()), None, "it is there");
    assert_eq!(stage.shared.wait_lines("log", 3).await?, ["low up", "low TERM", "first up"]);
    complaints::ensure_none(&stage.instance, &[])
}
