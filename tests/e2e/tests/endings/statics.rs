//! Static pods: files in `manifests/`, their mirrors in the API, and how those of one name follow each other.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use e2e::complaints::{AFTER_A_CRASH, Expected};
use e2e::pace::Pace;
use e2e::pods::{PodWatch, SOON, busybox, is_ready, phase};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::{Value, json};

/// Says which version runs, and on TERM waits to be let go while there is a file called `hold`.
fn script(version: &str) -> String {
    format!(
        "trap 'echo {version} TERM >> /shared/log; [ ! -e /shared/hold ] || read word < /shared/gate; exit 0' TERM; \
         echo {version} up >> /shared/log; sleep 1000 & wait"
    )
}

struct Stage {
    instance: Instance,
    shared: Shared,
    /// What the mirror is called.
    name: String,
}

impl Stage {
    async fn set() -> Result<Self> {
        let instance = Instance::start().await?;
        let name = format!("web-{}", instance.node_name());
        Ok(Self { instance, shared: Shared::new()?, name })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.instance.dir().join("manifests").join(name)
    }

    fn manifest(&self, version: &str) -> Value {
        busybox("web", 60, &script(version), &self.shared)
    }

    /// From now on a pod that is asked to leave waits until it is let go.
    fn hold(&self) -> Result<()> {
        Ok(fs::write(self.shared.path().join("hold"), "")?)
    }

    /// Lets the pod go that waits, and those that come after it.
    async fn let_go(&self) -> Result<()> {
        fs::remove_file(self.shared.path().join("hold"))?;
        self.shared.open_gate().await
    }

    /// Puts a manifest in place as careful programs do: written elsewhere, then moved.
    fn put(&self, manifest: &Value) -> Result<()> {
        fs::write(self.file(".web.yaml"), manifest.to_string())?;
        fs::rename(self.file(".web.yaml"), self.file("web.yaml"))?;
        Ok(())
    }

    async fn mirror(&self) -> Result<Pod> {
        Ok(Api::<Pod>::namespaced(self.instance.client().await?, "default").get(&self.name).await?)
    }

    async fn watch(&self) -> Result<PodWatch> {
        PodWatch::on(&self.instance.client().await?, &self.name).await
    }

    /// The manifest's pod runs, and the API shows it.
    async fn runs(&self, version: &str, lines: usize) -> Result<Pod> {
        let mirror = self.watch().await?.until_one(version, |pod| is_ready(pod) && shows(pod, version)).await?;
        let said = self.shared.wait_lines("log", lines).await?;
        assert_eq!(said.last().unwrap(), &format!("{version} up"));
        Ok(mirror)
    }
}

fn shows(pod: &Pod, version: &str) -> bool {
    let command = pod.spec.as_ref().unwrap().containers[0].command.as_ref().unwrap();
    command[2].contains(&format!("echo {version} up"))
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Whoever deletes a mirror and waits until it is gone sees that it is, though it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn deleted_mirror_pod_is_seen_gone_before_it_returns() -> Result<()> {
    let instance = Instance::start().await?;
    let client = instance.client().await?;
    let names: Vec<String> = (0..5).map(|number| format!("static-{number}-{}", instance.node_name())).collect();
    for number in 0..5 {
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("static-{number}") },
            "spec": { "containers": [{ "name": "app", "image": "busybox", "command": ["sleep", "1000"] }] },
        });
        fs::write(instance.dir().join(format!("manifests/{number}.json")), manifest.to_string())?;
    }
    let there = async |name: &str, old: Option<&str>| {
        let mut watch = PodWatch::on(&client, name).await?;
        watch.until_one("its mirror", |pod| is_ready(pod) && pod.metadata.uid.as_deref() != old).await
    };
    let mut mirrors = Vec::new();
    for name in &names {
        mirrors.push(there(name, None).await?);
    }
    for kubectl in Kubectl::all(&instance)? {
        for name in &names {
            // As people type it: it waits, and would wait for ever.
            kubectl.run(&["delete", "pod", name, "--timeout=60s"]).await?;
        }
        for (name, mirror) in names.iter().zip(&mut mirrors) {
            *mirror = there(name, mirror.metadata.uid.as_deref()).await?;
        }
    }
    let restarts = |pod: &Pod| pod.status.as_ref()?.container_statuses.as_ref()?.first().map(|app| app.restart_count);
    assert!(mirrors.iter().all(|mirror| restarts(mirror) == Some(0)), "the pods did not notice");
    complaints::ensure_none(&instance, &[])
}

