//! Workloads of a story: what a user writes of them, how they are read, and those that a seed makes.
//!
//! ```text
//! deploy web replicas=4 surge=1 unavailable=0 grace=2 app=term-200,ready-300; rollout web @3000; scale web=8 @5000
//! replicaset rs replicas=3 app=deaf; statefulset db replicas=3 parallel app=term-100; drain n1 @4000; uncordon n1 @9000
//! job work completions=4 parallelism=2 indexed app=self-300-0
//! ```
//!
//! The pods of a workload are called after it, so that everything that is said of `web` is said of them.

use std::fmt;

use serde_json::{Value, json};
use testkit::Dice;

use crate::scenario::{Act, ContainerPlan, Crash, Deed, HookPlan, PodPlan, Restart, Role, Scenario, Script, read_pod};
use crate::world;

/// The annotation of a template that says by which rollout it came, from 0.
pub const ROLLOUT: &str = "simulation.adieu.dev/rollout";

/// Makes pods of one template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadPlan {
    /// What makes them.
    pub kind: WorkloadKind,
    /// How many there are to be; of a Job, how many are to succeed.
    pub replicas: u64,
    /// How they behave. Its name is the workload's.
    pub pod: PodPlan,
}

/// What makes pods, and by which rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkloadKind {
    /// A Deployment that rolls: so many too many, so many missing.
    Deployment {
        /// `maxSurge`.
        surge: u64,
        /// `maxUnavailable`.
        unavailable: u64,
    },
    /// A ReplicaSet by itself.
    ReplicaSet,
    /// A StatefulSet.
    StatefulSet {
        /// Nobody waits for those before it.
        parallel: bool,
    },
    /// A Job.
    Job {
        /// So many at once.
        parallelism: u64,
        /// Every pod has an index.
        indexed: bool,
    },
}

impl WorkloadKind {
    /// Group, version, kind and plural.
    pub fn resource(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Deployment { .. } => ("apps", "v1", "Deployment", "deployments"),
            Self::ReplicaSet => ("apps", "v1", "ReplicaSet", "replicasets"),
            Self::StatefulSet { .. } => ("apps", "v1", "StatefulSet", "statefulsets"),
            Self::Job { .. } => ("batch", "v1", "Job", "jobs"),
        }
    }

    /// Whether it is a Job.
    pub fn is_job(self) -> bool {
        matches!(self, Self::Job { .. })
    }
}

impl WorkloadPlan {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.pod.name
    }

    /// Reads what [`Display`](fmt::Display) writes.
    pub fn read(words: &[&str]) -> Option<Self> {
        let (what, rest) = words.split_first()?;
        let (mut replicas, mut surge, mut unavailable, mut parallelism) = (1, 1, 0, 1);
        let (mut parallel, mut indexed, mut pod) = (false, false, Vec::new());
        for word in rest {
            match word.split_once('=') {
                Some(("replicas" | "completions", number)) => replicas = number.parse().ok()?,
                Some(("surge", number)) => surge = number.parse().ok()?,
                Some(("unavailable", number)) => unavailable = number.parse().ok()?,
                Some(("parallelism", number)) => parallelism = number.parse().ok()?,
                None if *word == "parallel" => parallel = true,
                None if *word == "indexed" => indexed = true,
                Some(_) | None => pod.push(*word),
            }
        }
        let kind = match *what {
            "deploy" => WorkloadKind::Deployment { surge, unavailable },
            "replicaset" => WorkloadKind::ReplicaSet,
            "statefulset" => WorkloadKind::StatefulSet { parallel },
            "job" => WorkloadKind::Job { parallelism, indexed },
            _ => return None,
        };
        let mut pod = read_pod(false, &pod)?;
        // Names of pods are told from that of their workload by what is behind the first dash.
        if pod.name.contains(['-', '#']) || pod.on.is_some() {
            return None;
        }
        if kind.is_job() && pod.restart == Restart::Always {
            pod.restart = Restart::Never;
        }
        Some(Self { kind, replicas, pod })
    }

    /// What a user writes: the object, with so many pods, by this rollout.
    pub fn manifest(&self, scenario: &Scenario) -> Value {
        let name = self.name();
        let (group, version, kind, _) = self.kind.resource();
        let mut pod = world::manifest(scenario, &self.pod, false);
        let labels = json!({ "app": name });
        let template = json!({
            "metadata": { "labels": labels, "annotations": { ROLLOUT: "0" } },
            "spec": pod["spec"].take(),
        });
        let mut spec = json!({ "template": template });
        match self.kind {
            WorkloadKind::Deployment { surge, unavailable } => {
                let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
                spec["strategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
            }
            WorkloadKind::ReplicaSet => {}
            WorkloadKind::StatefulSet { parallel } => {
                spec["serviceName"] = json!(name);
                spec["podManagementPolicy"] = json!(if parallel { "Parallel" } else { "OrderedReady" });
            }
            WorkloadKind::Job { parallelism, indexed } => {
                spec["completions"] = json!(self.replicas);
                spec["parallelism"] = json!(parallelism);
                // What nodes do to pods is to fail no Job.
                spec["backoffLimit"] = json!(100);
                spec["completionMode"] = json!(if indexed { "Indexed" } else { "NonIndexed" });
            }
        }
        if !self.kind.is_job() {
            spec["replicas"] = json!(self.replicas);
            spec["selector"] = json!({ "matchLabels": labels });
        }
        json!({ "apiVersion": format!("{group}/{version}"), "kind": kind,
            "metadata": { "name": name, "namespace": "default" }, "spec": spec })
    }
}

