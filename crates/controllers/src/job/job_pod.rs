//! A pod as far as Jobs care.

use std::cmp::Reverse;
use std::sync::Arc;

use api::pod;
use frame::Now;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use crate::availability::Since;
use crate::controller_ref::controller_of;
use crate::pod::{ContainerStatusView, PodView};
use crate::pod_control::PodRef;

/// The UID of anything.
pub(crate) type Uid = Arc<str>;

/// Keeps a pod until its Job has counted it.
pub(crate) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The index of a pod, as an annotation and as a label.
pub(crate) const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often pods of its index failed before, and how often that did not count.
pub(crate) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(crate) const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// How a container ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exit {
    pub(crate) container: Box<str>,
    pub(crate) code: i32,
}

/// How a pod ended, as far as the pace of its successors goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    Succeeded,
    Failed,
    /// It was asked to leave while it still counted.
    Leaving,
}

/// The Job that a pod belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JobRef {
    pub(crate) uid: Uid,
    pub(crate) name: Arc<str>,
}

/// The version of a pod that was seen last. It is no fact about the pod: every write changes it, and nobody is woken for that.
#[derive(Clone, Default, Debug)]
pub(crate) struct SeenVersion(String);

impl PartialEq for SeenVersion {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A pod whose finalizer may go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Untracked {
    pub(crate) pod: PodRef,
    /// It goes from this version alone: one that has ended meanwhile is looked at again, because its end may count.
    pub(crate) version: Option<String>,
}

/// What is known of one pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct JobPod {
    pub(crate) version: SeenVersion,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Box<str>,
    labels: Box<[(Box<str>, Box<str>)]>,
    pub(crate) job: Option<JobRef>,
    /// It has the finalizer: it is not in the numbers yet.
    pub(crate) tracked: bool,
    pub(crate) leaves: bool,
    pub(crate) phase: Phase,
    /// Since when it is ready, if it is.
    pub(crate) ready: Option<Timestamp>,
    assigned: bool,
    /// How often its containers were started again, all together.
    pub(crate) restarts: i32,
    created: Option<Timestamp>,
    pub(crate) index: Option<u32>,
    pub(crate) index_failures: u32,
    pub(crate) index_ignored_failures: u32,
    /// Of a pod that ends: regular containers first.
    pub(crate) exits: Box<[Exit]>,
    pub(crate) conditions: Box<[(Box<str>, Box<str>)]>,
    pub(crate) ended: Option<(Ending, Since)>,
}

impl JobPod {
    /// What a pod is to Jobs; nothing if another kind of controller has it. `known` is what was answered before.
    pub(crate) fn of(pod: &PodView, known: Option<&Self>, now: Now) -> Option<Self> {
        let job = match controller_of(&pod.metadata) {
            Some(owner) if owner.kind == "Job" && owner.api_version.starts_with("batch/") => {
                Some(JobRef { uid: owner.uid.as_str().into(), name: owner.name.as_str().into() })
            }
            Some(_) => return None,
            None => None,
        };
        let statuses = || pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let annotation = |key: &str| pod.annotations().get(key).and_then(|text| text.parse().ok());
        let mut it = Self {
            version: SeenVersion(pod.resource_version().unwrap_or_default()),
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: pod.metadata.name.as_deref().unwrap_or_default().into(),
            labels: pod.labels().iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
            job,
            tracked: pod.finalizers().iter().any(|it| it == TRACKING_FINALIZER),
            leaves: pod::is_terminating(pod),
            phase: match pod.status.phase.as_deref() {
                Some("Running") => Phase::Running,
                Some("Unknown") => Phase::Unknown,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            },
            ready: pod
                .status
                .conditions
                .iter()
                .find(|it| it.type_ == "Ready" && it.status == "True")
                .map(|ready| ready.last_transition_time.as_ref().map_or(now.timestamp, |time| time.0)),
            assigned: pod.node().is_some(),
            restarts: statuses().fold(0, |sum, it| sum.saturating_add(it.restart_count)),
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            index: annotation(COMPLETION_INDEX),
            index_failures: annotation(INDEX_FAILURES).unwrap_or(0),
            index_ignored_failures: annotation(INDEX_IGNORED_FAILURES).unwrap_or(0),
            exits: Box::default(),
            conditions: Box::default(),
            ended: None,
        };
        if it.leaves || it.is_terminal() {
            it.exits = statuses().filter_map(exit).collect();
            let conditions = pod.status.conditions.iter();
            it.conditions = conditions.map(|it| (it.type_.as_str().into(), it.status.as_str().into())).collect();
        }
        it.ended = it.ending(known).map(|ending| {
            let before = known.and_then(|known| known.ended).map(|(_, since)| since);
            (ending, Since::heard(finish_time(pod).unwrap_or(now.timestamp), before, now))
        });
        Some(it)
    }

    /// How it ended. One that was let go before it ended, by us, has not: what was known of it before stays.
    fn ending(&self, known: Option<&Self>) -> Option<Ending> {
        if !self.tracked && self.leaves {
            return known.and_then(|known| known.ended).map(|(ending, _)| ending);
        }
        match self.phase {
            Phase::Succeeded => Some(Ending::Succeeded),
            Phase::Failed => Some(Ending::Failed),
            Phase::Pending | Phase::Unknown | Phase::Running => self.leaves.then_some(Ending::Leaving),
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| **name == *key).map(|(_, value)| &**value)
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.leaves && !self.is_terminal()
    }

    /// It was asked to leave and has not ended.
    pub(crate) fn is_terminating(&self) -> bool {
        self.leaves && !self.is_terminal()
    }

    /// Its index, if it is below `indexes`.
    pub(crate) fn index_below(&self, indexes: u32) -> Option<u32> {
        self.index.filter(|index| *index < indexes)
    }

    pub(crate) fn named(&self, uid: &Uid) -> PodRef {
        PodRef { name: self.name.to_string(), uid: uid.to_string() }
    }

    /// The same, to be let go as it was seen.
    pub(crate) fn untracked(&self, uid: &Uid) -> Untracked {
        let version = (!self.is_terminal()).then(|| self.version.0.clone());
        Untracked { pod: self.named(uid), version }
    }

    /// Who goes first when there are too many: whoever has got least far.
    pub(crate) fn removal_order(&self) -> impl Ord + use<> {
        let age = |at: Option<Timestamp>| Reverse(at.unwrap_or(Timestamp::MAX));
        (self.assigned, self.phase, self.ready.is_some(), age(self.ready), Reverse(self.restarts), age(self.created))
    }
}

fn exit(status: &ContainerStatusView) -> Option<Exit> {
    let ended = status.terminated.as_ref()?;
    Some(Exit { container: status.name.as_str().into(), code: ended.exit_code })
}

/// When a pod ended: its last container, or when it ceased to be ready, or when it was asked to leave, or when it was made.
fn finish_time(pod: &PodView) -> Option<Timestamp> {
    let containers = &pod.status.container_statuses;
    let ends = containers.iter().map(|it| it.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0));
    let last = ends.collect::<Option<Vec<_>>>().and_then(|ends| ends.into_iter().max());
    let unready = || {
        let ready = pod.status.conditions.iter().find(|it| it.type_ == "Ready" && it.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let asked = || {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
        pod.metadata.deletion_timestamp.as_ref()?.0.checked_sub(grace).ok()
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    last.or_else(unready).or_else(asked).or_else(created)
}
