//! The course of a drill: look, send requests, make the pods leave, look again.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::evidence::{self, Before};
use super::observations::{Ending, LoadSeen, Observations, Way};
use super::pods::{self, PodTable, uid};
use super::show::count;
use super::source::{Heard, LoadSource};
use super::target::{self, Goal, Target};
use super::{DrillArgs, Surroundings};
use crate::cluster::{Cluster, LocalInstance};
use crate::demo::screen::{Screen, number};
use crate::load::Counts;
use crate::verbs::{Call, RolloutTarget, path_segment};

/// How long the first list of pods may take.
const LISTED: Duration = Duration::from_secs(15);
/// How long the first answers may take.
const ANSWERED: Duration = Duration::from_secs(15);
/// How many requests are answered before anything is done, and how long that goes on at least.
const ANSWERS_FIRST: u64 = 20;
const CALM: Duration = Duration::from_secs(1);
/// How long requests are sent after the last pod has left.
const AFTER: Duration = Duration::from_secs(2);

/// A drill under way. What it has seen is here whatever becomes of it.
pub(super) struct Course<'a, W> {
    /// Where.
    pub cluster: &'a Cluster,
    /// How.
    pub args: &'a DrillArgs,
    /// What.
    pub target: &'a Target,
    /// The instance of this machine that the cluster is, if it is one.
    pub local: Option<LocalInstance>,
    /// The program and the time.
    pub surroundings: Surroundings<'a>,
    /// Who watches.
    pub screen: &'a Screen<W>,
    /// The pods.
    pub table: watch::Sender<PodTable>,
    /// The requests.
    pub source: LoadSource,
    /// What was known before.
    pub before: Before,
    /// Where the requests go.
    pub goal: Option<Goal>,
    /// How many pods were ready at the begin.
    pub ready: usize,
    /// Whether anybody was asked to leave yet.
    pub has_begun: bool,
}

