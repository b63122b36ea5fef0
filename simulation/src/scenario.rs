//! A story as a plain text value: it is what is printed, replayed and made smaller.
//!
//! ```text
//! seed 7; profile slow-disk; pod p0 grace=5 app=term-278,pre-700 side:log=deaf; delete p0 @801 grace=1;
//! crash runtime.stop/p0/1 down=300
//! ```
//!
//! A seed only makes one of these.

use std::fmt;
use std::str::FromStr;

use testkit::Dice;

use crate::faults::Fault;
use crate::workload::WorkloadPlan;

/// A story.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Of all dice in it.
    pub seed: u64,
    /// How slow what is.
    pub profile: Profile,
    /// Who is in it.
    pub pods: Vec<PodPlan>,
    /// What makes pods in it.
    pub workloads: Vec<WorkloadPlan>,
    /// What users do, in order.
    pub acts: Vec<Act>,
    /// Where the agent dies.
    pub crashes: Vec<Crash>,
    /// What else goes wrong.
    pub faults: Vec<Fault>,
    /// The nodes, if there is more to it than one: then there is a control plane of its own, with controllers.
    pub nodes: Vec<String>,
    /// Which step of all drivers together breaks; only with the feature `flaws`.
    pub stumble: Option<u64>,
}

/// What the control plane is called among the nodes.
pub const SERVER: &str = "server";

/// One of so many seeds has a workload; these stories are long.
const WORKLOADS_ONCE_IN: u64 = 14;

/// A node that is away for longer is given up.
const SILENT_MS: u64 = 50_000;

/// Ten shapes of pods, for those who try every place at which something may go wrong.
pub const SHAPES: [&str; 10] = [
    "pod p0 grace=2 app=term-300; delete p0 @1000",
    "pod p0 grace=1 app=deaf; delete p0 @1000",
    "pod p0 grace=3 app=term-200,pre-700; delete p0 @1000",
    "pod p0 grace=1 app=term-200,prenever; delete p0 @1000",
    "pod p0 grace=3 app=term-200,presleep-1; delete p0 @1000",
    "pod p0 grace=2 init:init=self-200-0 side:side=term-50 app=term-100,quit; delete p0 @1000",
    "pod p0 grace=2 restart=failure app=self-300-1,post-100; delete p0 @2000",
    "pod p0 grace=2 map app=term-100,start-200,pull-300,ready-200; delete p0 @400",
    "pod p0 grace=5 app=deaf; delete p0 @800; delete p0 @1200 grace=1",
    "static s0 grace=1 app=term-100; edit s0 @1000; remove s0 @3000",
];

/// How slow what is, and what gets lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// Nothing takes any time.
    Fast,
    /// Everything takes a little.
    Even,
    /// The disk is slow.
    SlowDisk,
    /// The API is slow.
    SlowApi,
    /// The runtime is slow.
    SlowRuntime,
    /// Everything of the first pod is slow.
    SlowPod,
    /// Requests and answers of the node get lost, and its watches are cut.
    Lossy,
    /// Watches say things twice, and not in their order.
    Echo,
}

const PROFILES: [(Profile, &str); 8] = [
    (Profile::Fast, "fast"),
    (Profile::Even, "even"),
    (Profile::SlowDisk, "slow-disk"),
    (Profile::SlowApi, "slow-api"),
    (Profile::SlowRuntime, "slow-runtime"),
    (Profile::SlowPod, "slow-pod"),
    (Profile::Lossy, "lossy"),
    (Profile::Echo, "echo"),
];

impl Profile {
    /// The longest that one seam takes.
    pub fn latency_max(self, place: &str, who: &str) -> u64 {
        let disk = ["journal.", "store.", "files.", "volumes."].iter().any(|part| place.starts_with(part));
        match self {
            Self::Fast => 0,
            Self::SlowDisk if disk => 60,
            Self::SlowApi if place.starts_with("api.") => 200,
            // Controllers follow a lot at once: their watches are late, and do not fall behind for ever.
            Self::SlowApi if place.starts_with("plane.") => 60,
            Self::SlowRuntime if place.starts_with("runtime.") => 300,
            Self::SlowPod if who == "p0" => 300,
            Self::Even
            | Self::SlowDisk
            | Self::SlowApi
            | Self::SlowRuntime
            | Self::SlowPod
            | Self::Lossy
            | Self::Echo => 3,
        }
    }

