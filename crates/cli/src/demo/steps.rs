//! The story of the demo, step by step: everything that loses requests elsewhere, under load.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use tokio::time::{Instant, sleep, timeout};

use super::manifests::{self, CLIENT, REPLICAS, STUBBORN, WEB};
use super::platform::Platform;
use super::screen::{Screen, number};
use super::timeline::{self, Moment, Story};
use crate::load::Counts;

/// How long a step may take.
const STEP: Duration = Duration::from_secs(30);
/// How often to look.
const LOOK: Duration = Duration::from_millis(20);
/// How long requests are sent between the steps.
const CALM: Duration = Duration::from_secs(2);
/// The grace of the pod that ignores TERM.
const STUBBORN_GRACE: u32 = 3;
/// How much of a download must be left when its pod is deleted.
const LEFT: Duration = Duration::from_millis(2200);
/// How long the platform is away.
const AWAY: Duration = Duration::from_secs(1);

/// What came of it.
pub(super) struct Outcome {
    /// Every request.
    pub counts: Counts,
    /// What happened to whom, for people.
    pub stories: Vec<String>,
}

/// Everything that the steps need.
pub(super) struct Steps<'a, W> {
    /// Where it happens.
    pub platform: &'a mut Platform,
    /// Who watches.
    pub screen: &'a Screen<W>,
    /// The folder for the counts of the client.
    pub counts: PathBuf,
    /// Tells the time on the wall.
    pub now: fn() -> Timestamp,
}

impl<W: Write> Steps<'_, W> {
    /// Everything, from nothing to the last count.
    pub(super) async fn all(mut self) -> Result<Outcome> {
        let kube = self.begin().await?;
        self.load(&kube).await?;
        let rolled = self.roll_out(&kube).await?;
        let stubborn = self.delete_stubborn(&kube).await?;
        let (kube, interrupted) = self.kill_mid_drain(&kube).await?;
        self.screen.begin("a last look");
        sleep(CALM).await;
        let counts = self.stop_load(&kube).await?;
        let events = Api::<Event>::default_namespaced(kube).list(&ListParams::default()).await?.items;
        let stories = [rolled, stubborn, interrupted].map(|story| story.show(&events)).into();
        Ok(Outcome { counts, stories })
    }

    fn note(&self, what: &str) -> Moment {
        Moment { at: (self.now)(), what: what.to_owned() }
    }

    fn read_counts(&self) -> Counts {
        Counts::read(&self.counts).unwrap_or_default()
    }

    async fn begin(&mut self) -> Result<kube::Client> {
        self.screen.begin("making an image of this program");
        let size = self.platform.load_image().await?;
        self.screen.done(format!("image of this program made ({} MB); nothing is pulled", size / 1_000_000));
        self.screen.begin("starting a throwaway platform");
        let since = Instant::now();
        self.platform.start().await?;
        let took = since.elapsed().as_secs_f64();
        self.screen.done(format!("platform ready after {took:.1} s: node {}", self.platform.node()));
        let kube = self.platform.connect().await?.client;
        self.screen.begin("starting 4 web servers behind a Service");
        let since = Instant::now();
        create::<Service>(&kube, manifests::service()).await?;
        create::<Deployment>(&kube, manifests::deployment()).await?;
        create::<Pod>(&kube, manifests::stubborn()).await?;
        until("the web servers are ready", || all_ready(&kube)).await?;
        until("the stubborn pod is ready", || async {
            Ok(pods(&kube).get(STUBBORN).await.is_ok_and(|pod| is_ready(&pod)).then_some(()))
        })
        .await?;
        let took = since.elapsed().as_secs_f64();
        self.screen
            .done(format!("{REPLICAS} web servers ready behind a Service after {took:.1} s; no hooks, no annotations"));
        Ok(kube)
    }

    async fn load(&mut self, kube: &kube::Client) -> Result<()> {
        self.screen.begin("sending requests from a pod");
        let service = Api::<Service>::default_namespaced(kube.clone()).get(WEB).await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip).context("the Service has no address")?;
        let address = SocketAddr::new(address.parse().context("the Service has no address")?, 80);
        create::<Pod>(kube, manifests::client(address, &self.counts)).await?;
        until("the first answers", || async { Ok((self.read_counts().answered() > 0).then_some(())) }).await?;
        let before = self.read_counts();
        sleep(CALM).await;
        let after = self.read_counts();
        let (asked, ms) = (after.asked() - before.asked(), (after.now_ms - before.now_ms).max(1));
        self.screen.done(format!(
            "{} requests per second: new and kept connections, and downloads",
            number(asked * 1000 / ms)
        ));
        Ok(())
    }

    async fn roll_out(&mut self, kube: &kube::Client) -> Result<Story> {
        self.screen.begin("replacing every web server");
        let before: Vec<String> = web_pods(kube).await?.into_iter().filter_map(|pod| pod.metadata.name).collect();
        let since = Instant::now();
        let deployments = Api::<Deployment>::default_namespaced(kube.clone());
        deployments.patch(WEB, &PatchParams::default(), &Patch::Merge(manifests::next_version())).await?;
        until("every web server is replaced", || async {
            let is_done = is_rolled_out(&deployments.get(WEB).await?);
            let now = web_pods(kube).await?;
            let is_old = |pod: &Pod| pod.metadata.name.as_ref().is_some_and(|name| before.contains(name));
            Ok((is_done && !now.iter().any(is_old)).then_some(()))
        })
        .await?;
        let took = since.elapsed().as_secs_f64();
        self.screen.done(format!("all {REPLICAS} web servers replaced in {took:.1} s"));
        let pod = before.into_iter().next().context("there were web servers")?;
        Ok(Story { pod, title: "replaced in the rollout".to_owned(), noted: Vec::new() })
    }

    async fn delete_stubborn(&mut self, kube: &kube::Client) -> Result<Story> {
        self.screen.begin(format!("deleting a pod that ignores TERM, with {STUBBORN_GRACE} s of grace"));
        let since = Instant::now();
        let asked = self.note("asked to leave");
        pods(kube).delete(STUBBORN, &DeleteParams::default().grace_period(STUBBORN_GRACE)).await?;
        until("the stubborn pod is gone", || is_gone(kube, STUBBORN)).await?;
        let gone = self.note("gone");
        let took = since.elapsed().as_secs_f64();
        self.screen.done(format!(
            "a pod that ignores TERM, deleted with {STUBBORN_GRACE} s of grace, is gone after {took:.1} s"
        ));
        let title = format!("ignores TERM; deleted with {STUBBORN_GRACE} s of grace");
        Ok(Story { pod: STUBBORN.to_owned(), title, noted: vec![asked, gone] })
    }

    /// Deletes a web server in the midst of a download, kills the platform, and starts it again. Answers a client of the new one.
    async fn kill_mid_drain(&mut self, kube: &kube::Client) -> Result<(kube::Client, Story)> {
        self.screen.begin("looking for a web server in the midst of a download");
        let pod = until("a download", || async { Ok(self.read_counts().busiest(LEFT).map(str::to_owned)) }).await?;
        self.screen.begin(format!("deleting {pod}, and killing Adieu (SIGKILL) while the pod leaves"));
        let mut noted = vec![self.note("asked to leave")];
        pods(kube).delete(&pod, &DeleteParams::default()).await?;
        let events = Api::<Event>::default_namespaced(kube.clone());
        let of_pod = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        until("the pod is told to stop", || async {
            Ok((timeline::count(&events.list(&of_pod).await?.items, &pod, "StopSignalSent") > 0).then_some(()))
        })
        .await?;
        let before = self.read_counts();
        noted.push(self.note("Adieu is killed: kill -9"));
        self.platform.kill_9().await?;
        sleep(AWAY).await;
        let meanwhile = self.read_counts().answered() - before.answered();
        noted.push(self.note("Adieu is started again"));
        let since = Instant::now();
        self.platform.start().await?;
        let took = since.elapsed().as_secs_f64();
        let kube = self.platform.connect().await?.client;
        until("the pod is gone", || is_gone(&kube, &pod)).await?;
        noted.push(self.note("gone"));
        until("its successor is ready", || all_ready(&kube)).await?;
        let events = Api::<Event>::default_namespaced(kube.clone());
        let told = timeline::count(&events.list(&of_pod).await?.items, &pod, "StopSignalSent");
        ensure!(told == 1, "{pod} was told to stop {told} times");
        let answered = number(meanwhile);
        self.screen.done(format!(
            "Adieu killed mid-drain; {answered} answers without it; back in {took:.1} s, no signal repeated"
        ));
        let title = "deleted in the midst of a download; Adieu was killed meanwhile".to_owned();
        Ok((kube, Story { pod, title, noted }))
    }

    /// Lets the client finish, and answers its last counts.
    async fn stop_load(&mut self, kube: &kube::Client) -> Result<Counts> {
        self.screen.begin("waiting for the last answers");
        pods(kube).delete(CLIENT, &DeleteParams::default()).await?;
        let counts =
            until("the last answers", || async { Ok(Some(self.read_counts()).filter(|counts| counts.is_final)) });
        let counts = counts.await?;
        let slowest = counts.slowest_ms;
        self.screen.done(format!("every request has its fate; the slowest answer took {slowest} ms to begin"));
        Ok(counts)
    }
}

