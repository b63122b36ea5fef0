//! What agent and shim say to each other, one message per packet.
//!
//! Records are on disk before a shim tells of them, so an agent that connects first and reads the disk second
//! misses nothing; there is no request for state.

use serde::{Deserialize, Serialize};

use crate::contract::{ContainerId, Delivery, ExecSpec, ExitRecord, HookRecord, Resources};

/// A numbered request; the number comes back with its answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) number: u64,
    pub(crate) request: Request,
}

/// What an agent may ask.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Create and start the run whose `plan.json` is on disk.
    Start { id: ContainerId },
    /// Send a signal to its first process. `dated` asks to be told when, should it have been sent before; an agent of an
    /// earlier version does not know that answer.
    Signal {
        id: ContainerId,
        signal: u8,
        #[serde(default)]
        dated: bool,
    },
    /// Give it these resources instead of those it has.
    SetResources { id: ContainerId, resources: Resources },
    /// Kill everything in it.
    Kill { id: ContainerId },
    /// Run a program in it; the streams come with the answer.
    Exec { id: ContainerId, spec: ExecSpec },
    /// Join the streams of its first process; they come with the answer.
    Attach { id: ContainerId, spec: ExecSpec },
    /// Run a program in it, once under this name, and keep its outcome.
    RunHook { id: ContainerId, hook: String, command: Vec<String> },
    /// End that program.
    CancelHook { id: ContainerId, hook: String },
    /// Kill everything and exit.
    Shutdown,
}

/// What a shim says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ShimMessage {
    /// To whoever connects, once the sandbox is ready.
    Hello { pid: i32 },
    /// To whoever asked.
    Answer { number: u64, answer: Answer },
    /// To everyone: on disk, and nothing of the container runs any more.
    Exited { id: ContainerId, exit: ExitRecord },
    /// To everyone: on disk.
    HookEnded { id: ContainerId, hook: String, outcome: HookRecord },
    /// To whoever asked for that exec, or is attached.
    ExecEnded { number: u64, code: u8 },
    /// To whoever was attached and did not keep up.
    Detached { number: u64 },
}

/// How a request was answered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It is done, or had been done before.
    Done,
    /// The program runs since then.
    Started { wall_ms: i64, warnings: Vec<String> },
    /// It has other resources, but for what could not be applied.
    ResourcesSet { warnings: Vec<String> },
    /// What became of the signal.
    Signalled(Delivery),
    /// The program runs; with the answer come the terminal's master, or the asked-for streams in order.
    Exec,
    /// There is no such container, or it does not run.
    NotRunning,
    /// It could not be done.
    Refused { message: String },
}