    /// The longest that any seam takes.
    pub fn hop(self) -> u64 {
        match self {
            Self::Fast => 1,
            Self::Even | Self::Lossy | Self::Echo => 3,
            Self::SlowDisk => 60,
            Self::SlowApi => 200,
            Self::SlowRuntime | Self::SlowPod => 300,
        }
    }
}

/// A pod, and how its containers behave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodPlan {
    /// Its name.
    pub name: String,
    /// A file asks for it, not the API.
    pub is_static: bool,
    /// `terminationGracePeriodSeconds`.
    pub grace: u64,
    /// `restartPolicy`.
    pub restart: Restart,
    /// The node cannot do without it.
    pub critical: bool,
    /// It has a volume made of a ConfigMap.
    pub map: bool,
    /// On which node it is to be; `None` leaves that to the scheduler, if there is one.
    pub on: Option<String>,
    /// How many seconds it bears a node of which nobody hears.
    pub tolerates: Option<u64>,
    /// Its containers.
    pub containers: Vec<ContainerPlan>,
}

/// `restartPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// Whatever happens.
    Always,
    /// When it failed.
    OnFailure,
    /// Never.
    Never,
}

/// What a container is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// What the pod is about.
    Main,
    /// Runs to its end before the others.
    Init,
    /// Starts before the others and ends after them.
    Sidecar,
}

/// A container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerPlan {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// How it ends.
    pub script: Script,
    /// How long its start takes.
    pub start_ms: u64,
    /// How often its start is refused.
    pub refusals: u32,
    /// What it does before its stop signal.
    pub pre_stop: Option<HookPlan>,
    /// What it does after its start.
    pub post_start: Option<HookPlan>,
    /// It is ready so long after its start, by a probe.
    pub ready_ms: Option<u64>,
    /// It lives so long after its start, by a probe.
    pub live_ms: Option<u64>,
    /// Its image asks for QUIT.
    pub quit: bool,
    /// Its image has to be pulled, which takes so long.
    pub pull_ms: Option<u64>,
}

/// How a container ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// So long after its stop signal.
    Term(u64),
    /// By KILL alone.
    Deaf,
    /// By itself, so long after its start and with this code; or at once by its stop signal.
    Itself(u64, u8),
}

/// A hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookPlan {
    /// A program that takes so long.
    Takes(u64),
    /// And then fails.
    Fails(u64),
    /// A program that never ends.
    Never,
    /// The node waits so many seconds.
    Sleeps(u64),
}

/// What a user does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Act {
    /// When, in milliseconds of the world.
    pub at: u64,
    /// What.
    pub deed: Deed,
}

/// What a user can do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Makes a pod.
    Create(String),
    /// Deletes one, perhaps with a grace of their own.
    Delete(String, Option<u64>),
    /// Writes another manifest of the same name.
    Edit(String),
    /// Removes a manifest.
    Remove(String),
    /// Changes the template of a workload.
    Rollout(String),
    /// A workload is to have so many pods.
    Scale(String, u64),
    /// Cordons a node and evicts the pods of workloads from it.
    Drain(String),
    /// Pods may come to a node again.
    Uncordon(String),
    /// The machine goes down.
    ShutDown,
}

impl Deed {
    /// The pod or workload that it is about.
    pub fn subject(&self) -> Option<&str> {
        match self {
            Self::Create(name) | Self::Delete(name, _) | Self::Edit(name) | Self::Remove(name) => Some(name),
            Self::Rollout(name) | Self::Scale(name, _) => Some(name),
            Self::ShutDown | Self::Drain(_) | Self::Uncordon(_) => None,
        }
    }
}

/// The agent dies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Crash {
    /// Where: a place, who passes it, and the how-manieth time.
    pub seam: String,
    /// How long until the next agent starts.
    pub down_ms: u64,
    /// The whole machine loses its power.
    pub power: bool,
    /// Only the agent of this node dies; the rest of the platform goes on.
    pub node: bool,
    /// Only the control plane dies: store, server and controllers. The agents go on.
    pub server: bool,
}

