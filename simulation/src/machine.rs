//! What survives a crash of the agent: containers, hooks, images, the disk, users' plans, counts and the trace.
//!
//! Plain values behind one lock, in no task: a life that is dropped takes nothing of it away, and a call from a dead life does
//! nothing to it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime_api::{
    ContainerId, ContainerReport, ExitRecord, HookRecord, HookReport, PodReport, PodUid, Resources, RuntimeEvent,
    Sandbox, SandboxSpec,
};
use tokio::sync::{Notify, mpsc};

use crate::clock::{boot_ms_of, now_ms, wall_of_ms};
use crate::dice::dice;
use crate::faults::{Fault, Span};
use crate::scenario::{ContainerPlan, HookPlan, SERVER, Scenario, Script};
use crate::trace::{JobShown, Run, Shown, TraceEvent, TraceLine};

/// The machine, and who plays on it.
pub struct Machine {
    inner: Mutex<Inner>,
    /// The story.
    pub scenario: Scenario,
    /// Its disk.
    pub disk: PathBuf,
}

/// One agent's time on the machine; calls of an earlier one do nothing.
#[derive(Clone)]
pub struct Life {
    /// The machine.
    pub machine: Arc<Machine>,
    /// Which life of the platform it is.
    pub number: u64,
    /// Whose agent it is, and which of its lives; nobody's if it is the platform around them.
    host: Option<(usize, u64)>,
    /// Rung when the platform dies, and when this agent alone does.
    crash: Arc<Notify>,
    host_crash: Arc<Notify>,
    /// Told when something is due sooner than it was.
    agenda: Arc<Notify>,
}

#[derive(Default)]
struct Inner {
    life: u64,
    trace: Vec<TraceLine>,
    sandboxes: BTreeMap<String, Pod>,
    /// What happens by itself, by time and by turn.
    agenda: BTreeMap<(u64, u64), Due>,
    turns: u64,
    hosts: Vec<Host>,
    counts: BTreeMap<(String, String), u64>,
    seams: Vec<String>,
    crashed_at: Option<String>,
    refusals: BTreeMap<(String, String), u32>,
    /// What pods are called in the trace, by UID.
    labels: BTreeMap<String, String>,
    acts_done: usize,
    /// When the runtimes are away.
    away: Vec<Span>,
    /// The pods whose objects are stored, as they are shown.
    objects: BTreeMap<String, Shown>,
    /// Jobs that are complete.
    complete: BTreeSet<String>,
    /// Pods that are gone, and of whose end there is no record yet.
    unrecorded: BTreeSet<String>,
    recorded: BTreeSet<String>,
}

/// A machine with an agent of its own.
#[derive(Default)]
struct Host {
    life: u64,
    is_dead: bool,
    events: Option<mpsc::UnboundedSender<RuntimeEvent>>,
    images: BTreeSet<String>,
}

struct Pod {
    host: usize,
    spec: SandboxSpec,
    plan: String,
    containers: BTreeMap<ContainerId, Container>,
    hooks: BTreeMap<(ContainerId, String), Option<HookRecord>>,
}

struct Container {
    image_id: String,
    resources: Resources,
    started: u64,
    exit: Option<ExitRecord>,
    /// When each signal was sent.
    signals: BTreeMap<u8, u64>,
    killed: bool,
}

enum Due {
    Exit {
        uid: String,
        id: ContainerId,
        code: u8,
        signal: Option<u8>,
    },
    HookEnd {
        uid: String,
        id: ContainerId,
        hook: String,
        outcome: HookRecord,
    },
    /// What was not told while the runtime was away.
    Told {
        host: usize,
        event: RuntimeEvent,
    },
}

/// What became of a signal.
pub enum Sent {
    /// It was sent.
    Now,
    /// It was sent then, by the boot clock.
    Before(u64),
    /// There is nobody.
    Gone,
}

