//! Images from a real registry: a pod that pulls its own, the words people are told, and pulls that end too soon.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../../crates/runtime/tests/containers/registry_support/proxy.rs"]
mod proxy;
#[path = "../../../../crates/runtime/tests/containers/registry_support/registry.rs"]
mod registry;

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::complaints::Expected;
use e2e::pace::Pace;
use e2e::pods::{PodWatch, SOON, busybox, waits_for};
use e2e::{Instance, Kubectl, Shared, complaints};
use k8s_openapi::api::core::v1::Pod;
use proxy::{Fate, Proxy};
use registry::{Options, PASSWORD, Registry, USER};
use serde_json::{Value, json};

const FOREVER: &str = "trap 'exit 0' TERM; sleep 1000 & wait";
/// How long the end of a pod may take that has nothing to wait for.
const AT_ONCE: Duration = Duration::from_secs(2);

fn pod(name: &str, image: &str, shared: &Shared) -> Value {
    let mut pod = busybox(name, 30, FOREVER, shared);
    pod["spec"]["containers"][0]["image"] = image.into();
    pod
}

fn waiting_message(pod: &Pod) -> String {
    let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()?.first()).unwrap();
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.and_then(|waiting| waiting.message.clone()).unwrap_or_default()
}

async fn told(kubectl: &Kubectl, pod: &str) -> Result<String> {
    let selector = format!("involvedObject.name={pod}");
    let columns = "custom-columns=REASON:.reason,MESSAGE:.message";
    kubectl.run(&["get", "events", "--field-selector", &selector, "-o", columns]).await
}

/// Events are told off the path of everything else, so they may come a moment later.
async fn is_told(kubectl: &Kubectl, pod: &str, words: &[&str]) -> Result<String> {
    let begun = Instant::now();
    loop {
        let story = told(kubectl, pod).await?;
        let missing: Vec<_> = words.iter().filter(|word| !story.contains(**word)).collect();
        if missing.is_empty() {
            return Ok(story);
        }
        ensure!(begun.elapsed() < SOON, "{missing:?} is missing in:\n{story}");
    }
}