impl Crash {
    /// Whether only whoever passes the seam dies.
    pub fn is_alone(&self) -> bool {
        self.node || self.server
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profile = PROFILES.iter().find(|(profile, _)| *profile == self.profile).map_or("even", |(_, name)| name);
        write!(f, "seed {}; profile {profile}", self.seed)?;
        self.pods.iter().try_for_each(|pod| write!(f, "; {pod}"))?;
        self.workloads.iter().try_for_each(|workload| write!(f, "; {workload}"))?;
        self.acts.iter().try_for_each(|act| write!(f, "; {act}"))?;
        self.nodes.iter().try_for_each(|node| write!(f, "; node {node}"))?;
        for Crash { seam, down_ms, power, node, server } in &self.crashes {
            let what = if *power { "power" } else { "crash" };
            let node = if *node { " node" } else { "" };
            write!(f, "; {what} {seam} down={down_ms}{node}{}", if *server { " server" } else { "" })?;
        }
        self.faults.iter().try_for_each(|fault| write!(f, "; {fault}"))?;
        self.stumble.map_or(Ok(()), |step| write!(f, "; stumble {step}"))
    }
}

impl fmt::Display for PodPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} grace={}", if self.is_static { "static" } else { "pod" }, self.name, self.grace)?;
        match self.restart {
            Restart::Always => {}
            Restart::OnFailure => f.write_str(" restart=failure")?,
            Restart::Never => f.write_str(" restart=never")?,
        }
        if self.critical {
            f.write_str(" critical")?;
        }
        if self.map {
            f.write_str(" map")?;
        }
        if let Some(node) = &self.on {
            write!(f, " on={node}")?;
        }
        if let Some(seconds) = self.tolerates {
            write!(f, " tolerates={seconds}")?;
        }
        self.containers.iter().try_for_each(|container| write!(f, " {container}"))
    }
}

impl fmt::Display for ContainerPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Main => "",
            Role::Init => "init:",
            Role::Sidecar => "side:",
        };
        write!(f, "{role}{}=", self.name)?;
        match self.script {
            Script::Term(after) => write!(f, "term-{after}")?,
            Script::Deaf => f.write_str("deaf")?,
            Script::Itself(after, code) => write!(f, "self-{after}-{code}")?,
        }
        if self.start_ms > 0 {
            write!(f, ",start-{}", self.start_ms)?;
        }
        if self.refusals > 0 {
            write!(f, ",refuse-{}", self.refusals)?;
        }
        for (name, hook) in [("pre", self.pre_stop), ("post", self.post_start)] {
            match hook {
                None => {}
                Some(HookPlan::Takes(ms)) => write!(f, ",{name}-{ms}")?,
                Some(HookPlan::Fails(ms)) => write!(f, ",{name}fail-{ms}")?,
                Some(HookPlan::Never) => write!(f, ",{name}never")?,
                Some(HookPlan::Sleeps(seconds)) => write!(f, ",{name}sleep-{seconds}")?,
            }
        }
        self.ready_ms.map_or(Ok(()), |ms| write!(f, ",ready-{ms}"))?;
        self.live_ms.map_or(Ok(()), |ms| write!(f, ",live-{ms}"))?;
        if self.quit {
            f.write_str(",quit")?;
        }
        self.pull_ms.map_or(Ok(()), |ms| write!(f, ",pull-{ms}"))
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match &self.deed {
            Deed::Create(pod) => write!(f, "create {pod} @{at}"),
            Deed::Delete(pod, None) => write!(f, "delete {pod} @{at}"),
            Deed::Delete(pod, Some(grace)) => write!(f, "delete {pod} @{at} grace={grace}"),
            Deed::Edit(pod) => write!(f, "edit {pod} @{at}"),
            Deed::Remove(pod) => write!(f, "remove {pod} @{at}"),
            Deed::Rollout(workload) => write!(f, "rollout {workload} @{at}"),
            Deed::Scale(workload, replicas) => write!(f, "scale {workload}={replicas} @{at}"),
            Deed::Drain(node) => write!(f, "drain {node} @{at}"),
            Deed::Uncordon(node) => write!(f, "uncordon {node} @{at}"),
            Deed::ShutDown => write!(f, "shutdown @{at}"),
        }
    }
}