impl Machine {
    /// A machine with nothing on it.
    pub fn new(scenario: Scenario, disk: PathBuf) -> Arc<Self> {
        let away =
            scenario.faults.iter().filter_map(|fault| if let Fault::Away(span) = fault { Some(*span) } else { None });
        let inner = Inner { away: away.collect(), ..Inner::default() };
        Arc::new(Self { inner: Mutex::new(inner), scenario, disk })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The platform starts. Its agents have yet to begin lives of their own.
    pub fn begin_life(self: &Arc<Self>) -> Life {
        let mut inner = self.lock();
        inner.life += 1;
        let number = inner.life;
        // What happened while nobody looked has happened.
        inner.advance(now_ms());
        inner.hosts.resize_with(self.scenario.nodes.len() + 1, Host::default);
        inner.hosts.iter_mut().for_each(|host| host.is_dead = false);
        inner.note("-", TraceEvent::Life(number));
        Life {
            machine: Arc::clone(self),
            number,
            host: None,
            crash: Arc::default(),
            host_crash: Arc::default(),
            agenda: Arc::default(),
        }
    }

    /// The platform is gone, and every agent with it. Answers the seam that it died at.
    pub fn end_life(&self) -> Option<String> {
        let mut inner = self.lock();
        inner.hosts.iter_mut().for_each(|host| (host.events, host.life) = (None, host.life + 1));
        let seam = inner.crashed_at.take();
        if let Some(seam) = &seam {
            inner.note("-", TraceEvent::Crash(seam.clone()));
        }
        seam
    }

    /// Power is lost: nothing runs any more.
    pub fn lose_power(&self) {
        let mut inner = self.lock();
        let now = now_ms();
        inner.advance(now);
        inner.note("-", TraceEvent::PowerLost);
        let pods: Vec<String> = inner.sandboxes.keys().cloned().collect();
        for uid in pods {
            let label = inner.labels.get(&uid).cloned().unwrap_or_default();
            let runs = inner.sandboxes[&uid].containers.iter();
            let alive: Vec<Run> = runs.filter(|(_, it)| it.exit.is_none()).map(|(id, _)| run(id)).collect();
            alive.into_iter().for_each(|run| inner.note(&label, TraceEvent::Lost(run)));
            inner.sandboxes.remove(&uid);
            inner.note(&label, TraceEvent::SandboxGone { alive: 0 });
        }
        inner.agenda.clear();
    }

    /// Adds to the trace.
    pub fn note(&self, who: &str, what: TraceEvent) {
        self.lock().note(who, what);
    }

    /// Everything that happened.
    pub fn trace(&self) -> Vec<TraceLine> {
        self.lock().trace.clone()
    }

    /// Every seam that was passed, in order.
    pub fn seams(&self) -> Vec<String> {
        self.lock().seams.clone()
    }

    /// How many acts of users are over.
    pub fn acts_done(&self) -> usize {
        self.lock().acts_done
    }

    /// Another act is over.
    pub fn act_done(&self) {
        self.lock().acts_done += 1;
    }

    /// What a pod is called in the trace: its name, with a number behind it if it is not the first of that name.
    pub fn label(&self, uid: &str, name: &str) -> String {
        self.lock().label(uid, name)
    }

    /// Whether the object of a pod of this plan is stored.
    pub fn has_object(&self, plan: &str) -> bool {
        self.lock().objects.keys().any(|label| plan_name(label) == plan)
    }

    /// Whether the object of a pod of this plan was deleted and is still stored.
    pub fn is_leaving(&self, plan: &str) -> bool {
        self.lock().objects.iter().any(|(label, shown)| shown.deletion.is_some() && plan_name(label) == plan)
    }

    /// The objects that were deleted and are not among these any more: their end was not seen because the agent died with it.
    pub fn gone_unseen(&self, there: &BTreeSet<String>) -> Vec<String> {
        let inner = self.lock();
        let gone = inner.objects.iter().filter(|(label, shown)| shown.deletion.is_some() && !there.contains(*label));
        gone.map(|(label, _)| label.clone()).collect()
    }

    /// Whether the record of an end is still to come.
    pub fn lacks_records(&self) -> bool {
        !self.lock().unrecorded.is_empty()
    }

    /// Whether every workload has become what it is to be in the end.
    pub fn workloads_are_settled(&self) -> bool {
        let inner = self.lock();
        self.scenario.workloads.iter().all(|workload| {
            let pods = inner.objects.iter().filter(|(label, _)| plan_name(label) == workload.name());
            let pods: Vec<&Shown> = pods.map(|(_, shown)| shown).collect();
            let Some((replicas, rollout)) = self.scenario.wanted(workload.name()) else { return pods.is_empty() };
            if workload.kind.is_job() {
                return inner.complete.contains(workload.name()) && pods.iter().all(|pod| pod.deletion.is_none());
            }
            let is_right = |pod: &&&Shown| {
                pod.ready && pod.deletion.is_none() && pod.member.as_ref().is_some_and(|it| it.rollout == rollout)
            };
            let right = pods.iter().filter(is_right).count();
            right == pods.len() && u64::try_from(right) == Ok(replicas)
        })
    }

    /// Whether a sandbox of a pod of this plan is there.
    pub fn has_sandbox(&self, plan: &str) -> bool {
        self.lock().sandboxes.values().any(|pod| pod.plan == plan)
    }

    /// The story's word for a container.
    pub fn plan(&self, pod: &str, container: &str) -> Option<ContainerPlan> {
        let plan = self.scenario.plan(plan_name(pod))?;
        plan.containers.iter().find(|plan| plan.name == container).cloned()
    }
}

/// The node's name is behind that of a static pod.
pub fn plan_name(pod: &str) -> &str {
    pod.split(['-', '#']).next().unwrap_or(pod)
}

impl Life {
    /// The agent of this host begins another life.
    pub fn of_host(&self, host: usize) -> (Self, mpsc::UnboundedReceiver<RuntimeEvent>) {
        let (told, events) = mpsc::unbounded_channel();
        let mut inner = self.machine.lock();
        inner.advance(now_ms());
        let name = self.machine.scenario.host(host).to_owned();
        let is_again = inner.hosts[host].is_dead;
        let here = &mut inner.hosts[host];
        here.life += 1;
        (here.events, here.is_dead) = (Some(told), false);
        let host_life = here.life;
        if is_again {
            inner.note("-", TraceEvent::NodeLife(name));
        }
        (Self { host: Some((host, host_life)), host_crash: Arc::default(), ..self.clone() }, events)
    }