impl fmt::Display for WorkloadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, replicas) = (self.name(), self.replicas);
        match self.kind {
            WorkloadKind::Deployment { surge, unavailable } => {
                write!(f, "deploy {name} replicas={replicas} surge={surge} unavailable={unavailable}")?;
            }
            WorkloadKind::ReplicaSet => write!(f, "replicaset {name} replicas={replicas}")?,
            WorkloadKind::StatefulSet { parallel } => {
                write!(f, "statefulset {name} replicas={replicas}{}", if parallel { " parallel" } else { "" })?;
            }
            WorkloadKind::Job { parallelism, indexed } => {
                let indexed = if indexed { " indexed" } else { "" };
                write!(f, "job {name} completions={replicas} parallelism={parallelism}{indexed}")?;
            }
        }
        let pod = self.pod.to_string();
        f.write_str(pod.strip_prefix(&format!("pod {name}")).unwrap_or_default())
    }
}

impl Scenario {
    /// The workload of this name.
    pub fn workload(&self, name: &str) -> Option<&WorkloadPlan> {
        self.workloads.iter().find(|plan| plan.name() == name)
    }

    /// How many pods a workload is to have in the end, and by which rollout; nothing if it is deleted.
    pub fn wanted(&self, name: &str) -> Option<(u64, u64)> {
        let (mut replicas, mut rollout) = (self.workload(name)?.replicas, 0);
        for act in &self.acts {
            match &act.deed {
                Deed::Scale(of, number) if of == name => replicas = *number,
                Deed::Rollout(of) if of == name => rollout += 1,
                Deed::Delete(of, _) if of == name => return None,
                Deed::Scale(..) | Deed::Rollout(_) | Deed::Delete(..) => {}
                Deed::Create(_) | Deed::Edit(_) | Deed::Remove(_) | Deed::ShutDown => {}
                Deed::Drain(_) | Deed::Uncordon(_) => {}
            }
        }
        Some((replicas, rollout))
    }

