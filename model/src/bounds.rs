//! How often each kind of thing may happen in one life. What is spent is part of the state, so every run is finite.

/// How often each kind of thing may still happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Somebody deletes the pod. At least one, or pods that live well would live for ever.
    pub deletes: u8,
    /// Somebody deletes it again with a shorter grace.
    pub shrinks: u8,
    /// The object vanishes: a force delete.
    pub forces: u8,
    /// The node stops, and gives the pod a grace of its own.
    pub shutdowns: u8,
    /// The node is short of something, and gives no grace at all.
    pub evictions: u8,
    /// A container exits although nobody asked it to.
    pub exits: u8,
    /// A hook fails.
    pub hook_failures: u8,
    /// A liveness probe fails.
    pub probes: u8,
    /// The runtime or the API refuses something: a pull, a start, a removal, a final DELETE.
    pub refusals: u8,
    /// The agent dies.
    pub crashes: u8,
    /// The sandbox and all in it vanish, while the agent is away or under a start.
    pub losses: u8,
    /// An answer comes twice; or an answer, the death of a killed process, or the agent itself comes late.
    pub late: u8,
    /// An answer, or the news of a deletion, never comes, although the agent lives.
    pub lost: u8,
    /// Something happens to the traffic that nobody asked for: silence, a call, a word of the application, other siblings.
    pub traffic: u8,
    /// A second passes although nobody waits for it.
    pub pauses: u8,
    /// The file that asked for the pod is removed, nobody claims the pod, or somebody says that it is over, or refused.
    pub dismissals: u8,
    /// The machine is booted anew.
    pub reboots: u8,
}

impl Bounds {
    /// One deletion, and nothing that goes wrong.
    pub const CALM: Self = Self {
        deletes: 1,
        shrinks: 0,
        forces: 0,
        shutdowns: 0,
        evictions: 0,
        exits: 0,
        hook_failures: 0,
        probes: 0,
        refusals: 0,
        crashes: 0,
        losses: 0,
        late: 0,
        lost: 0,
        traffic: 0,
        pauses: 0,
        dismissals: 0,
        reboots: 0,
    };
}
