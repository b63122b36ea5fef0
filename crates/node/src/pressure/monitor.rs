//! Looks after what the machine has left: says so in the node's conditions, and lets one pod after the other go.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::pod;
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::eviction::offender_message;
use lifecycle::{EventKind, KillOutcome, Moment, Pressure};
use runtime_api::{ContainerUsage, Runtime};
use supervision::error_chain;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::collection::ImageCollection;
use super::psi::MemoryPressureTrigger;
use super::rank::{Candidate, choose};
use super::signals;
use super::threshold::{EvictionConfig, Reading, Signal, Threshold, bytes};
use crate::effects::Tools;
use crate::pods::Directory;

/// How often the machine is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long a pod that was stopped may take to give back what it had before others are looked at.
const CLEAN_UP: Duration = Duration::from_secs(30);
/// How long what pods have left behind may take to be deleted before somebody has to go all the same.
const TIDIED: Duration = Duration::from_secs(5);
/// The rules always answer; this only bounds what a broken driver could cost.
const ANSWER: Duration = Duration::from_secs(600);

/// Somebody has to go.
#[derive(Debug)]
pub struct Eviction {
    /// Who.
    pub uid: String,
    /// Why, and how gently.
    pub pressure: Pressure,
    /// Told when nothing of it runs any more, or that takes too long.
    pub done: oneshot::Sender<KillOutcome>,
}

/// The part of the node that does this.
pub struct Monitor<R: Runtime> {
    tools: Arc<Tools<R>>,
    directory: Directory,
    config: EvictionConfig,
    images: ImageCollection,
    nodefs: PathBuf,
    imagefs: PathBuf,
    evictions: mpsc::Sender<Eviction>,
    /// Since when each threshold is passed.
    passed: BTreeMap<usize, Moment>,
    /// When each signal was last found too low.
    seen: BTreeMap<Signal, Moment>,
    /// What is too low although nobody is left who could go. That is said once.
    helpless: Option<Signal>,
}

impl<R: Runtime> Monitor<R> {
    /// A monitor of the file systems at `nodefs` and `imagefs`, and of memory and process ids.
    pub fn new(
        tools: Arc<Tools<R>>,
        directory: Directory,
        (config, images): (EvictionConfig, ImageCollection),
        (nodefs, imagefs): (PathBuf, PathBuf),
        evictions: mpsc::Sender<Eviction>,
    ) -> Self {
        let (passed, seen) = (BTreeMap::new(), BTreeMap::new());
        Self { tools, directory, config, images, nodefs, imagefs, evictions, passed, seen, helpless: None }
    }

    /// Looks until the node stops.
    pub async fn run(self) {
        supervision::keep_on("pressure", self, |monitor| monitor.watch().boxed()).await;
    }