/// [NT-129] [NT-133] [NT-134] The old pod leaves with its grace and its mirror stays as it was; of many edits meanwhile the
/// last one runs, when the old pod is gone, and the mirror shows it.
#[tokio::test(flavor = "multi_thread")]
async fn an_edited_manifest_lets_its_pod_leave_first() -> Result<()> {
    let stage = Stage::set().await?;
    stage.put(&stage.manifest("v1"))?;
    let first = stage.runs("v1", 1).await?;
    let hash = annotation(&first, "kubernetes.io/config.hash").unwrap();
    assert_eq!(annotation(&first, "kubernetes.io/config.mirror"), Some(hash));
    assert_eq!(annotation(&first, "kubernetes.io/config.source"), Some("file"));
    let owner = &first.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.name), ("Node", stage.instance.node_name()));

    stage.hold()?;
    for edit in 2..=100 {
        stage.put(&stage.manifest(&format!("v{edit}")))?;
    }
    let said = stage.shared.wait_lines("log", 2).await?;
    assert_eq!(said, ["v1 up", "v1 TERM"]);
    let leaving = stage.mirror().await?;
    assert_eq!((&leaving.metadata.uid, phase(&leaving)), (&first.metadata.uid, Some("Running")));
    ensure!(shows(&leaving, "v1"), "the mirror shows who is there");
    // Whoever has read this has read the last edit.
    let mut other = stage.manifest("other");
    other["metadata"]["name"] = "other".into();
    let script = script("other").replace("/shared/log", "/shared/other");
    other["spec"]["containers"][0]["command"][2] = script.into();
    stage.instance.unseen(|| Ok(fs::write(stage.file("other.yaml"), other.to_string())?))?;
    stage.shared.wait_lines("other", 1).await?;
    stage.let_go().await?;
    let last = stage.runs("v100", 3).await?;
    assert_eq!(stage.shared.lines("log"), ["v1 up", "v1 TERM", "v100 up"], "those in between never ran");
    assert_ne!(last.metadata.uid, first.metadata.uid);
    assert_ne!(annotation(&last, "kubernetes.io/config.hash"), Some(hash));
    complaints::ensure_none(&stage.instance, &[])
}

/// [NT-139] The next pod starts as soon as its predecessor is gone: of several edits the best takes a fifth of a second, and what
/// the machine needs besides.
#[tokio::test(flavor = "multi_thread")]
async fn static_pod_successor_starts_as_soon_as_its_predecessor_is_gone() -> Result<()> {
    const EDITS: usize = 5;
    let stage = Stage::set().await?;
    let pace = Pace::start()?;
    let noted = "read t rest < /proc/uptime; echo $t $0 >> /shared/log";
    let manifest = |version: usize| {
        let script = format!("{noted}; trap 'exit 0' TERM; trap '{noted}' EXIT; : v{version}; sleep 1000 & wait");
        busybox("web", 60, &script, &stage.shared)
    };
    stage.put(&manifest(0))?;
    stage.shared.wait_lines("log", 1).await?;
    for edit in 1..=EDITS {
        stage.put(&manifest(edit))?;
        stage.shared.wait_lines("log", 1 + 2 * edit).await?;
    }
    let times: Vec<f64> =
        stage.shared.lines("log").iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    // A beginning, and then each time an end and a beginning.
    let gaps: Vec<f64> = times[1..].chunks(2).map(|pair| pair[1] - pair[0]).collect();
    let best = gaps.iter().copied().fold(f64::INFINITY, f64::min);
    ensure!(best <= 0.2 + pace.forgives().as_secs_f64(), "{gaps:?} s");
    complaints::ensure_none(&stage.instance, &[])
}

/// [NT-130] [NT-137] Whatever is done to the mirror, and to the agent, the pod does not notice.
#[tokio::test(flavor = "multi_thread")]
async fn static_pod_is_untouched_by_changes_to_its_mirror() -> Result<()> {
    let mut stage = Stage::set().await?;
    stage.put(&stage.manifest("v1"))?;
    let mut mirror = stage.runs("v1", 1).await?;
    let kubectl = Kubectl::newest(&stage.instance)?;
    let started_at = ["exec", &stage.name, "--", "cut", "-d", " ", "-f", "22", "/proc/1/stat"];
    let started = kubectl.run(&started_at).await?;
    for how in [&["--wait=false"][..], &["--grace-period=0", "--force"][..]] {
        kubectl.run(&[&["delete", "pod", &stage.name], how].concat()).await?;
        let old = mirror.metadata.uid.clone();
        mirror =
            stage.watch().await?.until_one("another mirror", |pod| pod.metadata.uid != old && is_ready(pod)).await?;
        assert_eq!(mirror.metadata.deletion_timestamp, None);
    }
    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    assert_eq!(kubectl.run(&started_at).await?, started, "it is the same process");
    let after = stage.mirror().await?;
    assert_eq!((&after.metadata.uid, &after.status), (&mirror.metadata.uid, &mirror.status));
    let described = kubectl.run(&["describe", "pod", &stage.name]).await?;
    ensure!(described.contains("Controlled By:") && described.contains("Started"), "{described}");
    assert_eq!(stage.shared.lines("log"), ["v1 up"]);

    // A node that goes down ends its static pods as well, and runs them when it is up again.
    stage.instance.down().await?;
    assert_eq!(stage.shared.lines("log"), ["v1 up", "v1 TERM"]);
    stage.instance.up().await?;
    stage.runs("v1", 3).await?;
    complaints::ensure_none(&stage.instance, AFTER_A_CRASH)
}