    /// The agent of this life dies, alone.
    pub fn end_host(&self, why: &str) {
        let mut inner = self.machine.lock();
        let host = &mut inner.hosts[self.at()];
        (host.events, host.is_dead, host.life) = (None, true, host.life + 1);
        inner.note("-", TraceEvent::NodeCrash(format!("{}: {why}", self.host_name())));
    }

    /// Which of the hosts it is on.
    fn at(&self) -> usize {
        self.host.map_or(0, |(host, _)| host)
    }

    /// What its host is called.
    pub fn host_name(&self) -> &str {
        self.machine.scenario.host(self.at())
    }

    /// Who passes a seam that is no pod's.
    pub fn nobody(&self) -> &str {
        if self.at() == 0 || self.host_name() == SERVER { "-" } else { self.host_name() }
    }

    fn is_over(&self, inner: &Inner) -> bool {
        let host_is_over = self.host.is_some_and(|(host, life)| inner.hosts[host].life != life);
        inner.life != self.number || inner.crashed_at.is_some() || host_is_over
    }

    /// Passes a seam: waits as long as the story says, and dies there if it says so. Answers which seam it was.
    pub async fn seam(&self, place: &str, who: &str) -> String {
        let mut passed = String::new();
        let delay = {
            let mut inner = self.machine.lock();
            if self.is_over(&inner) {
                None
            } else {
                let count = inner.counts.entry((place.to_owned(), who.to_owned())).or_default();
                *count += 1;
                let count = *count;
                let seam = format!("{place}/{who}/{count}");
                inner.seams.push(seam.clone());
                let scenario = &self.machine.scenario;
                match scenario.crashes.iter().find(|crash| crash.seam == seam) {
                    Some(crash) if crash.is_alone() && self.host.is_some() => {
                        // Nothing of this life is heard of from here on.
                        inner.hosts[self.at()].life += 1;
                        self.host_crash.notify_one();
                        None
                    }
                    Some(_) => {
                        inner.crashed_at = Some(seam);
                        self.crash.notify_one();
                        None
                    }
                    None => {
                        passed = seam;
                        let most = scenario.profile.latency_max(place, who);
                        Some(if most == 0 { 0 } else { dice(scenario.seed, place, who, count).below(most + 1) })
                    }
                }
            }
        };
        match delay {
            None => std::future::pending().await,
            Some(0) => {}
            Some(delay) => tokio::time::sleep(Duration::from_millis(delay)).await,
        }
        passed
    }

