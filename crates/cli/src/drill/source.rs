//! Where the requests of a drill come from: this machine, or a pod that lives as long as the drill.
//!
//! A pod is what other pods see, so it comes first where it can be had without asking anybody: on an instance of this machine, whose
//! images the image of this program can be put among. Elsewhere `--client-image` names an image that has it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::client::ClientArgs;
use super::client_pod::ClientPod;
use super::target::Goal;
use super::{DrillArgs, From, Surroundings};
use crate::cluster::{Cluster, LocalInstance};
use crate::load::{self, Counts};

/// How long an address may take to take a connection.
const REACHED: Duration = Duration::from_secs(2);
/// How long the last answers, and the last counts, may take.
const LAST_COUNTS: Duration = Duration::from_secs(12);

/// What is known of the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// What became of them.
    pub counts: Option<Counts>,
    /// What the clock of the load showed when that of the drill began, as nearly as it is known.
    pub clock_ms: Option<i64>,
}

impl Heard {
    /// Takes in what was told. It was told a little later than it was so, hence the largest difference is the nearest.
    pub(super) fn take(&mut self, counts: Counts, began: Instant) {
        let now = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let clock = i64::try_from(counts.now_ms).unwrap_or(i64::MAX).saturating_sub(now);
        self.clock_ms = Some(self.clock_ms.map_or(clock, |known| known.max(clock)));
        self.counts = Some(counts);
    }
}

/// Who sends the requests.
enum Sender {
    /// Tasks of this process.
    Here { stop: Option<oneshot::Sender<()>>, task: JoinHandle<Result<()>> },
    /// A pod.
    Pod(Box<ClientPod>),
}

/// The requests of a drill, from their begin to their end. Whatever becomes of the drill, [`Self::end`] is called.
pub(super) struct LoadSource {
    began: Instant,
    heard: watch::Sender<Heard>,
    sender: Option<Sender>,
    /// Where they come from, in words.
    pub from: String,
}

impl LoadSource {
    /// None yet.
    pub(super) fn new(began: Instant) -> Self {
        Self { began, heard: watch::Sender::new(Heard::default()), sender: None, from: String::new() }
    }

    /// Where the counts are to be seen.
    pub(super) fn heard(&self) -> watch::Receiver<Heard> {
        self.heard.subscribe()
    }

    /// Begins to send requests.
    pub(super) async fn begin(
        &mut self,
        cluster: &Cluster,
        args: &DrillArgs,
        goal: &Goal,
        local: Option<&LocalInstance>,
        surroundings: Surroundings<'_>,
    ) -> Result<()> {
        let client = |address| ClientArgs {
            address,
            host: goal.host.clone(),
            path: goal.path.clone(),
            rate: args.rate,
            connections: args.connections,
        };
        let own_image = local.filter(|local| local.node.is_some());
        let has_image = own_image.is_some() || args.client_image.is_some();
        let in_pod = match (args.from, goal.inside) {
            (From::Pod, None) => bail!("--url is asked from this machine; leave out --from pod"),
            (From::Pod, Some(_)) if !has_image => bail!("{}", no_image()),
            (From::Here, _) | (From::Auto, None) => None,
            (From::Pod | From::Auto, Some(inside)) => has_image.then_some(inside),
        };
        if let Some(inside) = in_pod {
            let pod = self.sender.insert(Sender::Pod(Box::new(ClientPod::new(cluster, own_image, surroundings))));
            if let Sender::Pod(pod) = pod {
                pod.begin(&client(inside), args, self.heard.clone(), self.began).await?;
            }
            self.from = "from a pod in the cluster".to_owned();
            return Ok(());
        }
        let address = reached(goal).await?;
        let (stop, told_to_stop) = oneshot::channel::<()>();
        let (heard, began, plan) = (self.heard.clone(), self.began, client(address).plan());
        let task = tokio::spawn(async move {
            let told = async {
                let _ = told_to_stop.await;
            };
            let tell = |counts: &Counts| {
                heard.send_modify(|heard| heard.take(counts.clone(), began));
                Ok(())
            };
            load::run(plan, told, tell).await
        });
        self.sender = Some(Sender::Here { stop: Some(stop), task });
        self.from = format!("from this machine ({address})");
        Ok(())
    }

    /// Lets the requests under way be answered, hears the last counts, and removes what was made for them.
    pub(super) async fn end(&mut self) -> Result<()> {
        match self.sender.take() {
            None => Ok(()),
            Some(Sender::Here { mut stop, mut task }) => {
                drop(stop.take());
                if timeout(LAST_COUNTS, &mut task).await.is_err() {
                    task.abort();
                }
                Ok(())
            }
            Some(Sender::Pod(mut pod)) => {
                let mut heard = self.heard();
                let is_final = |heard: &Heard| heard.counts.as_ref().is_some_and(|counts| counts.is_final);
                let last = async {
                    if pod.ask_to_stop().await {
                        let _ = heard.wait_for(is_final).await;
                    }
                };
                let _ = timeout(LAST_COUNTS, last).await;
                pod.remove().await
            }
        }
    }
}

fn no_image() -> String {
    "no pod can be made that sends requests: on an instance of this machine run this as root; on any other cluster write the image \
     with --save-client-image FILE, bring it into the cluster (kind load image-archive FILE, or push it), and name it with \
     --client-image"
        .to_owned()
}

/// The first address that takes a connection from here.
async fn reached(goal: &Goal) -> Result<SocketAddr> {
    let mut tried = Vec::new();
    for address in &goal.outside {
        match timeout(REACHED, TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(*address),
            Ok(Err(error)) => tried.push(format!("{address}: {error}")),
            Err(_) => tried.push(format!("{address}: no answer")),
        }
    }
    let tried = if tried.is_empty() { "it has no address that is open to others".to_owned() } else { tried.join("; ") };
    let asked = &goal.shown;
    Err(anyhow::anyhow!("{}; or name an address with --url, or say --no-load", no_image()))
        .with_context(|| format!("{asked} cannot be reached from this machine ({tried})"))
}
