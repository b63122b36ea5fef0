//! The node goes down: who leaves when is [`lifecycle::Shutdown`]'s to say; here it is done and told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::pod;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};
use lifecycle::{EventKind, Input, KillCause, LeavingPod, PriorityBudget, Shutdown, ShutdownBudgets, ShutdownStep};
use reading::seconds;
use runtime_api::Runtime;
use timeline::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::handle::Handle;
use super::{Mode, PodReader, Pods};
use crate::flaws::{self, Flaw};
use crate::publisher::Flush;

/// Kept for storing the last statuses.
pub const FLUSH: Duration = Duration::from_secs(5);
/// How long the API may take to show that the node goes down before pods are asked to leave.
const SHOW: Duration = Duration::from_secs(1);
/// How long the API may take to delete a pod before the node ends it without.
const DELETE: Duration = Duration::from_secs(2);
/// Longer than anything lasts: a group that nobody hurries.
const ENDLESS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const CRITICAL: i32 = lifecycle::eviction::CRITICAL;

/// How much time pods have when the node shuts down.
#[derive(Clone, Debug)]
pub enum ShutdownGrace {
    /// All that they ask for.
    FullGrace,
    /// What they ask for, but no more than this.
    AtMost(Duration),
    /// What the machine can wait.
    Within(ShutdownBudgets),
}

/// What is told of a shutdown.
#[derive(Debug)]
pub enum ShutdownNews {
    /// These pods are still here.
    Leaving(Vec<String>),
    /// It is over.
    Done,
}

/// A shutdown under way.
pub(super) struct Stopping {
    news: mpsc::UnboundedSender<ShutdownNews>,
    /// Who called it off, and waits until the node is ready again.
    called_off: Vec<oneshot::Sender<()>>,
    progress: StopProgress,
}

/// How far a shutdown is.
enum StopProgress {
    /// The API is told first, so that nobody new is sent here. Left when it shows that, or has taken too long.
    Announcing { shutdown_grace: ShutdownGrace, announced: JoinSet<()> },
    /// Pods leave, by the rules.
    Ending(Ending),
}

/// A shutdown whose pods are leaving.
struct Ending {
    rules: Shutdown,
    full_grace: bool,
    /// Those who are still here.
    leaving: BTreeMap<String, PodReader>,
    /// One task for each of them, which ends when it is at rest.
    resting: JoinSet<String>,
    /// Objects on their way out of the API, with what follows when they are.
    deleting: JoinSet<Vec<ShutdownStep>>,
    /// Ends when everyone's last status is stored.
    flushing: JoinSet<()>,
    flushed: bool,
    /// Those whose turn came.
    asked: BTreeSet<String>,
}

/// Something a shutdown waited for.
pub(super) enum StopEvent {
    Announced,
    AtRest(String),
    Deleted(Vec<ShutdownStep>),
    Flushed,
    TimePassed,
}

