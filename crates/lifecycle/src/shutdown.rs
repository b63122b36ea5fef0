//! The order in which a node that stops lets its pods go: by priority, each group within its budget.
//!
//! ```text
//!  group 0 ──all at rest, or its budget spent──▶ group 1 ─ … ─▶ Stragglers ──all at rest, or killed──▶ Flushing
//!  Flushing ──statuses stored, or time over──▶ Over
//! ```
//!
//! Groups are of ascending priority and come one after the other; a group without pods costs no time. Within a group all
//! pods leave at once. Nothing here waits or acts: it is told, and answers what to do (node-termination 9.5).

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::eviction::CRITICAL;
use crate::{LEAST_GRACE, LEAST_NOTICE, Moment};

/// How long pods of a priority, and of those above it up to the next group, may take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PriorityBudget {
    /// The lowest priority of the group.
    pub priority: i32,
    /// How long the group may take.
    pub budget: Duration,
}

impl PriorityBudget {
    /// How long after the begin of the group the last KILL may be sent: no pod has less than a second, and no container
    /// less than two between its stop signal and its KILL.
    fn last_kill(&self) -> Duration {
        self.budget.max(LEAST_GRACE) + LEAST_NOTICE
    }
}

/// The configured budgets of a shutdown, by ascending priority.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ShutdownBudgets(Vec<PriorityBudget>);

impl ShutdownBudgets {
    /// From a total and the tail of it that critical pods have. `None` if that leaves nothing to do.
    pub fn from_totals(total: Duration, critical: Duration) -> Option<Self> {
        if total.is_zero() || critical > total {
            return None;
        }
        let ordinary = PriorityBudget { priority: 0, budget: total - critical };
        Some(Self([ordinary, PriorityBudget { priority: CRITICAL, budget: critical }].into()))
    }

    /// From explicit groups. `None` if no group has any time.
    pub fn from_groups(mut groups: Vec<PriorityBudget>) -> Option<Self> {
        groups.sort_by_key(|group| group.priority);
        groups.iter().any(|group| !group.budget.is_zero()).then_some(Self(groups))
    }

    /// All of it: what the machine must be asked to wait. Besides the groups, the time after which the last KILL is
    /// sent even if the budget of its group is spent, and the time to store the last statuses.
    pub fn total(&self, flush: Duration) -> Duration {
        let (mut begins, mut last_kill) = (Duration::ZERO, Duration::ZERO);
        for group in &self.0 {
            last_kill = last_kill.max(begins + group.last_kill());
            begins += group.budget;
        }
        last_kill + flush
    }

    /// The highest group that this priority reaches; below the lowest, the lowest.
    fn group_of(&self, priority: i32) -> usize {
        self.0.iter().rposition(|group| group.priority <= priority).unwrap_or(0)
    }
}

/// A pod that has to leave.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LeavingPod {
    /// Its UID.
    pub uid: String,
    /// Its priority.
    pub priority: i32,
    /// `terminationGracePeriodSeconds`.
    pub grace: Duration,
    /// Somebody will replace it, so its object goes as well.
    pub controlled: bool,
}

/// What to do next.
#[allow(missing_docs, reason = "a variant's sentence names its fields")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ShutdownStep {
    /// Delete the object of this pod with that grace: it leaves its Services and the API.
    Delete { uid: String, grace: Duration },
    /// Kill this pod with that grace; its object stays.
    Kill { uid: String, grace: Duration },
    /// Store every status that is not stored yet, until then at the latest.
    Flush { until: Moment },
    /// Let the machine go down.
    LetGo,
    /// The machine stays up after all: the node is ready again.
    Resume,
}

/// Why a pod is turned away meanwhile: `reason` and message.
pub const REJECTION: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");

/// A shutdown under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shutdown {
    budgets: ShutdownBudgets,
    flush: Duration,
    /// Those who have not left, by group.
    groups: Vec<Vec<LeavingPod>>,
    /// When the last KILL of those groups that had their turn is sent at the latest.
    last_kill: Moment,
    stage: Stage,
    cancelled: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// This group leaves, until then at the latest.
    Group {
        index: usize,
        until: Moment,
    },
    /// Every group had its time, and somebody is still being killed.
    Stragglers {
        until: Moment,
    },
    /// The last statuses are being stored.
    Flushing {
        until: Moment,
    },
    Over,
}