/// Why a text is no scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAScenario(pub String);

impl fmt::Display for NotAScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no part of a scenario: {:?}", self.0)
    }
}

impl std::error::Error for NotAScenario {}

impl FromStr for Scenario {
    type Err = NotAScenario;

    fn from_str(text: &str) -> Result<Self, NotAScenario> {
        let mut scenario = Self::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let bad = || NotAScenario(part.to_owned());
            let words: Vec<&str> = part.split_whitespace().collect();
            match words.as_slice() {
                ["seed", seed] => scenario.seed = seed.parse().map_err(|_| bad())?,
                ["profile", name] => {
                    scenario.profile = PROFILES.iter().find(|(_, known)| known == name).ok_or_else(bad)?.0;
                }
                ["stumble", step] => scenario.stumble = Some(step.parse().map_err(|_| bad())?),
                ["pod" | "static", rest @ ..] => {
                    scenario.pods.push(read_pod(words[0] == "static", rest).ok_or_else(bad)?);
                }
                ["deploy" | "replicaset" | "statefulset" | "job", ..] => {
                    scenario.workloads.push(WorkloadPlan::read(&words).ok_or_else(bad)?);
                }
                ["node", name] => scenario.nodes.push((*name).to_owned()),
                [what @ ("crash" | "power"), seam, rest @ ..] => {
                    let down = rest.iter().find_map(|word| word.strip_prefix("down="));
                    let down_ms = down.map_or(Ok(100), str::parse).map_err(|_| bad())?;
                    let (power, node) = (*what == "power", rest.contains(&"node"));
                    let (seam, server) = ((*seam).to_owned(), rest.contains(&"server"));
                    scenario.crashes.push(Crash { seam, down_ms, power, node, server });
                }
                ["lost" | "refused" | "late" | "away" | "full", ..] => {
                    scenario.faults.push(Fault::read(&words).ok_or_else(bad)?);
                }
                _ => scenario.acts.push(act(&words).ok_or_else(bad)?),
            }
        }
        // What nobody makes is there from the beginning.
        let pods = scenario.pods.iter().chain(scenario.workloads.iter().map(|workload| &workload.pod));
        for name in pods.map(|pod| pod.name.clone()).collect::<Vec<_>>() {
            let deed = Deed::Create(name);
            if !scenario.acts.iter().any(|act| act.deed == deed) {
                scenario.acts.push(Act { at: 0, deed });
            }
        }
        scenario.acts.sort_by_key(|act| act.at);
        if !scenario.workloads.is_empty() && scenario.nodes.is_empty() {
            scenario.nodes.push("n1".to_owned());
        }
        Ok(scenario)
    }
}

fn act(words: &[&str]) -> Option<Act> {
    let at = words.iter().find_map(|word| word.strip_prefix('@'))?.parse().ok()?;
    let name = || words.get(1).map(|word| (*word).to_owned());
    let deed = match *words.first()? {
        "create" => Deed::Create(name()?),
        "delete" => {
            let grace = words.iter().find_map(|word| word.strip_prefix("grace="));
            Deed::Delete(name()?, grace.map(|grace| grace.parse().ok()).map_or(Some(None), |grace| grace.map(Some))?)
        }
        "edit" => Deed::Edit(name()?),
        "remove" => Deed::Remove(name()?),
        "shutdown" => Deed::ShutDown,
        "rollout" => Deed::Rollout(name()?),
        "scale" => {
            let (name, replicas) = words.get(1)?.split_once('=')?;
            Deed::Scale(name.to_owned(), replicas.parse().ok()?)
        }
        "drain" => Deed::Drain(name()?),
        "uncordon" => Deed::Uncordon(name()?),
        _ => return None,
    };
    Some(Act { at, deed })
}