/// The next thing that happens in a shutdown; never if there is none.
pub(super) async fn next(stopping: &mut Option<Stopping>, clock: &Clock) -> StopEvent {
    let Some(stopping) = stopping else { return std::future::pending().await };
    let ending = match &mut stopping.progress {
        StopProgress::Announcing { announced, .. } => {
            // Should that break, pods leave without.
            let _ = announced.join_next().await;
            return StopEvent::Announced;
        }
        StopProgress::Ending(ending) => ending,
    };
    let wake = async {
        match ending.rules.next_wake() {
            // The timer's clock stops while the machine sleeps and ours does not, so look again at least every minute.
            Some(at) => tokio::time::sleep(at.since(clock.now()).min(Duration::from_secs(60))).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        Some(Ok(uid)) = ending.resting.join_next() => StopEvent::AtRest(uid),
        Some(Ok(steps)) = ending.deleting.join_next() => StopEvent::Deleted(steps),
        Some(_) = ending.flushing.join_next() => StopEvent::Flushed,
        () = wake => StopEvent::TimePassed,
    }
}

impl<R: Runtime> Pods<R> {
    /// Begins to go down. A shutdown that is already under way goes on as it is; whoever asks again hears of it.
    pub(super) fn shut_down(&mut self, shutdown_grace: ShutdownGrace, news: mpsc::UnboundedSender<ShutdownNews>) {
        if let Some(stopping) = &mut self.stopping {
            stopping.news = news;
            return stopping.tell();
        }
        if self.mode == Mode::Open {
            self.mode = Mode::ShuttingDown;
        }
        let message = "Shutdown manager detected shutdown event".to_owned();
        self.tools.recorder.record_own(EventKind::Normal, "Shutdown", message);
        // First nobody new is sent here; then those who are here are asked to leave.
        self.tools.health.set(|health| health.shutting_down = true);
        let (health, mut announced) = (self.tools.health.clone(), JoinSet::new());
        announced.spawn(async move { health.seen(SHOW).await });
        let progress = StopProgress::Announcing { shutdown_grace, announced };
        self.stopping = Some(Stopping { news, called_off: Vec::new(), progress });
    }

    /// The API shows that the node goes down: those who are here are asked to leave.
    fn begin_ending(&mut self) -> Vec<ShutdownStep> {
        let now = self.tools.clock.now();
        let Some(stopping) = &mut self.stopping else { return Vec::new() };
        let StopProgress::Announcing { shutdown_grace, .. } = &stopping.progress else { return Vec::new() };
        let here = self.drivers.iter().filter(|(_, handle)| !handle.reader.record.get().at_rest);
        let most = if let ShutdownGrace::AtMost(most) = shutdown_grace { *most } else { Duration::MAX };
        let leaver = |(uid, handle): (&String, &Handle)| {
            let leaver = leaver(uid, &handle.pod(), handle.is_deleted());
            LeavingPod { grace: leaver.grace.min(most), ..leaver }
        };
        let leavers = here.clone().map(leaver).collect();
        let leaving: BTreeMap<String, PodReader> =
            here.map(|(uid, handle)| (uid.clone(), handle.reader.clone())).collect();
        let (budgets, full_grace) = match shutdown_grace {
            ShutdownGrace::Within(budgets) => (budgets.clone(), false),
            ShutdownGrace::FullGrace | ShutdownGrace::AtMost(_) => {
                let group = |priority| PriorityBudget { priority, budget: ENDLESS };
                let groups = ShutdownBudgets::from_groups(vec![group(0), group(CRITICAL)]);
                let full_grace = matches!(shutdown_grace, ShutdownGrace::FullGrace);
                (groups.expect("there is all the time"), full_grace)
            }
        };
        let mut resting = JoinSet::new();
        for (uid, reader) in &leaving {
            let (uid, mut record) = (uid.clone(), reader.record.clone());
            resting.spawn(async move {
                // A driver sets its pod at rest before it ends.
                record.wait_until(|record| record.at_rest).await;
                uid
            });
        }
        let (mut rules, mut steps) = Shutdown::begin(now, budgets, FLUSH, leavers);
        // It may have been called off before it began.
        if !stopping.called_off.is_empty() {
            steps.extend(rules.cancelled(now));
        }
        stopping.progress = StopProgress::Ending(Ending {
            rules,
            full_grace,
            leaving,
            resting,
            deleting: JoinSet::new(),
            flushing: JoinSet::new(),
            flushed: false,
            asked: BTreeSet::new(),
        });
        stopping.tell();
        steps
    }

    /// The machine stays up. Whoever was asked to leave still does; then the node takes on pods again, and tells so.
    pub(super) async fn call_off(&mut self, resumed: oneshot::Sender<()>) {
        // If none is under way, the node is as it should be; the sender's end says so.
        let Some(stopping) = &mut self.stopping else { return };
        info!("the shutdown is called off");
        stopping.called_off.push(resumed);
        if let StopProgress::Ending(ending) = &mut stopping.progress {
            let steps = ending.rules.cancelled(self.tools.clock.now());
            self.take_steps(steps).await;
        }
    }

    /// A shutdown goes on.
    pub(super) async fn stopping_event(&mut self, event: StopEvent) {
        let now = self.tools.clock.now();
        let steps = match (event, self.ending()) {
            (StopEvent::Announced, _) => self.begin_ending(),
            (StopEvent::AtRest(uid), Some(ending)) => {
                ending.leaving.remove(&uid);
                let steps = ending.rules.at_rest(now, &uid);
                if let Some(stopping) = &self.stopping {
                    stopping.tell();
                }
                steps
            }
            // Nobody is stopped while those who will be replaced still look as if they stayed.
            (StopEvent::Deleted(steps), Some(_)) => return self.end_all(steps).await,
            (StopEvent::Flushed, Some(ending)) => {
                ending.flushed = true;
                ending.rules.flushed(now)
            }
            (StopEvent::TimePassed, Some(ending)) => ending.rules.time_passed(now),
            (StopEvent::AtRest(_) | StopEvent::Deleted(_) | StopEvent::Flushed | StopEvent::TimePassed, None) => return,
        };
        self.take_steps(steps).await;
    }

    fn ending(&mut self) -> Option<&mut Ending> {
        match &mut self.stopping.as_mut()?.progress {
            StopProgress::Ending(ending) => Some(ending),
            StopProgress::Announcing { .. } => None,
        }
    }

    /// Objects first: what else is to be done waits until the API has heard of them, or has taken too long.
    async fn take_steps(&mut self, steps: Vec<ShutdownStep>) {
        let deletes = steps.iter().filter_map(|step| match step {
            ShutdownStep::Delete { uid, grace } => self.delete(uid, *grace),
            ShutdownStep::Kill { .. } | ShutdownStep::Flush { .. } | ShutdownStep::LetGo | ShutdownStep::Resume => None,
        });
        let deletes: Vec<_> = deletes.collect();
        if deletes.is_empty() {
            return self.end_all(steps).await;
        }
        let Some(ending) = self.ending() else { return };
        ending.deleting.spawn(async move {
            futures::future::join_all(deletes).await;
            steps
        });
    }

    async fn end_all(&mut self, steps: Vec<ShutdownStep>) {
        for step in steps {
            match step {
                // The node ends them all, whoever replaces them; what the API says of a deletion comes after this.
                ShutdownStep::Delete { uid, grace } | ShutdownStep::Kill { uid, grace } => {
                    self.end(&uid, grace).await;
                    if let Some(ending) = self.ending() {
                        ending.asked.insert(uid);
                    }
                }
                ShutdownStep::Flush { .. } => {
                    let flushes: Vec<Flush> = self.drivers.values().map(|handle| handle.reader.flush.clone()).collect();
                    let all = futures::future::join_all(flushes.into_iter().map(Flush::done));
                    let Some(ending) = self.ending() else { return };
                    // What was waited for before does not tell of this.
                    (ending.flushing, ending.flushed) = (JoinSet::new(), false);
                    ending.flushing.spawn(async move { drop(all.await) });
                }
                ShutdownStep::LetGo => {
                    if self.ending().is_some_and(|ending| !ending.flushed) {
                        warn!("some pods' last status could not be stored in time; it is stored at the next start");
                    }
                    if let Some(stopping) = &self.stopping {
                        let _ = stopping.news.send(ShutdownNews::Done);
                    }
                }
                ShutdownStep::Resume => self.stay_up().await,
            }
        }
    }

    /// The node is as it was before it was to go down. Pods of the API that had to leave are over; those that files ask
    /// for run anew.
    async fn stay_up(&mut self) {
        let Some(Stopping { called_off, progress: StopProgress::Ending(ending), .. }) = self.stopping.take() else {
            return;
        };
        if self.mode == Mode::ShuttingDown {
            self.mode = Mode::Open;
        }
        self.tools.health.set(|health| health.shutting_down = false);
        for uid in &ending.asked {
            self.begin_anew(uid).await;
        }
        self.begin_waiting_static_pods().await;
        self.recheck_waiting_pods().await;
        for waiting in called_off {
            let _ = waiting.send(());
        }
    }

    /// Kills a pod because the node goes down.
    async fn end(&mut self, uid: &str, grace: Duration) {
        let full = self.ending().is_some_and(|ending| ending.full_grace);
        if let Some(handle) = self.drivers.get(uid) {
            let grace = (!full).then_some(grace);
            handle.tell(Input::KillRequested { cause: KillCause::NodeShutdown, grace }).await;
        }
    }

    /// Deletes the object of a pod that somebody will replace. The pod is ended even if that fails.
    fn delete(&self, uid: &str, grace: Duration) -> Option<impl Future<Output = ()> + Send + 'static + use<R>> {
        let pod = self.drivers.get(uid)?.pod();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(self.tools.client.clone(), namespace);
        let params = DeleteParams {
            grace_period_seconds: Some(whole_seconds(grace)),
            preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
            ..DeleteParams::default()
        };
        Some(async move {
            match tokio::time::timeout(DELETE, api.delete(&name, &params)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => warn!(pod = name, %error, "a pod could not be deleted; it is ended without"),
                Err(_) => warn!(pod = name, "a pod could not be deleted in time; it is ended without"),
            }
        })
    }
}

