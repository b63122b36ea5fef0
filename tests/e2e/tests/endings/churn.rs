//! Pods come and go without a pause while `adieu up` is killed about every second.
//!
//! Some pods for some seconds by default; `ADIEU_CHURN=200x300` for 200 pods and five minutes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::caller::{ApiCall, Caller};
use e2e::complaints::IN_A_STORM;
use e2e::dice::Dice;
use e2e::leftovers::Traces;
use e2e::pods::{busybox, is_ready};
use e2e::{Instance, Shared, complaints};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a pod may take to come or to go while the node dies again and again.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an instance lives at most after it said that it is ready.
const LIFE: Duration = Duration::from_secs(2);
/// How many kills and how many pods of each place are a churn, however long they take on a busy machine.
const KILLS_LEAST: usize = 4;
const TURNS_LEAST: usize = 2;
/// How long a pod is wanted at most.
const WANTED: Duration = Duration::from_secs(4);

/// Every pod there is, as the API shows it.
type Pods = BTreeMap<String, Pod>;

fn size() -> Result<(usize, Duration)> {
    let Ok(said) = std::env::var("ADIEU_CHURN") else { return Ok((20, Duration::from_secs(15))) };
    let (pods, seconds) = said.split_once('x').context("ADIEU_CHURN is PODSxSECONDS")?;
    Ok((pods.parse()?, Duration::from_secs(seconds.parse()?)))
}

/// Keeps `seen` true through every life of the instance.
async fn look(kubeconfig: std::path::PathBuf, mut lives: watch::Receiver<usize>, seen: Arc<watch::Sender<Pods>>) {
    loop {
        // It dies with the instance.
        let _: Result<()> = async {
            let api: Api<Pod> = Api::namespaced(e2e::instance::client(&kubeconfig).await?, "default");
            let list = api.list(&ListParams::default()).await?;
            let from = list.metadata.resource_version.context("a version")?;
            seen.send_replace(list.items.into_iter().map(named).collect());
            let mut events = Box::pin(api.watch(&WatchParams::default(), &from).await?);
            while let Some(event) = events.try_next().await? {
                seen.send_modify(|pods| match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => pods.extend([named(pod)]),
                    WatchEvent::Deleted(pod) => drop(pods.remove(&named(pod).0)),
                    WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
                });
            }
            Ok(())
        }
        .await;
        if lives.changed().await.is_err() {
            return;
        }
    }
}

fn named(pod: Pod) -> (String, Pod) {
    (pod.metadata.name.clone().unwrap_or_default(), pod)
}

/// What became of the pods of one place.
#[derive(Default)]
struct Stories {
    /// Those that were Ready before they were deleted.
    ready: Vec<String>,
    /// Those that were not.
    early: Vec<String>,
}

/// One pod after the other, until `over`.
struct PodSlot {
    number: usize,
    instance: (std::path::PathBuf, watch::Receiver<usize>),
    seen: watch::Receiver<Pods>,
    shared: Arc<Shared>,
    over: Instant,
    dice: Dice,
}

impl PodSlot {
    async fn churn(mut self) -> Result<Stories> {
        let mut stories = Stories::default();
        for turn in 0.. {
            if Instant::now() >= self.over && turn >= TURNS_LEAST {
                break;
            }
            let name = format!("churn-{}-{turn}", self.number);
            self.live(&name, &mut stories).await.with_context(|| name.clone())?;
        }
        Ok(stories)
    }

