//! The rules of a pod's life: what should happen to it, and when.
//!
//! [`PodWorker`] is told facts and the time, and answers with effects for someone else to perform.
//! It holds no clock, no socket and no handle to anything outside itself; `no_std` lets the compiler
//! prove that. Reading order: [`spec`] (what a pod asks for), [`input`] (what a worker is told),
//! [`effect`] (what it answers), [`status`] (what others may see), then [`worker`], which names the rest.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod budget;
mod effect;
pub mod eviction;
pub mod input;
pub mod message;
pub mod shutdown;
pub mod spec;
pub mod status;
mod succession;
pub mod time;
pub mod traffic;
mod wake;
pub mod worker;

mod barrier;
mod container;
mod departure;
mod detour;
mod fingerprint;
mod image;
mod living;
mod phase;
mod reattach;
mod reboot;
mod restart;
mod restart_all;
mod restart_rules;
mod snapshot;
mod stop;
mod termination;
mod view;
mod waiter;

pub use budget::{GraceBudget, LEAST_GRACE};
pub use effect::{Effect, Event, EventKind, KillOutcome};
pub use eviction::Pressure;
pub use image::{ANY_EDITION, BACK_OFF_PULLING};
pub use input::{
    ContainerReport, DeleteSighting, Delivery, Exit, HookKind, HookOutcome, HookReport, Input, KillCause, Probe,
    RuntimeReport, SeenContainer, SpecChange,
};
pub use restart_rules::{ContainerRestart, ExitCodes, RestartAction, RestartRule};
pub use shutdown::{LeavingPod, PriorityBudget, Shutdown, ShutdownBudgets, ShutdownStep};
pub use snapshot::{ContainerSnapshot, ImageSnapshot, PodSnapshot, RunSnapshot};
pub use spec::{
    ContainerName, ContainerSpec, Hook, Instance, PodIdentity, PodSpec, ProbeSpec, Readiness, RestartPolicy, Role,
    Signal,
};
pub use status::{
    Condition, ContainerState, ContainerStatus, PodPhase, PodStatus, Terminated, TerminationVerdict, Waiting,
};
pub use stop::LEAST_NOTICE;
pub use succession::{Admission, Source, Succession};
pub use time::{Moment, Wall};
pub use traffic::{BarrierMode, BestEvidence, Cut, DrainSpec, LastEndpoint, Release, Routes, TrafficNews};
pub use wake::{Wake, WakeReason};
pub use worker::PodWorker;