    /// What is to go wrong with the verb of this seam.
    pub fn fault(&self, seam: &str, who: &str) -> Option<Fault> {
        let faults = &self.machine.scenario.faults;
        let away = |fault: &&Fault| matches!(fault, Fault::Away(span) if span.covers(now_ms()));
        let fault = faults.iter().find(|fault| fault.seam() == Some(seam)).or_else(|| faults.iter().find(away))?;
        self.machine.note(who, TraceEvent::Fault(fault.to_string()));
        Some(fault.clone())
    }

    /// Dice for something that happens here, and how often it has.
    pub fn chance(&self, place: &str, who: &str) -> testkit::Dice {
        let mut inner = self.machine.lock();
        let count = inner.counts.entry((format!("{place}?"), who.to_owned())).or_default();
        *count += 1;
        dice(self.machine.scenario.seed, place, who, *count)
    }

    /// Resolves when the platform ends by a crash.
    pub async fn crashed(&self) {
        self.crash.notified().await;
    }

    /// Resolves when this agent, and no other, ends by a crash.
    pub async fn host_crashed(&self) {
        self.host_crash.notified().await;
    }

    /// Lets happen what happens by itself, for as long as the life lasts.
    pub async fn keep_agenda(self) {
        loop {
            let next = self.machine.lock().agenda.keys().next().map(|(at, _)| *at);
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep(Duration::from_millis(at.saturating_sub(now_ms()))).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.agenda.notified() => {}
                () = wait => {}
            }
            self.machine.lock().advance(now_ms());
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner, &Scenario) -> T) -> Option<T> {
        let mut inner = self.machine.lock();
        if self.is_over(&inner) {
            return None;
        }
        let answer = change(&mut inner, &self.machine.scenario);
        drop(inner);
        self.agenda.notify_one();
        Some(answer)
    }