    async fn live(&mut self, name: &str, stories: &mut Stories) -> Result<()> {
        let script = format!(
            "trap 'echo TERM >> /shared/{name}; exit 0' TERM; echo up >> /shared/{name}; while :; do sleep 1000 & wait $!; done"
        );
        // Nobody is to be killed here, however slow the machine restarts: a lost signal shows as a pod that stays.
        self.wish(name, ApiCall::Create(busybox(name, 600, &script, &self.shared))).await?;
        let wanted = self.dice.below(WANTED);
        let ready = self.seen.wait_for(|pods| pods.get(name).is_some_and(is_ready));
        let ready = tokio::time::timeout(wanted, ready).await.is_ok();
        if ready {
            self.shared.wait_lines(name, 1).await?;
        }
        // A shell that has not yet said what to do on TERM does not hear it.
        self.wish(name, if ready { ApiCall::Delete } else { ApiCall::DeleteWithin(3) }).await?;
        let Ok(gone) = tokio::time::timeout(PATIENCE, self.gone(name)).await else {
            anyhow::bail!("it stays: {:?}", self.seen.borrow().get(name).map(|pod| &pod.status));
        };
        gone?;
        if ready { &mut stories.ready } else { &mut stories.early }.push(name.to_owned());
        Ok(())
    }

    async fn gone(&mut self, name: &str) -> Result<()> {
        loop {
            self.seen.wait_for(|pods| !pods.contains_key(name)).await?;
            // Whoever has not been seen yet is not seen either.
            let asked: Result<Option<Pod>> = async {
                let client = e2e::instance::client(&self.instance.0).await?;
                Ok(Api::namespaced(client, "default").get_opt(name).await?)
            }
            .await;
            match asked {
                Ok(None) => return Ok(()),
                Ok(Some(_)) | Err(_) => self.seen.changed().await?,
            }
        }
    }

    async fn wish(&self, name: &str, wish: ApiCall) -> Result<()> {
        let (kubeconfig, lives) = self.instance.clone();
        Caller::new(kubeconfig, lives).call(name.to_owned(), wish).await
    }
}

/// [NT-144] [NT-146] No pod is lost, none stays, none starts twice, none is left behind.
#[tokio::test(flavor = "multi_thread")]
async fn node_killed_every_second_loses_no_pod() -> Result<()> {
    let (places, time) = size()?;
    let mut dice = Dice::seeded()?;
    let mut instance = Instance::start().await?;
    let shared = Arc::new(Shared::new()?);
    let (came_up, lives) = watch::channel(0);
    let (seen, seeing) = watch::channel(Pods::new());
    let looking = tokio::spawn(look(instance.kubeconfig(), lives.clone(), Arc::new(seen)));
    let over = Instant::now() + time;
    let mut churning = JoinSet::new();
    for number in 0..places {
        let place = PodSlot {
            number,
            instance: (instance.kubeconfig(), lives.clone()),
            seen: seeing.clone(),
            shared: shared.clone(),
            over,
            dice: dice.split(),
        };
        churning.spawn(place.churn());
    }
    let mut kills = 0;
    while Instant::now() < over || kills < KILLS_LEAST {
        tokio::time::sleep(dice.below(LIFE)).await;
        instance.kill_9().await?;
        instance.up().await?;
        came_up.send_modify(|lives| *lives += 1);
        kills += 1;
    }
    let mut lived = 0;
    while let Some(stories) = churning.join_next().await {
        let Stories { ready, early } = stories??;
        for name in &ready {
            assert_eq!(shared.lines(name), ["up", "TERM"], "{name}: each step once, in order");
        }
        for name in &early {
            let lines = shared.lines(name);
            // Its stop signal may come between its first two steps: then it is never up.
            let whole = ["up", "TERM"].into_iter().filter(|step| lines.iter().any(|line| line == step));
            ensure!(whole.eq(lines.iter()), "{name} was deleted before it was Ready, and did {lines:?}");
        }
        lived += ready.len() + early.len();
    }
    looking.abort();
    println!("{lived} pods lived and left through {kills} kills");
    let traces = Traces::of(&instance, &[])?;
    let said = instance.down().await?;
    ensure!(said.contains("adieu is down"), "{said}");
    traces.ensure_none()?;
    complaints::ensure_none(&instance, IN_A_STORM)
}
