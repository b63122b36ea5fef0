//! The worker: told facts and the time, answers with effects.

use alloc::string::String;
use alloc::vec::Vec;

use crate::{Effect, Input, Moment, PodSpec, PodStatus};

/// Decides how one pod lives and leaves. Holds no handle to anything outside itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PodWorker {
    spec: PodSpec,
}

/// A moment to come back at, and why.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Wake {
    /// When.
    pub at: Moment,
    /// Why.
    pub reason: WakeReason,
}

/// Why a worker wants to be woken.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WakeReason {
    /// Placeholder text until the worker names its reasons.
    Other(String),
}

impl PodWorker {
    /// A worker for a pod that nothing has happened to yet.
    pub fn new(spec: PodSpec) -> Self {
        Self { spec }
    }
    /// Tells the worker one thing that happened; returns what to do about it.
    pub fn handle(&mut self, _now: Moment, _input: Input) -> Vec<Effect> {
        let _ = &self.spec;
        Vec::new()
    }
    /// When to come back if nothing else happens, and why.
    pub fn next_wake(&self) -> Option<Wake> {
        None
    }
    /// What others may see.
    pub fn status(&self) -> PodStatus {
        todo!()
    }
    /// True once termination was requested, by whomever.
    pub fn is_terminating(&self) -> bool {
        false
    }
    /// When the pod must be gone, once it is terminating.
    pub fn deadline(&self) -> Option<Moment> {
        None
    }
}