/// Reads what a pod's `Display` writes behind its first word.
pub(crate) fn read_pod(is_static: bool, words: &[&str]) -> Option<PodPlan> {
    let (name, rest) = words.split_first()?;
    let mut plan = PodPlan {
        name: (*name).to_owned(),
        is_static,
        grace: 5,
        restart: Restart::Always,
        critical: false,
        map: false,
        on: None,
        tolerates: None,
        containers: Vec::new(),
    };
    for word in rest {
        match word.split_once('=') {
            None if *word == "critical" => plan.critical = true,
            None if *word == "map" => plan.map = true,
            Some(("on", node)) => plan.on = Some(node.to_owned()),
            Some(("tolerates", seconds)) => plan.tolerates = Some(seconds.parse().ok()?),
            Some(("grace", seconds)) => plan.grace = seconds.parse().ok()?,
            Some(("restart", "never")) => plan.restart = Restart::Never,
            Some(("restart", "failure")) => plan.restart = Restart::OnFailure,
            Some((name, behaviour)) => plan.containers.push(container(name, behaviour)?),
            None => return None,
        }
    }
    (!plan.containers.is_empty()).then_some(plan)
}

fn container(name: &str, behaviour: &str) -> Option<ContainerPlan> {
    let (role, name) = match name.split_once(':') {
        Some(("init", name)) => (Role::Init, name),
        Some(("side", name)) => (Role::Sidecar, name),
        Some(_) => return None,
        None => (Role::Main, name),
    };
    let mut plan = ContainerPlan::new(name, role);
    for word in behaviour.split(',') {
        let mut parts = word.split('-');
        let what = parts.next()?;
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        match what {
            "term" => plan.script = Script::Term(number()?),
            "deaf" => plan.script = Script::Deaf,
            "self" => plan.script = Script::Itself(number()?, u8::try_from(number().unwrap_or(0)).ok()?),
            "start" => plan.start_ms = number()?,
            "refuse" => plan.refusals = u32::try_from(number()?).ok()?,
            "pre" => plan.pre_stop = Some(HookPlan::Takes(number()?)),
            "prefail" => plan.pre_stop = Some(HookPlan::Fails(number()?)),
            "prenever" => plan.pre_stop = Some(HookPlan::Never),
            "presleep" => plan.pre_stop = Some(HookPlan::Sleeps(number()?)),
            "post" => plan.post_start = Some(HookPlan::Takes(number()?)),
            "postfail" => plan.post_start = Some(HookPlan::Fails(number()?)),
            "ready" => plan.ready_ms = Some(number()?),
            "live" => plan.live_ms = Some(number()?),
            "quit" => plan.quit = true,
            "pull" => plan.pull_ms = Some(number()?),
            _ => return None,
        }
    }
    Some(plan)
}

impl ContainerPlan {
    /// A container that ends at once when it is asked to.
    pub fn new(name: &str, role: Role) -> Self {
        Self {
            name: name.to_owned(),
            role,
            script: Script::Term(0),
            start_ms: 0,
            refusals: 0,
            pre_stop: None,
            post_start: None,
            ready_ms: None,
            live_ms: None,
            quit: false,
            pull_ms: None,
        }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        let (pods, acts, crashes, faults, nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let workloads = Vec::new();
        Self { seed: 0, profile: Profile::Even, pods, workloads, acts, crashes, faults, nodes, stumble: None }
    }
}

impl Scenario {
    /// The name of a node; behind the last of them is the control plane.
    pub fn host(&self, at: usize) -> &str {
        let other = if self.nodes.is_empty() { "n1" } else { SERVER };
        self.nodes.get(at).map_or(other, String::as_str)
    }