    async fn watch(&mut self) {
        if self.config.thresholds.is_empty() {
            return;
        }
        let mut memory_trigger = MemoryPressureTrigger::of_whole_machine()
            .inspect_err(|error| info!(%error, "the kernel does not tell who waits for memory; it is only looked at"))
            .ok();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                told = next(memory_trigger.as_ref()) => if let Err(error) = told {
                    warn!(%error, "the PSI memory trigger failed; memory is only polled");
                    memory_trigger = None;
                },
            }
            let readings = signals::read(&self.nodefs, &self.imagefs);
            let now = self.tools.clock.now();
            let due = self.observe(now, &readings);
            self.show(now);
            match due {
                Some((threshold, _)) if self.leavings_made_room(threshold).await => {}
                Some((threshold, _)) if self.images_made_room(threshold).await => {}
                Some((threshold, reading)) => self.reclaim(threshold, reading).await,
                None => self.helpless = None,
            }
        }
    }

    /// Takes in what there is; answers the most urgent threshold that somebody has to go for.
    fn observe(&mut self, now: Moment, readings: &BTreeMap<Signal, Reading>) -> Option<(Threshold, Reading)> {
        let mut due: Vec<(Threshold, Reading)> = Vec::new();
        for (index, threshold) in self.config.thresholds.iter().enumerate() {
            let reading = readings.get(&threshold.signal).copied().filter(|reading| threshold.is_passed(*reading));
            let Some(reading) = reading else {
                self.passed.remove(&index);
                continue;
            };
            let since = *self.passed.entry(index).or_insert(now);
            self.seen.insert(threshold.signal, now);
            if threshold.patience.is_none_or(|patience| now >= since + patience) {
                due.push((*threshold, reading));
            }
        }
        due.into_iter().min_by_key(|(threshold, _)| (threshold.signal, threshold.patience))
    }

    /// Lets everyone see what the node is short of, or was a moment ago.
    fn show(&self, now: Moment) {
        let lately = |signals: &[Signal]| {
            let seen =
                |signal: &Signal| self.seen.get(signal).is_some_and(|at| now < *at + self.config.linger || *at == now);
            signals.iter().any(seen)
        };
        let disk =
            [Signal::NodefsAvailable, Signal::NodefsInodesFree, Signal::ImagefsAvailable, Signal::ImagefsInodesFree];
        let changed = self.tools.health.set(|health| {
            health.memory_pressure = lately(&[Signal::MemoryAvailable]);
            health.disk_pressure = lately(&disk);
            health.pid_pressure = lately(&[Signal::PidAvailable]);
        });
        if changed {
            info!("node pressure conditions changed");
        }
    }

    /// Whether what pods have left behind was enough: its deletion stands back for everything else, but nobody has to go for it.
    async fn leavings_made_room(&self, threshold: Threshold) -> bool {
        match threshold.signal {
            Signal::MemoryAvailable | Signal::PidAvailable => return false,
            Signal::NodefsAvailable
            | Signal::NodefsInodesFree
            | Signal::ImagefsAvailable
            | Signal::ImagefsInodesFree => {}
        }
        let _ = tokio::time::timeout(TIDIED, self.tools.runtime.tidied()).await;
        self.has_room(threshold)
    }

    fn has_room(&self, threshold: Threshold) -> bool {
        let left = signals::read(&self.nodefs, &self.imagefs).get(&threshold.signal).copied();
        left.is_some_and(|reading| !threshold.is_passed(reading))
    }

    /// Whether images that nobody uses were enough: they go before any pod has to.
    async fn images_made_room(&self, threshold: Threshold) -> bool {
        let device = |path: &Path| std::fs::metadata(path).map(|about| about.dev()).ok();
        let helps = match threshold.signal {
            Signal::ImagefsAvailable | Signal::ImagefsInodesFree => true,
            Signal::NodefsAvailable | Signal::NodefsInodesFree => device(&self.nodefs) == device(&self.imagefs),
            Signal::MemoryAvailable | Signal::PidAvailable => false,
        };
        if !helps || self.images.free(&*self.tools.runtime, u64::MAX).await == 0 {
            return false;
        }
        self.has_room(threshold)
    }

    /// Lets one pod go, and waits until it has.
    async fn reclaim(&mut self, threshold: Threshold, reading: Reading) {
        let resource = threshold.signal.resource();
        let chosen = choose(threshold.signal, self.candidates(threshold.signal).await);
        if chosen.is_none() && self.helpless == Some(threshold.signal) {
            return;
        }
        warn!(%threshold, available = reading.available, "node under pressure; evicting a pod");
        let message = format!("Attempting to reclaim {resource}");
        self.tools.recorder.record_own(EventKind::Warning, "EvictionThresholdMet", message);
        let Some(chosen) = chosen else {
            warn!(resource, "there is no pod that may be evicted");
            self.helpless = Some(threshold.signal);
            return;
        };
        self.helpless = None;
        let detail = format!("{}{}", threshold.words(reading), offenders(threshold.signal, &chosen));
        let resource = resource.to_owned();
        let pressure = match threshold.patience {
            None => Pressure::Hard { resource, detail },
            Some(_) => Pressure::Soft { resource, detail, most: self.config.most_grace },
        };
        let Some(entry) = self.directory.get(&chosen.uid) else { return };
        let (done, answered) = oneshot::channel();
        if self.evictions.send(Eviction { uid: chosen.uid.clone(), pressure, done }).await.is_err() {
            return;
        }
        let outcome = tokio::time::timeout(ANSWER, answered).await;
        info!(uid = chosen.uid, ?outcome, "a pod was evicted");
        // What it had is given back with its sandbox.
        let mut record = entry.record;
        let _ = tokio::time::timeout(CLEAN_UP, record.wait_until(|record| record.at_rest)).await;
    }

    /// Everyone who may be chosen, with what they use of what is short.
    async fn candidates(&self, signal: Signal) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for entry in self.directory.all().into_iter().filter(|entry| !entry.record.get().at_rest) {
            let pod = entry.record.pod();
            let priority = api::pod::priority(&*pod);
            if !Pressure::may_evict(pod::is_static(&*pod), priority) {
                continue;
            }
            let usage = self.tools.runtime.usage(&entry.uid).await.unwrap_or_else(|error| {
                warn!(uid = entry.uid.0, error = error_chain(&error), "cannot read the usage of a pod");
                Vec::new()
            });
            let mut containers = of_containers(signal, &pod, &usage);
            // What it wrote to its volumes is the pod's own, and no container's.
            let volumes = self.tools.manifests.volumes(&entry.uid.0).disk;
            if matches!(signal.resource(), "ephemeral-storage" | "inodes")
                && let Ok(disk) =
                    self.tools.files.run("files.measure", move || Ok(file_tree::disk_usage(&volumes))).await
            {
                let used = if signal.resource() == "inodes" { disk.inodes } else { disk.bytes };
                containers.push((String::new(), used, 0));
            }
            candidates.push(Candidate { uid: entry.uid.0, priority, containers });
        }
        candidates
    }
}

/// Resolves when somebody has waited for memory; never if nobody tells.
async fn next(memory_trigger: Option<&MemoryPressureTrigger>) -> std::io::Result<()> {
    match memory_trigger {
        Some(memory_trigger) => memory_trigger.next().await,
        None => std::future::pending().await,
    }
}

/// What each container uses, all of its runs together, and what it asked for.
fn of_containers(signal: Signal, pod: &Pod, usage: &[ContainerUsage]) -> Vec<(String, u64, u64)> {
    let used = |usage: &ContainerUsage| match signal.resource() {
        "memory" => usage.memory,
        "inodes" => usage.inodes,
        "pids" => usage.processes,
        _ => usage.disk,
    };
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.map(|container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let asked = requests.and_then(|requests| requests.get(signal.resource())?.0.parse().ok());
        let asked = asked.map_or(0, |quantity: api::quantity::Quantity| u64::try_from(quantity.ceil()).unwrap_or(0));
        let runs = usage.iter().filter(|usage| usage.id.name == container.name);
        (container.name.clone(), runs.map(used).sum(), asked)
    })
    .collect()
}

/// Which containers used more than they asked for, as people are told.
fn offenders(signal: Signal, chosen: &Candidate) -> String {
    let shown = |amount: u64| match signal.resource() {
        "memory" | "ephemeral-storage" => bytes(amount),
        _ => amount.to_string(),
    };
    let over = chosen.containers.iter().filter(|(name, used, asked)| !name.is_empty() && used > asked);
    over.map(|(name, used, asked)| offender_message(name, &shown(*used), &shown(*asked), signal.resource())).collect()
}