/// Waits until there is something, and says what did not come.
async fn until<T, F: Future<Output = Result<Option<T>>>>(what: &str, mut look: impl FnMut() -> F) -> Result<T> {
    let looking = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            sleep(LOOK).await;
        }
    };
    timeout(STEP, looking).await.with_context(|| format!("{what}: not within {} s", STEP.as_secs()))?
}

async fn create<K>(kube: &kube::Client, manifest: serde_json::Value) -> Result<()>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + serde::Serialize
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let api = Api::<K>::default_namespaced(kube.clone());
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let object: K = serde_json::from_value(manifest)?;
    api.create(&PostParams::default(), &object).await.with_context(|| format!("cannot create {name}"))?;
    Ok(())
}

fn pods(kube: &kube::Client) -> Api<Pod> {
    Api::default_namespaced(kube.clone())
}

async fn web_pods(kube: &kube::Client) -> Result<Vec<Pod>> {
    Ok(pods(kube).list(&ListParams::default().labels("app=web")).await?.items)
}

async fn all_ready(kube: &kube::Client) -> Result<Option<()>> {
    let pods = web_pods(kube).await?;
    let all = i32::try_from(pods.len()).is_ok_and(|count| count == REPLICAS) && pods.iter().all(is_ready);
    Ok(all.then_some(()))
}

async fn is_gone(kube: &kube::Client, name: &str) -> Result<Option<()>> {
    Ok(pods(kube).get_opt(name).await?.is_none().then_some(()))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}

fn is_rolled_out(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let is_all = |count: Option<i32>| count == Some(REPLICAS);
    status.observed_generation >= deployment.metadata.generation
        && is_all(status.updated_replicas)
        && is_all(status.available_replicas)
        && is_all(status.replicas)
}