    /// What a dead life asks for is never answered.
    async fn alive<T>(answer: Option<T>) -> T {
        match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// What the pod of this UID is called.
    pub fn name(&self, uid: &PodUid) -> String {
        self.machine.lock().labels.get(&uid.0).cloned().unwrap_or_else(|| "?".to_owned())
    }

    /// Makes a sandbox, unless there is one.
    pub async fn make_sandbox(&self, spec: &SandboxSpec) {
        let made = self.with(|inner, _| {
            let label = inner.label(&spec.uid.0, &spec.name);
            if !inner.sandboxes.contains_key(&spec.uid.0) {
                let plan = plan_name(&spec.name).to_owned();
                let (containers, hooks) = (BTreeMap::new(), BTreeMap::new());
                let pod = Pod { host: self.at(), spec: spec.clone(), plan, containers, hooks };
                inner.sandboxes.insert(spec.uid.0.clone(), pod);
                inner.note(&label, TraceEvent::Sandbox(self.host_name().to_owned()));
            }
        });
        Self::alive(made).await;
    }

    /// Whether a run is to be refused, which the story says of its first starts.
    pub async fn begins_start(&self, uid: &PodUid, id: &ContainerId) -> Option<bool> {
        let answer = self.with(|inner, scenario| {
            let plan = inner.sandboxes.get(&uid.0)?.plan.clone();
            let label = inner.label(&uid.0, &plan);
            inner.note(&label, TraceEvent::StartAsked(run(id)));
            let plan_of = scenario.plan(&plan)?.containers.iter().find(|plan| plan.name == id.name)?;
            let refused = inner.refusals.entry((plan, id.name.clone())).or_default();
            let refuses = *refused < plan_of.refusals;
            if refuses {
                *refused += 1;
                inner.note(&label, TraceEvent::Refused(run(id)));
            }
            Some(refuses)
        });
        Self::alive(answer).await
    }

    /// Starts a run unless it was started; answers since when it runs. `None` without a sandbox.
    pub async fn start(&self, uid: &PodUid, id: &ContainerId, image_id: &str, resources: &Resources) -> Option<i64> {
        let answer = self.with(|inner, scenario| {
            let now = now_ms();
            let label = inner.labels.get(&uid.0).cloned().unwrap_or_default();
            let pod = inner.sandboxes.get_mut(&uid.0)?;
            if let Some(container) = pod.containers.get(id) {
                return Some(wall_of_ms(container.started));
            }
            let plan = scenario.plan(&pod.plan)?.containers.iter().find(|plan| plan.name == id.name)?;
            let container = Container {
                image_id: image_id.to_owned(),
                resources: resources.clone(),
                started: now,
                exit: None,
                signals: BTreeMap::new(),
                killed: false,
            };
            pod.containers.insert(id.clone(), container);
            inner.note(&label, TraceEvent::Started(run(id)));
            if let Script::Itself(after, code) = plan.script {
                inner.due(now + after, Due::Exit { uid: uid.0.clone(), id: id.clone(), code, signal: None });
            }
            Some(wall_of_ms(now))
        });
        Self::alive(answer).await
    }

    /// Sends a signal, once.
    pub async fn signal(&self, uid: &PodUid, id: &ContainerId, number: u8) -> Sent {
        let answer = self.with(|inner, scenario| {
            let now = now_ms();
            let label = inner.labels.get(&uid.0).cloned().unwrap_or_default();
            let Some(pod) = inner.sandboxes.get_mut(&uid.0) else { return Sent::Gone };
            let plan = scenario.plan(&pod.plan).and_then(|plan| plan.containers.iter().find(|it| it.name == id.name));
            let Some(container) = pod.containers.get_mut(id).filter(|it| it.exit.is_none()) else { return Sent::Gone };
            if let Some(before) = container.signals.get(&number) {
                let before = boot_ms_of(*before);
                inner.note(&label, TraceEvent::SignalAgain(run(id), number));
                return Sent::Before(before);
            }
            container.signals.insert(number, now);
            inner.note(&label, TraceEvent::Signal(run(id), number));
            let ends = match plan.map(|plan| plan.script) {
                Some(Script::Term(after)) => Some((after, 0)),
                Some(Script::Itself(..)) => Some((0, 143)),
                Some(Script::Deaf) | None => None,
            };
            if let Some((after, code)) = ends {
                inner.due(now + after, Due::Exit { uid: uid.0.clone(), id: id.clone(), code, signal: None });
            }
            Sent::Now
        });
        Self::alive(answer).await
    }

    /// Kills a run. False if there is none.
    pub async fn kill(&self, uid: &PodUid, id: &ContainerId) -> bool {
        let answer = self.with(|inner, _| {
            let now = now_ms();
            let label = inner.labels.get(&uid.0).cloned().unwrap_or_default();
            let pod = inner.sandboxes.get_mut(&uid.0);
            let Some(container) = pod.and_then(|pod| pod.containers.get_mut(id)).filter(|it| it.exit.is_none()) else {
                return false;
            };
            if !container.killed {
                container.killed = true;
                inner.note(&label, TraceEvent::Kill(run(id)));
                inner.due(now + 1, Due::Exit { uid: uid.0.clone(), id: id.clone(), code: 137, signal: Some(9) });
            }
            true
        });
        Self::alive(answer).await
    }

    /// Runs a hook, once. False if its container does not run.
    pub async fn run_hook(&self, uid: &PodUid, id: &ContainerId, hook: &str) -> bool {
        let answer = self.with(|inner, scenario| {
            let now = now_ms();
            let label = inner.labels.get(&uid.0).cloned().unwrap_or_default();
            let Some(pod) = inner.sandboxes.get_mut(&uid.0) else { return false };
            let key = (id.clone(), hook.to_owned());
            if pod.hooks.contains_key(&key) {
                return true;
            }
            if pod.containers.get(id).is_none_or(|container| container.exit.is_some()) {
                return false;
            }
            let plan = scenario.plan(&pod.plan).and_then(|plan| plan.containers.iter().find(|it| it.name == id.name));
            let plan = plan.and_then(|plan| if hook == "preStop" { plan.pre_stop } else { plan.post_start });
            pod.hooks.insert(key, None);
            inner.note(&label, TraceEvent::Hook(run(id), hook.to_owned()));
            let (after, code) = match plan {
                Some(HookPlan::Takes(after)) => (after, 0),
                Some(HookPlan::Fails(after)) => (after, 1),
                Some(HookPlan::Never | HookPlan::Sleeps(_)) | None => return true,
            };
            let outcome = HookRecord::Exited { code, output: None };
            let (uid, id, hook) = (uid.0.clone(), id.clone(), hook.to_owned());
            inner.due(now + after, Due::HookEnd { uid, id, hook, outcome });
            true
        });
        Self::alive(answer).await
    }

    /// Ends a hook that runs.
    pub async fn cancel_hook(&self, uid: &PodUid, id: &ContainerId, hook: &str) {
        let answer = self.with(|inner, _| inner.end_hook(&uid.0, id, hook, HookRecord::Cancelled));
        Self::alive(answer).await;
    }

    /// Removes a sandbox with all that is in it.
    pub async fn remove_sandbox(&self, uid: &PodUid) {
        let answer = self.with(|inner, _| {
            let label = inner.labels.get(&uid.0).cloned().unwrap_or_default();
            let Some(pod) = inner.sandboxes.get(&uid.0) else { return };
            let alive: Vec<ContainerId> =
                pod.containers.iter().filter(|(_, it)| it.exit.is_none()).map(|(id, _)| id.clone()).collect();
            for id in &alive {
                inner.exit(&uid.0, id, 137, Some(9), now_ms());
            }
            inner.sandboxes.remove(&uid.0);
            inner.note(&label, TraceEvent::SandboxGone { alive: alive.len() });
        });
        Self::alive(answer).await;
    }

    /// Everything that is here.
    pub async fn reports(&self) -> Vec<PodReport> {
        let ours = |pod: &&Pod| pod.host == self.at();
        let answer = self.with(|inner, _| inner.sandboxes.values().filter(ours).map(Pod::report).collect());
        Self::alive(answer).await
    }

    /// How long a run has been running; `None` if it does not.
    pub async fn runs_since(&self, uid: &PodUid, id: &ContainerId) -> Option<u64> {
        let answer = self.with(|inner, _| {
            let container = inner.sandboxes.get(&uid.0)?.containers.get(id)?;
            container.exit.is_none().then(|| now_ms().saturating_sub(container.started))
        });
        Self::alive(answer).await
    }

    /// Whether an image is here.
    pub async fn has_image(&self, name: &str) -> bool {
        Self::alive(self.with(|inner, _| inner.hosts[self.at()].images.contains(name))).await
    }

    /// It is from now on.
    pub async fn keep_image(&self, name: &str) {
        Self::alive(self.with(|inner, _| inner.hosts[self.at()].images.insert(name.to_owned()))).await;
    }
}

fn run(id: &ContainerId) -> Run {
    Run { container: id.name.clone(), attempt: id.attempt }
}

impl Pod {
    fn report(&self) -> PodReport {
        let containers = self.containers.iter().map(|(id, container)| ContainerReport {
            id: id.clone(),
            image_id: container.image_id.clone(),
            resources: container.resources.clone(),
            started_wall_ms: wall_of_ms(container.started),
            exit: container.exit,
        });
        let hooks = self.hooks.iter().map(|((id, hook), outcome)| HookReport {
            id: id.clone(),
            hook: hook.clone(),
            outcome: outcome.clone(),
        });
        PodReport {
            spec: self.spec.clone(),
            alive: true,
            sandbox: Sandbox { ips: vec![[10, 86, 0, 2].into()] },
            containers: containers.collect(),
            hooks: hooks.collect(),
        }
    }
}

impl Inner {
    fn note(&mut self, who: &str, what: TraceEvent) {
        self.note_at(now_ms(), who, what);
    }