impl<W: Write> Course<'_, W> {
    /// Everything from the first look to the last answer. An error before anybody was asked to leave means that there was no drill.
    pub(super) async fn run(&mut self) -> Result<Ending> {
        let (pods, kept) = self.choose().await?;
        self.prepare(&pods).await?;
        if !self.args.no_load {
            self.send_requests().await?;
        }
        self.has_begun = true;
        self.table.send_modify(|table| table.drilled = pods.iter().map(uid).collect());
        let what = match self.target.way {
            Way::Restart => format!("every pod of {} is replaced", self.target.shown()),
            Way::Kill => format!("{} left and are replaced", count(pods.len(), "pod")),
        };
        let (limit, way) = (self.args.timeout, self.target.way);
        let leaving = async {
            match way {
                Way::Restart => self.restart(pods.len()).await,
                Way::Kill => self.kill(&pods, kept).await,
            }
        };
        let ending = match timeout(limit, leaving).await {
            Ok(Ok(())) => Ending::Done,
            Ok(Err(error)) => Ending::Broken(format!("{error:#}")),
            Err(_) => Ending::TimedOut(what),
        };
        match &ending {
            Ending::TimedOut(what) => self.screen.failed(format!("{what}: not within {} s", limit.as_secs())),
            Ending::Broken(why) => self.screen.failed(why),
            Ending::Done | Ending::Interrupted(_) if self.args.no_load => {}
            Ending::Done | Ending::Interrupted(_) => {
                self.screen.begin("sending requests for another moment");
                sleep(AFTER).await;
            }
        }
        Ok(ending)
    }

    /// The pods that are to leave, and how many are to be ready after each.
    async fn choose(&mut self) -> Result<(Vec<Pod>, usize)> {
        self.screen.begin("looking at the pods");
        let mut seen = self.table.subscribe();
        let listed = timeout(LISTED, seen.wait_for(|table| table.is_listed)).await;
        drop(listed.context("the pods cannot be listed; may you list and watch pods there?")??);
        let table = self.table.borrow();
        let mut all: Vec<&Pod> = table.staying().map(|own| &own.pod).collect();
        all.sort_by_key(|pod| pod.metadata.name.clone());
        let shown = self.target.shown();
        let mut pods: Vec<Pod> = match self.target.resource.kind.as_str() {
            // With it come its siblings, which stay.
            "Pod" => {
                all.iter().filter(|pod| pod.metadata.name.as_deref() == Some(&self.target.name)).copied().collect()
            }
            _ => all.clone(),
        }
        .into_iter()
        .cloned()
        .collect();
        ensure!(!pods.is_empty(), "{shown} has no pods that could leave");
        if let Some(pod) = all.iter().find(|pod| !pods::is_ready(pod)) {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            bail!(
                "{name} is not ready, so it could not be told what the drill did; see why: adieu why pod/{name} -n {}",
                self.cluster.namespace
            );
        }
        if let Some(most) = self.args.pods {
            pods.truncate(most);
        }
        self.ready = all.len();
        let is_owned = pods[0].metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
        let kept = if is_owned { all.len() } else { all.len() - 1 };
        self.screen.done(format!("{shown}: {} ready", count(all.len(), "pod")));
        Ok((pods, kept))
    }

    async fn prepare(&mut self, pods: &[Pod]) -> Result<()> {
        self.before = evidence::before(self.cluster, pods).await;
        if self.args.no_load {
            return Ok(());
        }
        self.goal = Some(match &self.args.url {
            Some(url) => target::of_url(url).await?,
            None => {
                let labels = serde_json::to_value(&pods[0].metadata.labels)?;
                let service = target::service(self.cluster, self.args, &labels).await?;
                let (nodes, is_node) = self.nodes().await;
                target::of_service(&service, self.args, &nodes, is_node)?
            }
        });
        Ok(())
    }

    /// The addresses of the nodes, and whether this machine has one of them. Who may not list nodes does without.
    async fn nodes(&self) -> (Vec<std::net::IpAddr>, bool) {
        let Ok(list) = self.cluster.ask(&Call::get("/api/v1/nodes", "list nodes").query("limit", "50")).await else {
            return (Vec::new(), false);
        };
        let nodes = list.value["items"].as_array().into_iter().flatten();
        let addresses = nodes.flat_map(|node| node["status"]["addresses"].as_array().into_iter().flatten());
        let internal = addresses.filter(|address| address["type"] == "InternalIP");
        let nodes: Vec<std::net::IpAddr> = internal.filter_map(|own| own["address"].as_str()?.parse().ok()).collect();
        let is_node = nodes.iter().any(|node| std::net::UdpSocket::bind((*node, 0)).is_ok());
        (nodes, is_node)
    }

    /// Begins to send requests, and makes sure that they are answered while nothing happens.
    async fn send_requests(&mut self) -> Result<()> {
        let Some(goal) = self.goal.clone() else { return Ok(()) };
        self.screen.begin(format!("sending requests to {}", goal.shown));
        let local = self.local.clone();
        self.source.begin(self.cluster, self.args, &goal, local.as_ref(), self.surroundings).await?;
        let mut heard = self.source.heard();
        let counts = |heard: &Heard| heard.counts.clone().unwrap_or_default();
        let enough = ANSWERS_FIRST.min(u64::from(self.args.rate) * 5);
        let waited = timeout(ANSWERED, heard.wait_for(|heard| counts(heard).asked() >= enough)).await.is_ok();
        sleep(CALM).await;
        let before = counts(&heard.borrow());
        let reasons: Vec<String> = before.lost.iter().map(|(reason, times)| format!("{times} × {reason}")).collect();
        ensure!(
            waited && before.answered() > 0,
            "{} does not answer requests {}: {}",
            goal.shown,
            self.source.from,
            if reasons.is_empty() { "nothing was heard".to_owned() } else { reasons.join(", ") }
        );
        ensure!(
            before.lost() == 0,
            "{} loses requests before anything was done ({}): try a lower --rate, or another --path",
            goal.shown,
            reasons.join(", ")
        );
        let status = before.status.map(|status| format!(" with {status}")).unwrap_or_default();
        let rate = number(u64::from(self.args.rate));
        self.screen.done(format!("{rate} requests a second {} are answered{status}", self.source.from));
        Ok(())
    }

    async fn restart(&mut self, pods: usize) -> Result<()> {
        let target = self.target;
        self.screen.begin(format!("restarting {}", target.shown()));
        let since = Instant::now();
        let rollout =
            RolloutTarget { cluster: self.cluster, resource: target.resource.clone(), name: target.name.clone() };
        rollout.restart((self.surroundings.now)()).await?;
        let (mut seen, all) = (self.table.subscribe(), target.replaces_all());
        let rolling = async {
            rollout.status(true, &mut io::sink()).await?;
            let is_done = |table: &PodTable| !table.is_anybody_leaving() && (!all || table.left() == pods);
            drop(seen.wait_for(is_done).await?);
            Ok::<_, anyhow::Error>(())
        };
        let mut told = self.table.subscribe();
        let telling = async {
            loop {
                let left = told.borrow_and_update().left();
                self.screen.begin(format!("restarting {}: {left} of {pods} pods have left", target.shown()));
                if told.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            done = rolling => done?,
            () = telling => {}
        }
        let left = self.table.borrow().left();
        self.screen.done(format!("{} replaced in {:.1} s", count(left, "pod"), since.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Deletes them one after the other; each time all that are kept have to be ready before the next.
    async fn kill(&mut self, pods: &[Pod], kept: usize) -> Result<()> {
        for (index, pod) in pods.iter().enumerate() {
            let (name, uid) = (pod.metadata.name.clone().unwrap_or_default(), uid(pod));
            let place = format!("{} of {}", index + 1, pods.len());
            let since = Instant::now();
            self.screen.begin(format!("deleting {name} ({place})"));
            self.delete(&name, &uid).await?;
            let mut seen = self.table.subscribe();
            drop(seen.wait_for(|table| table.is_gone(&uid)).await?);
            let gone = since.elapsed().as_secs_f64();
            self.screen.begin(format!("{name} is gone ({place}); waiting until {kept} are ready"));
            drop(seen.wait_for(|table| table.ready() >= kept && !table.is_anybody_leaving()).await?);
            self.screen.done(format!("{name} was gone after {gone:.1} s ({place})"));
        }
        Ok(())
    }

    /// One that has left meanwhile is no failure.
    async fn delete(&self, name: &str, uid: &str) -> Result<()> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
        let path =
            format!("/api/v1/namespaces/{}/pods/{}", path_segment(&self.cluster.namespace)?, path_segment(name)?);
        let call = Call::new(Method::DELETE, path, format!("delete pod/{name}")).body("application/json", &options);
        match self.cluster.try_ask(&call).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(()),
            Err(error) => Err(self.cluster.explain(error, &format!("delete pod/{name}"))),
        }
    }

    /// Everything that was seen, with what the cluster tells of the ends.
    pub(super) async fn observations(&self, ending: Ending) -> Observations {
        let mut pods = self.table.borrow().seen();
        let unknown = evidence::after(self.cluster, &self.before, &mut pods).await;
        let heard = self.source.heard().borrow().clone();
        let load = self.goal.as_ref().zip(heard.counts).map(|(goal, counts): (&Goal, Counts)| LoadSeen {
            from: self.source.from.clone(),
            to: goal.shown.clone(),
            rate: self.args.rate,
            counts,
            clock_ms: heard.clock_ms.unwrap_or(0),
        });
        Observations {
            workload: self.target.shown(),
            namespace: self.cluster.namespace.clone(),
            way: self.target.way,
            ending,
            load,
            pods,
            ready: self.ready,
            keeps_records: self.before.keeps_records,
            unknown,
        }
    }
}