impl Shutdown {
    /// The node stops. `flush` is kept for storing the last statuses.
    pub fn begin(
        now: Moment,
        budgets: ShutdownBudgets,
        flush: Duration,
        pods: Vec<LeavingPod>,
    ) -> (Self, Vec<ShutdownStep>) {
        let mut groups: Vec<Vec<LeavingPod>> = budgets.0.iter().map(|_| Vec::new()).collect();
        for pod in pods {
            groups[budgets.group_of(pod.priority)].push(pod);
        }
        let mut shutdown = Self {
            budgets,
            flush,
            groups,
            last_kill: now,
            stage: Stage::Group { index: 0, until: now },
            cancelled: false,
        };
        let mut steps = Vec::new();
        shutdown.begin_group(now, 0, &mut steps);
        shutdown.wind_up(now, &mut steps);
        (shutdown, steps)
    }

    /// A pod is at rest: nothing of it runs, and its sandbox and volumes are gone.
    pub fn at_rest(&mut self, now: Moment, uid: &str) -> Vec<ShutdownStep> {
        let before = self.remaining();
        for group in &mut self.groups {
            group.retain(|pod| pod.uid != uid);
        }
        let mut steps = Vec::new();
        if let Stage::Flushing { until } = self.stage
            && self.remaining() < before
        {
            // Its last status was not there yet when the flush was asked for.
            steps.push(ShutdownStep::Flush { until });
        }
        steps.extend(self.advance(now));
        steps
    }

    /// Every status is stored. Not the last word while somebody is still leaving: `Flush` is asked for again then.
    pub fn flushed(&mut self, now: Moment) -> Vec<ShutdownStep> {
        if self.remaining() == 0
            && let Stage::Flushing { until } = &mut self.stage
        {
            *until = now;
        }
        self.advance(now)
    }

    /// The shutdown was called off. Pods that were asked to leave still do; those whose turn did not come stay. Where
    /// everybody has left, the node is ready again at once.
    pub fn cancelled(&mut self, now: Moment) -> Vec<ShutdownStep> {
        let before = core::mem::replace(&mut self.cancelled, true);
        if self.stage == Stage::Over && !before {
            return [ShutdownStep::Resume].into();
        }
        if let Stage::Group { index, .. } = self.stage {
            self.groups.truncate(index + 1);
        }
        self.advance(now)
    }

    /// Nothing happened, but a wake was asked for.
    pub fn time_passed(&mut self, now: Moment) -> Vec<ShutdownStep> {
        self.advance(now)
    }

    /// When to come back if nothing else happens.
    pub fn next_wake(&self) -> Option<Moment> {
        match self.stage {
            Stage::Group { until, .. } | Stage::Stragglers { until } | Stage::Flushing { until } => Some(until),
            Stage::Over => None,
        }
    }

    /// Whether the node takes on pods: not before a shutdown is called off and over.
    pub fn takes_on_pods(&self) -> bool {
        self.cancelled && self.stage == Stage::Over
    }

    fn advance(&mut self, now: Moment) -> Vec<ShutdownStep> {
        let mut steps = Vec::new();
        if let Stage::Group { index, until } = self.stage
            && (now >= until || self.groups[index].is_empty())
        {
            self.begin_group(now, index + 1, &mut steps);
        }
        self.wind_up(now, &mut steps);
        steps
    }

    /// What comes when every group had its turn.
    fn wind_up(&mut self, now: Moment, steps: &mut Vec<ShutdownStep>) {
        if let Stage::Stragglers { until } = self.stage
            && (now >= until || self.remaining() == 0)
        {
            let until = now + self.flush;
            steps.push(ShutdownStep::Flush { until });
            self.stage = Stage::Flushing { until };
        }
        if let Stage::Flushing { until } = self.stage
            && now >= until
        {
            self.stage = Stage::Over;
            steps.push(if self.cancelled { ShutdownStep::Resume } else { ShutdownStep::LetGo });
        }
    }

    /// Begins the first group from `index` on that has any pods.
    fn begin_group(&mut self, now: Moment, index: usize, steps: &mut Vec<ShutdownStep>) {
        let next = self.groups.iter().enumerate().skip(index).find(|(_, group)| !group.is_empty());
        let Some((index, group)) = next else {
            self.stage = Stage::Stragglers { until: self.last_kill };
            return;
        };
        let budget = self.budgets.0[index].budget;
        self.last_kill = self.last_kill.max(now + self.budgets.0[index].last_kill());
        steps.extend(group.iter().map(|pod| {
            let (uid, grace) = (pod.uid.clone(), pod.grace.min(budget).max(LEAST_GRACE));
            if pod.controlled { ShutdownStep::Delete { uid, grace } } else { ShutdownStep::Kill { uid, grace } }
        }));
        self.stage = Stage::Group { index, until: now + budget };
    }

    fn remaining(&self) -> usize {
        self.groups.iter().map(Vec::len).sum()
    }
}