    fn note_at(&mut self, at: u64, who: &str, what: TraceEvent) {
        if let TraceEvent::Api(shown) = &what {
            self.objects.insert(who.to_owned(), shown.clone());
        } else if let TraceEvent::Job(JobShown { complete: true, .. }) = &what {
            self.complete.insert(who.to_owned());
        } else if what == TraceEvent::ApiGone {
            self.objects.remove(who);
            // A mirror is no pod of its own.
            if !who.starts_with("mirror:") && !self.recorded.contains(who) {
                self.unrecorded.insert(who.to_owned());
            }
        } else if let TraceEvent::Recorded(..) = &what {
            self.unrecorded.remove(who);
            self.recorded.insert(who.to_owned());
        }
        self.trace.push(TraceLine { at, who: who.to_owned(), what });
    }

    fn label(&mut self, uid: &str, name: &str) -> String {
        if let Some(label) = self.labels.get(uid) {
            return label.clone();
        }
        let name = plan_name(name);
        let others = self.labels.values().filter(|label| label.split('#').next() == Some(name)).count();
        let label = if others == 0 { name.to_owned() } else { format!("{name}#{}", others + 1) };
        self.labels.insert(uid.to_owned(), label.clone());
        label
    }

    fn due(&mut self, at: u64, due: Due) {
        self.turns += 1;
        self.agenda.insert((at, self.turns), due);
    }