/// The loaded busybox is the same image as the one in the registry; without it, it must travel.
async fn forget_busybox(instance: &Instance) -> Result<()> {
    let forgotten = instance.adieu(&["image", "rm", "busybox"]).output().await?;
    ensure!(forgotten.status.success(), "{}", String::from_utf8_lossy(&forgotten.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_pulls_its_image_with_its_secret() -> Result<()> {
    let registry = Registry::start_with(Options { htpasswd: true, ..Options::default() });
    registry.push_image("busybox", "team/busybox:1");
    let image = registry.name("team/busybox:1");
    let instance = Instance::start().await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    forget_busybox(&instance).await?;

    // Without a secret: the error, then the back-off, each with its words.
    let mut watch = PodWatch::on(&client, "stranger").await?;
    kubectl.apply(&pod("stranger", &image, &shared)).await?;
    watch.until("ErrImagePull", |pod| waits_for(pod, "app") == Some("ErrImagePull")).await?;
    let denied = "pull access denied, repository does not exist or may require authorization";
    ensure!(waiting_message(watch.last.as_ref().unwrap()).contains(denied), "{:?}", watch.last);
    watch.until("ImagePullBackOff", |pod| waits_for(pod, "app") == Some("ImagePullBackOff")).await?;
    let message = waiting_message(watch.last.as_ref().unwrap());
    ensure!(message.starts_with(&format!("Back-off pulling image \"{image}\": ErrImagePull: ")), "{message}");
    let failed = format!("Failed to pull image \"{image}\": ");
    let back_off = format!("Back-off pulling image \"{image}\"");
    is_told(&kubectl, "stranger", &[&failed, denied, "Error: ErrImagePull", &back_off, "Error: ImagePullBackOff"])
        .await?;

    // With one.
    let server = format!("--docker-server=127.0.0.1:{}", registry.port);
    let (user, password) = (format!("--docker-username={USER}"), format!("--docker-password={PASSWORD}"));
    kubectl.run(&["create", "secret", "docker-registry", "key", &server, &user, &password]).await?;
    let mut member = pod("member", &image, &shared);
    member["spec"]["imagePullSecrets"] = json!([{ "name": "key" }, { "name": "lost" }]);
    let mut watch = PodWatch::on(&client, "member").await?;
    kubectl.apply(&member).await?;
    watch.ready().await?;
    let status = watch.last.as_ref().unwrap().status.clone().unwrap().container_statuses.unwrap().remove(0);
    let pinned = format!("127.0.0.1:{}/team/busybox@sha256:", registry.port);
    ensure!(status.image_id.starts_with(&pinned), "{}", status.image_id);
    let (pulling, pulled) =
        (format!("Pulling image \"{image}\""), format!("Successfully pulled image \"{image}\" in "));
    let story = is_told(
        &kubectl,
        "member",
        &[
            &pulling,
            &pulled,
            " including waiting). Image size: ",
            " bytes.",
            "Unable to retrieve some image pull secrets (lost)",
        ],
    )
    .await?;
    ensure!(!story.contains(PASSWORD), "{story}");

    // The service account's secret is the pod's too; the image is here and the same secret opens it.
    kubectl.run(&["create", "serviceaccount", "puller"]).await?;
    kubectl.run(&["patch", "serviceaccount", "puller", "-p", r#"{"imagePullSecrets":[{"name":"key"}]}"#]).await?;
    let mut second = pod("second", &image, &shared);
    second["spec"]["serviceAccountName"] = "puller".into();
    let mut watch = PodWatch::on(&client, "second").await?;
    kubectl.apply(&second).await?;
    watch.ready().await?;
    is_told(&kubectl, "second", &[&format!("Container image \"{image}\" already present on machine")]).await?;
    // Always asks the registry, which has nothing newer.
    let mut third = second.clone();
    third["metadata"]["name"] = "third".into();
    third["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    let mut watch = PodWatch::on(&client, "third").await?;
    kubectl.apply(&third).await?;
    watch.ready().await?;
    is_told(&kubectl, "third", &[&pulling, &pulled]).await?;

    // An image that is here is not there for those who could not have it, and Never means never.
    let mut never = pod("never", &image, &shared);
    never["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
    let mut watch = PodWatch::on(&client, "never").await?;
    kubectl.apply(&never).await?;
    watch.until("ErrImageNeverPull", |pod| waits_for(pod, "app") == Some("ErrImageNeverPull")).await?;
    let absent = format!("Container image \"{image}\" is not present with pull policy of Never");
    assert_eq!(waiting_message(watch.last.as_ref().unwrap()), absent);
    is_told(&kubectl, "never", &["ErrImageNeverPull", &absent, "Error: ErrImageNeverPull"]).await?;
    let mut watch = PodWatch::on(&client, "nameless").await?;
    kubectl.apply(&pod("nameless", "Not/A/Name", &shared)).await?;
    watch.until("InvalidImageName", |pod| waits_for(pod, "app") == Some("InvalidImageName")).await?;
    is_told(
        &kubectl,
        "nameless",
        &["InspectFailed", "Failed to apply default image tag \"Not/A/Name\": couldn't parse image name"],
    )
    .await?;

    let listed = String::from_utf8(instance.adieu(&["image", "ls"]).output().await?.stdout)?;
    ensure!(listed.contains(&image), "{listed}");
    let shown = instance.adieu(&["image", "inspect", &image, "-o", "json"]).output().await?.stdout;
    let shown: Value = serde_json::from_slice(&shown)?;
    ensure!(shown["usedBy"].as_array().is_some_and(|users| users.len() == 3), "{shown}");
    let refused = instance.adieu(&["image", "rm", &image]).output().await?;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        !refused.status.success() && why.contains("in use by pod default/member (container app), pod default/second"),
        "{why}"
    );
    kubectl.run(&["delete", "pod", "--all", "--grace-period=1"]).await?;
    let removed = instance.adieu(&["image", "rm", &image]).output().await?;
    let said = String::from_utf8([removed.stdout, removed.stderr].concat())?;
    ensure!(removed.status.success() && said.starts_with(&format!("removed {image}\n")), "{said}");
    complaints::ensure_none(&instance, &[])
}

/// [NT-59] A delete in the middle of a pull ends it at once and starts nothing; a crash there loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_or_a_crash_during_a_pull_is_survived() -> Result<()> {
    let registry = Registry::start();
    registry.push_image("busybox", "busybox:1");
    let mut instance = Instance::start().await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    let (downloads, ingest) = (instance.dir().join("images/downloads"), instance.dir().join("images/ingest"));
    let entries = |dir: &std::path::Path| std::fs::read_dir(dir).map_or(0, Iterator::count);

    forget_busybox(&instance).await?;
    let slow = Proxy::start(registry.port, |_| Fate::HeldAfter(300_000)).await;
    let image = format!("127.0.0.1:{}/busybox:1", slow.port());
    let pace = Pace::start()?;
    let mut watch = PodWatch::on(&client, "early").await?;
    kubectl.apply(&pod("early", &image, &shared)).await?;
    slow.holds().await;
    kubectl.run(&["delete", "pod", "early", "--wait=false"]).await?;
    // The request is older than this, however long kubectl took to make it.
    let asked = Instant::now();
    let (gone, last) = watch.gone(SOON).await?;
    let took = gone.saturating_duration_since(asked);
    ensure!(took <= AT_ONCE + pace.forgives(), "gone after {took:?}");
    let status = last.status.unwrap().container_statuses.unwrap().remove(0);
    ensure!(status.container_id.is_none() && status.state.is_some_and(|state| state.running.is_none()), "it never ran");
    let story = is_told(&kubectl, "early", &["Pulling image"]).await?;
    ensure!(!story.contains("Created") && !story.contains("Started") && !story.contains("Failed"), "{story}");

    // A crash in the middle of another, which went on where the first one ended.
    let slow = Proxy::start(registry.port, |_| Fate::HeldAfter(300_000)).await;
    let image = format!("127.0.0.1:{}/busybox:1", slow.port());
    kubectl.apply(&pod("late", &image, &shared)).await?;
    slow.holds().await;
    instance.kill_9().await?;
    slow.go_on();
    instance.up().await?;
    let client = instance.client().await?;
    PodWatch::on(&client, "late").await?.ready().await?;
    ensure!(entries(&downloads) == 0, "what was begun is used up");
    kubectl.run(&["delete", "pod", "late", "--grace-period=1"]).await?;

    // The command line is killed in the same place, and goes on too.
    ensure!(instance.adieu(&["image", "rm", &image]).output().await?.status.success());
    let slow = Proxy::start(registry.port, |_| Fate::HeldAfter(300_000)).await;
    let name = format!("127.0.0.1:{}/busybox:1", slow.port());
    let mut pull = instance.adieu(&["image", "pull", &name]).stderr(Stdio::null()).spawn()?;
    slow.holds().await;
    pull.start_kill()?;
    pull.wait().await?;
    ensure!(entries(&ingest) > 0 && entries(&downloads) == 1, "the crash was in the middle of it");
    slow.go_on();
    let output = instance.adieu(&["image", "pull", &name]).output().await?;
    let (said, steps) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.success() && said.starts_with(&format!("pulled {name} (")), "{said}{steps}");
    ensure!(steps.contains("done ("), "{steps}");
    ensure!(entries(&ingest) == 0 && entries(&downloads) == 0, "nothing half-done stays");
    let output = instance.adieu(&["image", "pull", &name]).output().await?;
    let said = String::from_utf8(output.stdout).context("text")?;
    ensure!(said.starts_with(&format!("{name} is up to date")), "{said}");
    complaints::ensure_none(&instance, complaints::AFTER_A_CRASH)
}

/// A shim that dies takes the starts with it that were under way in its sandbox, however far they were; nobody is started
/// twice, and nobody is hurried.
#[tokio::test(flavor = "multi_thread")]
async fn container_start_never_outlives_its_sandbox() -> Result<()> {
    const KILLED: Expected = Expected { text: "the pod's shim is gone; ending the pod", because: "it was killed" };
    let registry = Registry::start();
    registry.push_image("busybox", "busybox:1");
    let instance = Instance::start().await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    let hold = Arc::new(AtomicBool::new(false));
    let held = hold.clone();
    let fate = move |_| if held.load(Ordering::SeqCst) { Fate::HeldAfter(0) } else { Fate::Passes };
    let slow = Proxy::start(registry.port, fate).await;
    let mut manifest = busybox("shaken", 1, "echo app >> /shared/log; sleep 1000", &shared);
    let mut web = manifest["spec"]["containers"][0].clone();
    web["name"] = "web".into();
    web["image"] = format!("127.0.0.1:{}/busybox:1", slow.port()).into();
    // Every run asks the registry whether it is still the same.
    web["imagePullPolicy"] = "Always".into();
    web["command"] = json!(["sh", "-c", "echo web >> /shared/log; read word < /shared/gate"]);
    manifest["spec"]["containers"].as_array_mut().unwrap().push(web);
    let mut watch = PodWatch::on(&client, "shaken").await?;
    kubectl.apply(&manifest).await?;
    watch.ready().await?;
    shared.wait_lines("log", 2).await?;

    hold.store(true, Ordering::SeqCst);
    shared.open_gate().await?;
    slow.holds().await;
    let died = Instant::now();
    instance.kill_shim()?;
    tokio::time::timeout(SOON, slow.is_left()).await.context("the start goes on though its sandbox is gone")?;
    slow.go_on();
    let mut said = shared.wait_lines("log", 4).await?;
    ensure!(died.elapsed() >= Duration::from_secs(10), "started again after {:?}", died.elapsed());
    watch.ready().await?;
    said.sort();
    assert_eq!(said, ["app", "app", "web", "web"]);
    is_told(&kubectl, "shaken", &["SandboxChanged"]).await?;
    kubectl.run(&["delete", "pod", "shaken"]).await?;
    complaints::ensure_none(&instance, &[KILLED])
}

/// The names of the images that are here.
async fn listed(instance: &Instance) -> Result<String> {
    Ok(String::from_utf8(instance.adieu(&["image", "ls"]).output().await?.stdout)?)
}

/// Fills the disk until so many of its percents are used.
fn fill(instance: &Instance, percent: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(instance.dir())?;
    let wanted = disk.f_blocks * percent / 100;
    let used = disk.f_blocks - disk.f_bavail;
    ensure!(used < wanted, "{used} of {} blocks are used already", disk.f_blocks);
    let bytes = usize::try_from((wanted - used) * disk.f_frsize)?;
    std::fs::write(instance.dir().join(format!("ballast-{percent}")), vec![0; bytes])?;
    Ok(())
}

/// Above the high mark an image that nobody uses goes; one that a pod uses, and one that was loaded, stay. Short of disk, what
/// nobody uses goes before any pod does.
#[tokio::test(flavor = "multi_thread")]
async fn unused_images_are_removed_under_disk_pressure() -> Result<()> {
    const OPTIONS: &[&str] = &[
        "--image-gc-high-threshold=70",
        "--image-gc-low-threshold=69",
        "--minimum-image-ttl=0",
        "--eviction-hard",
        "nodefs.available<10%",
    ];
    let registry = Registry::start();
    registry.push_image("nginx", "web:1");
    registry.push_image("busybox", "box:1");
    let (web, boxed) = (registry.name("web:1"), registry.name("box:1"));
    let instance = Instance::start_on_small_disk(128, OPTIONS).await?;
    let (client, kubectl, shared) = (instance.client().await?, Kubectl::newest(&instance)?, Shared::new()?);
    // Loaded, it is the same image as the one in the registry, and stays as long as it has that name.
    let pull_web = async || {
        let pulled = instance.adieu(&["image", "pull", &web]).output().await?;
        ensure!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
        anyhow::Ok(())
    };
    pull_web().await?;
    forget_busybox(&instance).await?;
    let mut watch = PodWatch::on(&client, "stays").await?;
    kubectl.apply(&pod("stays", &boxed, &shared)).await?;
    watch.ready().await?;

    // A container that is given its image is the moment to look.
    let look = async |name: &str| -> Result<()> {
        let mut watch = PodWatch::on(&client, name).await?;
        kubectl.apply(&pod(name, &boxed, &shared)).await?;
        watch.ready().await?;
        Ok(())
    };
    let gone = async |image: &str| {
        let going = async {
            while listed(&instance).await?.contains(image) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(SOON, going).await.with_context(|| format!("{image} stays"))?
    };
    fill(&instance, 75)?;
    let mut told =
        kubectl.follow(&["get", "events", "-w", "--no-headers", "--field-selector=reason=FreeDiskSpaceFailed"])?;
    look("first").await?;
    let event = told.next().await?;
    ensure!(event.contains("Failed to garbage collect required amount of images. Attempted to free "), "{event}");
    let images = listed(&instance).await?;
    ensure!(images.contains(&web) && images.contains(&boxed), "loaded, and used: {images}");
    let forgotten = instance.adieu(&["image", "rm", "nginx"]).output().await?;
    ensure!(forgotten.status.success(), "{}", String::from_utf8_lossy(&forgotten.stderr));
    look("second").await?;
    gone(&web).await?;

    // No container is given an image here: it is the pressure that looks.
    pull_web().await?;
    fill(&instance, 91)?;
    gone(&web).await?;
    let table = kubectl.run(&["get", "pods", "--no-headers"]).await?;
    ensure!(table.lines().count() == 3 && table.lines().all(|line| line.contains("Running")), "{table}");
    ensure!(listed(&instance).await?.contains(&boxed));
    complaints::ensure_none(&instance, &[])
}