impl Stopping {
    /// Whoever asked may not listen any more.
    fn tell(&self) {
        let StopProgress::Ending(ending) = &self.progress else { return };
        let names = ending.leaving.values().map(name).collect();
        let _ = self.news.send(ShutdownNews::Leaving(names));
    }
}

fn name(reader: &PodReader) -> String {
    let pod = reader.record.pod();
    let meta = &pod.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// A pod that is here when the node goes down; its object may be known to be on its way out.
fn leaver(uid: &str, pod: &Pod, is_deleted: bool) -> LeavingPod {
    let spec = pod.spec.as_ref();
    let owners = pod.metadata.owner_references.iter().flatten();
    LeavingPod {
        uid: uid.to_owned(),
        priority: if flaws::has(Flaw::IgnoresPriority) { 0 } else { pod::priority(pod) },
        grace: seconds(spec.and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30)),
        // Who is already being deleted is not deleted anew: that would count from the first request, and cut short what a
        // shutdown grants.
        controlled: owners.into_iter().any(|owner| owner.controller == Some(true))
            && pod.metadata.deletion_timestamp.is_none()
            && !is_deleted,
    }
}

/// A grace as the API counts it. Rounded up: a grace of none would delete by force.
fn whole_seconds(grace: Duration) -> u32 {
    let seconds = grace.as_secs().saturating_add(u64::from(grace.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

    use super::*;

    #[test]
    fn a_grace_is_never_rounded_to_none() {
        for (millis, seconds) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds, "{millis} ms");
        }
        assert_eq!(whole_seconds(ENDLESS + Duration::from_secs(u64::from(u32::MAX))), u32::MAX);
    }

    #[test]
    fn controlled_pod_already_being_deleted_is_not_deleted_by_a_shutdown() {
        let owner = OwnerReference { controller: Some(true), ..OwnerReference::default() };
        let metadata = ObjectMeta { owner_references: Some(vec![owner]), ..ObjectMeta::default() };
        let mut pod = Pod { metadata, ..Pod::default() };
        assert!(leaver("u", &pod, false).controlled);
        assert!(!leaver("u", &pod, true).controlled);
        pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert!(!leaver("u", &pod, false).controlled);
    }
}