    /// Lets happen everything that is due.
    fn advance(&mut self, now: u64) {
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((at, _), due) = entry.remove_entry();
            match due {
                Due::Exit { uid, id, code, signal } => self.exit(&uid, &id, code, signal, at),
                Due::HookEnd { uid, id, hook, outcome } => self.end_hook_at(&uid, &id, &hook, outcome, at),
                Due::Told { host, event } => self.send(host, event),
            }
        }
    }

    fn exit(&mut self, uid: &str, id: &ContainerId, code: u8, signal: Option<u8>, at: u64) {
        let exit = ExitRecord { code, signal, oom: false, wall_ms: wall_of_ms(at), seen: true };
        let Some(pod) = self.sandboxes.get_mut(uid) else { return };
        let Some(container) = pod.containers.get_mut(id).filter(|container| container.exit.is_none()) else { return };
        container.exit = Some(exit);
        let host = pod.host;
        let open = pod.hooks.iter().filter(|((of, _), outcome)| of == id && outcome.is_none());
        let open: Vec<String> = open.map(|((_, hook), _)| hook.clone()).collect();
        let label = self.labels.get(uid).cloned().unwrap_or_default();
        self.note_at(at, &label, TraceEvent::Exit(run(id), code));
        for hook in open {
            self.end_hook_at(uid, id, &hook, HookRecord::Cancelled, at);
        }
        self.tell(host, RuntimeEvent::Exited { pod: PodUid(uid.to_owned()), id: id.clone(), exit }, at);
    }

    fn end_hook(&mut self, uid: &str, id: &ContainerId, hook: &str, outcome: HookRecord) {
        self.end_hook_at(uid, id, hook, outcome, now_ms());
    }

    fn end_hook_at(&mut self, uid: &str, id: &ContainerId, hook: &str, outcome: HookRecord, at: u64) {
        let Some(pod) = self.sandboxes.get_mut(uid) else { return };
        let Some(open) = pod.hooks.get_mut(&(id.clone(), hook.to_owned())).filter(|it| it.is_none()) else { return };
        *open = Some(outcome.clone());
        let host = pod.host;
        let label = self.labels.get(uid).cloned().unwrap_or_default();
        let what = match &outcome {
            HookRecord::Cancelled => TraceEvent::HookCancelled(run(id), hook.to_owned()),
            HookRecord::Exited { code, .. } => TraceEvent::HookEnd(run(id), hook.to_owned(), *code == 0),
            HookRecord::Failed { .. } => TraceEvent::HookEnd(run(id), hook.to_owned(), false),
        };
        self.note_at(at, &label, what);
        let (pod, id, hook) = (PodUid(uid.to_owned()), id.clone(), hook.to_owned());
        self.tell(host, RuntimeEvent::HookEnded { pod, id, hook, outcome }, at);
    }

    /// A runtime that is away tells it later.
    fn tell(&mut self, host: usize, event: RuntimeEvent, at: u64) {
        match self.away.iter().find(|span| span.covers(at)).map(|span| span.end()) {
            Some(later) => self.due(later, Due::Told { host, event }),
            None => self.send(host, event),
        }
    }

    fn send(&self, host: usize, event: RuntimeEvent) {
        if let Some(events) = self.hosts.get(host).and_then(|host| host.events.as_ref()) {
            // An agent that does not listen asks later.
            let _ = events.send(event);
        }
    }
}
