//! What happened, line by line: all that laws may look at.

use std::fmt;

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceLine {
    /// Milliseconds since the world began.
    pub at: u64,
    /// To whom: a pod, or `-`.
    pub who: String,
    /// What.
    pub what: TraceEvent,
}

/// One run of a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Run {
    /// Which container.
    pub container: String,
    /// Which attempt.
    pub attempt: u32,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.container, self.attempt)
    }
}

/// What the API shows of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// Its phase.
    pub phase: String,
    /// By when it is to be gone, in milliseconds of the world, and with which grace, once it was deleted.
    pub deletion: Option<(i64, i64)>,
    /// The runs that are shown as ended, each with its code. Attempts are known of the newest run alone.
    pub ended: Vec<(Run, i32)>,
    /// The containers that are shown as running, each with its run.
    pub running: Vec<Run>,
    /// Whether it is shown as ready.
    pub ready: bool,
    /// The node that it is bound to.
    pub node: Option<String>,
    /// Its revision.
    pub revision: u64,
    /// Which it is among the pods of its workload.
    pub member: Option<Member>,
}

/// A pod of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The name of the object: of a StatefulSet, its identity.
    pub name: String,
    /// By which rollout its template came.
    pub rollout: u64,
    /// Its index in a Job.
    pub index: Option<u64>,
}

/// What the API shows of a Job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobShown {
    /// So many pods have succeeded.
    pub succeeded: u64,
    /// It is complete.
    pub complete: bool,
}

/// What can happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceEvent {
    /// An agent starts, by its number.
    Life(u64),
    /// The agent dies at this seam.
    Crash(String),
    /// The agent of this node starts again.
    NodeLife(String),
    /// The agent of a node dies alone: which, and where.
    NodeCrash(String),
    /// Nothing runs any more, and what was not synced may be lost.
    PowerLost,
    /// A run ended with the power.
    Lost(Run),
    /// Something goes wrong that the story asks for.
    Fault(String),
    /// A user does something.
    User(String),
    /// Its sandbox is made, on this node.
    Sandbox(String),
    /// Its sandbox is removed; so many of its runs were alive.
    SandboxGone { alive: usize },
    /// The runtime is asked to start a run.
    StartAsked(Run),
    /// It runs.
    Started(Run),
    /// It cannot be started.
    Refused(Run),
    /// A hook begins.
    Hook(Run, String),
    /// A hook ends, well or not.
    HookEnd(Run, String, bool),
    /// A hook is ended.
    HookCancelled(Run, String),
    /// A run gets its stop signal.
    Signal(Run, u8),
    /// The runtime is asked again to send what it has sent.
    SignalAgain(Run, u8),
    /// A run is killed.
    Kill(Run),
    /// A run ended.
    Exit(Run, u8),
    /// The object is stored like this.
    Api(Shown),
    /// The object is gone.
    ApiGone,
    /// A Job is stored like this.
    Job(JobShown),
    /// A user evicts it.
    Evicted,
    /// A record of its end is stored, by this name and with this verdict.
    Recorded(String, String),
    /// The node was told that the pod is to go.
    Heard,
    /// A request of the node, and how it was answered.
    Request(String),
    /// All pods have left, and the node may go down.
    ShutDown,
    /// The node itself failed.
    NodeFailed(String),
}

impl fmt::Display for TraceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}.{:03}  {:<4} ", self.at / 1000, self.at % 1000, self.who)?;
        match &self.what {
            TraceEvent::Life(number) => write!(f, "agent {number} starts"),
            TraceEvent::Crash(seam) => write!(f, "agent dies at {seam}"),
            TraceEvent::NodeLife(name) => write!(f, "agent of {name} starts again"),
            TraceEvent::NodeCrash(seam) => write!(f, "agent of {seam}"),
            TraceEvent::PowerLost => f.write_str("power is lost"),
            TraceEvent::Lost(run) => write!(f, "{run} ends with the power"),
            TraceEvent::Fault(words) => write!(f, "goes wrong: {words}"),
            TraceEvent::User(act) => write!(f, "user: {act}"),
            TraceEvent::Sandbox(node) => write!(f, "sandbox made on {node}"),
            TraceEvent::SandboxGone { alive: 0 } => f.write_str("sandbox removed"),
            TraceEvent::SandboxGone { alive } => write!(f, "sandbox removed with {alive} alive"),
            TraceEvent::StartAsked(run) => write!(f, "{run} is to start"),
            TraceEvent::Started(run) => write!(f, "{run} started"),
            TraceEvent::Refused(run) => write!(f, "{run} cannot be started"),
            TraceEvent::Hook(run, hook) => write!(f, "{run} {hook} begins"),
            TraceEvent::HookEnd(run, hook, well) => write!(f, "{run} {hook} {}", if *well { "ends" } else { "fails" }),
            TraceEvent::HookCancelled(run, hook) => write!(f, "{run} {hook} is cut off"),
            TraceEvent::Signal(run, number) => write!(f, "{run} gets signal {number}"),
            TraceEvent::SignalAgain(run, number) => write!(f, "{run} had signal {number} already"),
            TraceEvent::Kill(run) => write!(f, "{run} is killed"),
            TraceEvent::Exit(run, code) => write!(f, "{run} exited with {code}"),
            TraceEvent::Api(shown) => {
                write!(f, "api: {}{}", shown.phase, if shown.ready { ", ready" } else { "" })?;
                if let Some((at, grace)) = shown.deletion {
                    write!(f, ", to be gone at {}.{:03} (grace {grace} s)", at / 1000, at % 1000)?;
                }
                shown.running.iter().try_for_each(|run| write!(f, ", {run} runs"))?;
                shown.ended.iter().try_for_each(|(run, code)| write!(f, ", {run} ended with {code}"))?;
                if let Some(Member { name, rollout, .. }) = &shown.member {
                    write!(f, ", {name} of rollout {rollout}")?;
                }
                write!(f, " @{}", shown.revision)
            }
            TraceEvent::ApiGone => f.write_str("api: gone"),
            TraceEvent::Job(JobShown { succeeded, complete }) => {
                write!(f, "job: {succeeded} succeeded{}", if *complete { ", complete" } else { "" })
            }
            TraceEvent::Evicted => f.write_str("user: evict"),
            TraceEvent::Recorded(name, verdict) => write!(f, "recorded as {name}: {verdict}"),
            TraceEvent::Heard => f.write_str("the node hears that it is to go"),
            TraceEvent::Request(words) => write!(f, "request {words}"),
            TraceEvent::ShutDown => f.write_str("every pod has left; the node may go down"),
            TraceEvent::NodeFailed(why) => write!(f, "the node failed: {why}"),
        }
    }
}

/// All of it, or what concerns one pod.
pub fn render(trace: &[TraceLine], who: Option<&str>) -> String {
    let shown = |line: &&TraceLine| {
        who.is_none_or(|who| line.who == who || matches!(line.what, TraceEvent::Life(_) | TraceEvent::Crash(_)))
            && (who.is_none() || !matches!(line.what, TraceEvent::Request(_)))
    };
    trace.iter().filter(shown).map(|line| format!("{line}\n")).collect()
}