    /// Another story, of the same seed and profile: a workload on several nodes, and the control plane or a node may die.
    pub(crate) fn become_a_workload(&mut self, dice: &mut Dice) {
        (self.pods, self.acts, self.crashes, self.faults) = Default::default();
        self.nodes = (1..3 + dice.below(2)).map(|at| format!("n{at}")).collect();
        let mut plan = a_workload(dice);
        let name = plan.name().to_owned();
        let mut act = |at: u64, deed: Deed| self.acts.push(Act { at, deed });
        act(dice.below(300), Deed::Create(name.clone()));
        let mut at = 500 + dice.below(3_000);
        for _ in 0..dice.below(4) {
            let deed = match plan.kind {
                WorkloadKind::Job { .. } => break,
                WorkloadKind::ReplicaSet => Deed::Scale(name.clone(), dice.below(6)),
                _ if dice.once_in(3) => Deed::Scale(name.clone(), dice.below(6)),
                WorkloadKind::Deployment { .. } | WorkloadKind::StatefulSet { .. } => Deed::Rollout(name.clone()),
            };
            act(at, deed);
            at += 200 + dice.below(3_000);
        }
        if dice.once_in(4) {
            let node = dice.pick(&self.nodes);
            act(500 + dice.below(4_000), Deed::Drain(node.clone()));
            if dice.once_in(2) {
                act(5_000 + dice.below(2_000), Deed::Uncordon(node));
            }
        }
        if dice.once_in(7) {
            act(at + dice.below(3_000), Deed::Delete(name, None));
        }
        self.acts.sort_by_key(|act| act.at);
        let down_ms = dice.pick(&[0, 100, 1_500, 4_000]);
        match dice.below(6) {
            0..3 => self.crashes.push(of_server(dice, down_ms, true)),
            3 => self.crashes.push(of_server(dice, down_ms, false)),
            4 => {
                let node = dice.pick(&self.nodes[1..]);
                let (place, most) = dice.pick(&[("journal.written", 40), ("api.watch.frame", 40)]);
                let seam = format!("{place}/{node}/{}", 1 + dice.below(most));
                let down_ms = dice.pick(&[100, 1_500, 90_000, 90_000]);
                if down_ms > 50_000 {
                    plan.pod.tolerates = Some(5);
                }
                self.crashes.push(Crash { seam, down_ms, power: false, node: true, server: false });
            }
            _ => {}
        }
        self.workloads.push(plan);
    }
}

/// The control plane dies, perhaps alone.
fn of_server(dice: &mut Dice, down_ms: u64, server: bool) -> Crash {
    let places = [
        ("store.commit", "-", 200),
        ("plane.create", "replicaset-controller", 6),
        ("plane.create.answered", "replicaset-controller", 6),
        ("plane.delete", "replicaset-controller", 4),
        ("plane.delete.answered", "replicaset-controller", 4),
        ("plane.patch.answered", "deployment-controller", 8),
        ("plane.create.answered", "statefulset-controller", 5),
        ("plane.create.answered", "job-controller", 5),
        ("plane.patch.answered", "job-controller", 8),
        ("plane.create.answered", "system:kube-scheduler", 8),
    ];
    let (place, who, most) = dice.pick(&places);
    Crash { seam: format!("{place}/{who}/{}", 1 + dice.below(most)), down_ms, power: false, node: false, server }
}

fn a_workload(dice: &mut Dice) -> WorkloadPlan {
    let kind = match dice.below(8) {
        0..4 => {
            let (surge, unavailable) = dice.pick(&[(1, 0), (1, 0), (0, 1), (2, 1), (1, 1)]);
            WorkloadKind::Deployment { surge, unavailable }
        }
        4 => WorkloadKind::ReplicaSet,
        5 | 6 => WorkloadKind::StatefulSet { parallel: dice.once_in(3) },
        _ => WorkloadKind::Job { parallelism: 1 + dice.below(3), indexed: dice.once_in(2) },
    };
    let mut app = ContainerPlan::new("app", Role::Main);
    app.script = match dice.below(5) {
        _ if kind.is_job() => Script::Itself(dice.pick(&[20, 300, 1_500]), 0),
        0 => Script::Deaf,
        _ => Script::Term(dice.below(1_500)),
    };
    if dice.once_in(3) {
        app.start_ms = dice.below(400);
    }
    if !kind.is_job() && dice.once_in(2) {
        app.ready_ms = Some(dice.below(1_500));
    }
    if dice.once_in(5) {
        app.pre_stop = Some(HookPlan::Takes(dice.below(800)));
    }
    let (name, restart) = match kind {
        WorkloadKind::Deployment { .. } => ("web", Restart::Always),
        WorkloadKind::ReplicaSet => ("rs", Restart::Always),
        WorkloadKind::StatefulSet { .. } => ("db", Restart::Always),
        WorkloadKind::Job { .. } => ("work", Restart::Never),
    };
    let pod = PodPlan {
        name: name.to_owned(),
        is_static: false,
        grace: dice.pick(&[1, 2, 3]),
        restart,
        critical: false,
        map: false,
        on: None,
        tolerates: None,
        containers: vec![app],
    };
    WorkloadPlan { kind, replicas: 2 + dice.below(3), pod }
}