    /// The story that this seed makes.
    pub fn of_seed(seed: u64) -> Self {
        let mut dice = crate::dice::dice(seed, "scenario", "", 0);
        // Most of what goes wrong on the way is found by what gets lost.
        let (profile, _) = if dice.once_in(7) { (Profile::Lossy, "") } else { dice.pick(&PROFILES) };
        let shuts_down = dice.once_in(9);
        let statics = if dice.once_in(5) { 1 } else { 0 };
        let mut pods = Vec::new();
        for at in 0..1 + dice.below(3) + u64::from(shuts_down) {
            pods.push(a_pod(&mut dice, &format!("p{at}"), false));
        }
        if shuts_down {
            // Somebody who goes last, and somebody who does not.
            (pods[0].critical, pods[1].critical) = (true, false);
        }
        for at in 0..statics {
            pods.push(a_pod(&mut dice, &format!("s{at}"), true));
        }
        let mut acts = Vec::new();
        for pod in &pods {
            let begun = dice.below(500);
            acts.push(Act { at: begun, deed: Deed::Create(pod.name.clone()) });
            if pod.is_static {
                let later = begun + 200 + dice.below(4000);
                let deed = if dice.once_in(2) { Deed::Edit(pod.name.clone()) } else { Deed::Remove(pod.name.clone()) };
                acts.push(Act { at: later, deed });
            } else if !dice.once_in(if shuts_down { 2 } else { 5 }) {
                let later = begun + dice.below(4000);
                let grace = dice.pick(&[None, None, None, Some(0), Some(1), Some(2), Some(6)]);
                acts.push(Act { at: later, deed: Deed::Delete(pod.name.clone(), grace) });
                if dice.once_in(4) {
                    let again = later + dice.below(3000);
                    acts.push(Act { at: again, deed: Deed::Delete(pod.name.clone(), Some(dice.below(4))) });
                }
            }
        }
        if shuts_down {
            acts.push(Act { at: 1500 + dice.below(3000), deed: Deed::ShutDown });
        }
        acts.sort_by_key(|act| act.at);
        let mut crashes: Vec<Crash> = (0..dice.below(3)).map(|_| a_crash(&mut dice, &pods)).collect();
        let mut dice = crate::dice::dice(seed, "faults", "", 0);
        if dice.once_in(3) {
            crashes.iter_mut().for_each(|crash| crash.power = true);
        }
        let count = if dice.once_in(3) { 1 + dice.below(2) } else { 0 };
        let faults = (0..count).map(|_| Fault::random(&mut dice, &pods)).collect();
        let mut story = Self { seed, profile, pods, acts, crashes, faults, ..Self::default() };
        if !shuts_down && dice.once_in(8) {
            story.spread(&mut dice);
        }
        let mut dice = crate::dice::dice(seed, "workloads", "", 0);
        if dice.once_in(WORKLOADS_ONCE_IN) {
            story.become_a_workload(&mut dice);
        }
        story
    }

    /// The same story on several nodes.
    fn spread(&mut self, dice: &mut Dice) {
        self.nodes = (1..3 + dice.below(2)).map(|at| format!("n{at}")).collect();
        // Machines do not share their power, and each has its own disk.
        self.crashes.iter_mut().for_each(|crash| crash.power = false);
        for pod in self.pods.iter_mut().filter(|pod| !pod.is_static) {
            // The others are the scheduler's.
            pod.on = (!dice.once_in(3)).then(|| dice.pick(&self.nodes));
        }
        if dice.once_in(2) {
            // One of them goes, and the others go on.
            let node = dice.pick(&self.nodes[1..]);
            let (place, most) = dice.pick(&[("journal.write", 20), ("journal.written", 20), ("api.watch.frame", 20)]);
            let seam = format!("{place}/{node}/{}", 1 + dice.below(most));
            let down_ms = dice.pick(&[100, 1500, 5000, 90_000]);
            if down_ms > SILENT_MS {
                let of_node = |pod: &&mut PodPlan| pod.on.as_ref() == Some(&node);
                self.pods.iter_mut().filter(of_node).for_each(|pod| pod.tolerates = Some(5));
            }
            self.crashes = vec![Crash { seam, down_ms, power: false, node: true, server: false }];
        }
    }