/// [NT-38] [NT-131] [NT-132] A manifest that is gone lets its pod leave with its grace, whatever becomes of the agent
/// meanwhile, and also if it went while nobody looked; then the mirror goes. The same manifest brings the pod back.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_manifest_lets_its_pod_leave() -> Result<()> {
    let mut stage = Stage::set().await?;
    stage.put(&stage.manifest("v1"))?;
    let mirror = stage.runs("v1", 1).await?;
    stage.hold()?;
    fs::remove_file(stage.file("web.yaml"))?;
    stage.shared.wait_lines("log", 2).await?;
    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    let mut watch = stage.watch().await?;
    watch.until("the mirror", |pod| pod.metadata.uid == mirror.metadata.uid && phase(pod) == Some("Running")).await?;
    stage.let_go().await?;
    watch.gone(SOON).await?;
    assert_eq!(stage.shared.lines("log"), ["v1 up", "v1 TERM"]);

    stage.put(&stage.manifest("v1"))?;
    stage.runs("v1", 3).await?;
    // Removed while nobody looks: it is asked to leave as soon as somebody does.
    stage.instance.kill_9().await?;
    stage.hold()?;
    fs::remove_file(stage.file("web.yaml"))?;
    stage.instance.up().await?;
    stage.shared.wait_lines("log", 4).await?;
    let mut watch = stage.watch().await?;
    watch.until("the mirror", |pod| phase(pod) == Some("Running")).await?;
    stage.let_go().await?;
    watch.gone(SOON).await?;
    complaints::ensure_none(&stage.instance, AFTER_A_CRASH)
}

/// What cannot be used changes nothing, is told, and is used once it is mended; editors may write as they like.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_manifest_changes_nothing() -> Result<()> {
    const BAD: &[Expected] = &[
        Expected { text: "a manifest cannot be used; nothing changes", because: "this is what is tried" },
        Expected { text: "two manifests have one pod name", because: "this is what is tried" },
    ];
    let mut stage = Stage::set().await?;
    stage.put(&stage.manifest("v1"))?;
    let mirror = stage.runs("v1", 1).await?;
    let kubectl = Kubectl::newest(&stage.instance)?;
    let mut events = kubectl.follow(&["get", "events", "-w", "--no-headers", "--field-selector=type=Warning"])?;
    stage.instance.unseen(|| Ok(fs::write(stage.file("web.yaml"), "kind: Pod\nspec: {containers: [{name: Bad}]}")?))?;
    let told = events.next().await?;
    ensure!(told.contains("InvalidManifest") && told.contains("web.yaml"), "{told}");
    stage.instance.unseen(|| Ok(fs::write(stage.file("twin.yaml"), stage.manifest("v2").to_string())?))?;
    let told = events.next().await?;
    ensure!(told.contains("FailedValidation") && told.contains("duplicate pod name"), "{told}");
    fs::remove_file(stage.file("twin.yaml"))?;
    // A restart finds a bad file, too, and the pod that an earlier version asked for.
    stage.instance.kill_9().await?;
    stage.instance.up().await?;
    assert_eq!(stage.mirror().await?.metadata.uid, mirror.metadata.uid);
    // As vi does it: the old file becomes a backup, a new one is written, the backup goes. It does so within milliseconds, which
    // a busy machine may not leave to us.
    stage.instance.unseen(|| {
        fs::rename(stage.file("web.yaml"), stage.file("web.yaml~"))?;
        fs::write(stage.file("web.yaml"), stage.manifest("v1").to_string())?;
        Ok(fs::remove_file(stage.file("web.yaml~"))?)
    })?;
    // Whatever was read before this one was read.
    let mut other = stage.manifest("v3");
    other["metadata"]["name"] = "other".into();
    stage.instance.unseen(|| Ok(fs::write(stage.file("other.yaml"), other.to_string())?))?;
    let said = stage.shared.wait_lines("log", 2).await?;
    assert_eq!(said, ["v1 up", "v3 up"], "the first one runs as before");
    assert_eq!(stage.mirror().await?.metadata.uid, mirror.metadata.uid);
    let expected: Vec<Expected> = BAD.iter().chain(AFTER_A_CRASH).copied().collect();
    complaints::ensure_none(&stage.instance, &expected)
}

/// A static pod that nobody remembered does not begin anew while its node goes down: nobody would end it.
#[tokio::test(flavor = "multi_thread")]
async fn static_pod_does_not_start_during_a_node_shutdown() -> Result<()> {
    const FORGOTTEN: Expected = Expected { text: "ending an orphan sandbox", because: "its journal was removed" };
    let mut stage = Stage::set().await?;
    stage.put(&stage.manifest("v1"))?;
    stage.runs("v1", 1).await?;
    stage.hold()?;
    stage.instance.kill_9().await?;
    fs::remove_file(stage.instance.journal())?;
    stage.instance.up().await?;
    stage.instance.down().await?;
    // On a slow machine it may have begun anew before; then it was asked to leave as well.
    let said = stage.shared.lines("log");
    let times = |what: &str| said.iter().filter(|line| *line == what).count();
    ensure!(times("v1 TERM") == times("v1 up"), "{said:?}");
    complaints::ensure_none(&stage.instance, &[AFTER_A_CRASH, &[FORGOTTEN]].concat())
}