    /// The plan of a pod.
    pub fn plan(&self, pod: &str) -> Option<&PodPlan> {
        let mut of_workloads = self.workloads.iter().map(|workload| &workload.pod);
        self.pods.iter().find(|plan| plan.name == pod).or_else(|| of_workloads.find(|plan| plan.name == pod))
    }
}

fn a_pod(dice: &mut Dice, name: &str, is_static: bool) -> PodPlan {
    let mut containers = Vec::new();
    if dice.once_in(5) {
        let mut init = ContainerPlan::new("init", Role::Init);
        init.script = Script::Itself(dice.pick(&[0, 3, 30, 200, 700]), 0);
        containers.push(init);
    }
    if dice.once_in(4) {
        let mut side = ContainerPlan::new("side", Role::Sidecar);
        side.script = dice.pick(&[Script::Term(50), Script::Deaf, Script::Term(1500)]);
        containers.push(side);
    }
    for at in 0..1 + dice.below(4) / 3 {
        let mut main = ContainerPlan::new(if at == 0 { "app" } else { "aux" }, Role::Main);
        main.script = match dice.below(8) {
            0 | 1 => Script::Deaf,
            2 => Script::Itself(dice.pick(&[0, 2, 20, 300, 2000]), u8::try_from(dice.below(2)).unwrap_or(0)),
            _ => Script::Term(dice.below(3000)),
        };
        match dice.below(9) {
            0 | 1 => main.pre_stop = Some(HookPlan::Takes(dice.below(2500))),
            2 => main.pre_stop = Some(HookPlan::Fails(dice.below(500))),
            3 => main.pre_stop = Some(HookPlan::Never),
            4 => main.pre_stop = Some(HookPlan::Sleeps(1 + dice.below(2))),
            _ => {}
        }
        if dice.once_in(8) {
            main.post_start = Some(HookPlan::Takes(dice.below(800)));
        }
        if dice.once_in(6) {
            main.ready_ms = Some(dice.below(1500));
        }
        if dice.once_in(10) {
            main.live_ms = Some(800 + dice.below(2000));
        }
        if dice.once_in(6) {
            main.start_ms = dice.below(600);
        }
        if dice.once_in(10) {
            main.refusals = 1;
        }
        main.quit = dice.once_in(6);
        if dice.once_in(6) {
            main.pull_ms = Some(dice.below(900));
        }
        containers.push(main);
    }
    // A sleep must be shorter than the grace.
    let sleeps = containers.iter().any(|it| matches!(it.pre_stop, Some(HookPlan::Sleeps(_))));
    PodPlan {
        name: name.to_owned(),
        is_static,
        grace: dice.pick(if sleeps { &[3, 5] } else { &[1, 2, 3, 5] }),
        restart: dice.pick(&[Restart::Always, Restart::Always, Restart::OnFailure, Restart::Never]),
        critical: dice.once_in(6),
        map: dice.once_in(6),
        on: None,
        tolerates: None,
        containers,
    }
}

fn a_crash(dice: &mut Dice, pods: &[PodPlan]) -> Crash {
    let pod = dice.pick(pods).name;
    let places = [
        ("journal.write", "-", 30),
        ("journal.written", "-", 30),
        ("store.commit", "-", 80),
        ("api.watch.frame", "-", 30),
        ("files.replace", "-", 6),
        ("api.patch", pod.as_str(), 6),
        ("api.patch.answered", pod.as_str(), 6),
        ("api.delete", pod.as_str(), 2),
        ("api.delete.answered", pod.as_str(), 2),
        ("runtime.create_sandbox", pod.as_str(), 1),
        ("runtime.create_sandbox.answered", pod.as_str(), 1),
        ("runtime.start", pod.as_str(), 2),
        ("runtime.start.answered", pod.as_str(), 2),
        ("runtime.stop", pod.as_str(), 2),
        ("runtime.stop.answered", pod.as_str(), 2),
        ("runtime.kill", pod.as_str(), 1),
        ("runtime.kill.answered", pod.as_str(), 1),
        ("runtime.run_hook", pod.as_str(), 1),
        ("runtime.run_hook.answered", pod.as_str(), 1),
        ("runtime.remove_sandbox", pod.as_str(), 1),
        ("runtime.remove_sandbox.answered", pod.as_str(), 1),
    ];
    let (place, who, most) = dice.pick(&places);
    let seam = format!("{place}/{who}/{}", 1 + dice.below(most));
    Crash { seam, down_ms: dice.pick(&[0, 50, 400, 1500, 4000]), power: false, node: false, server: false }
}
