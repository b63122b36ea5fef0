//! The rules of a pod's life: what should happen to it, and when.
//!
//! [`PodWorker`] is told facts and the time, and answers with effects for someone else to perform.
//! It holds no clock, no socket and no handle to anything outside itself; `no_std` lets the compiler
//! prove that. Reading order: [`spec`] (what a pod asks for), [`input`] (what a worker is told),
//! [`effect`] (what it answers), [`status`] (what others may see), then [`worker`].
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod budget;
pub mod effect;
pub mod input;
pub mod spec;
pub mod status;
pub mod time;
pub mod worker;

pub use budget::GraceBudget;
pub use effect::{Effect, Event, EventKind};
pub use input::{
    ContainerReport, DeleteSighting, Delivery, Exit, HookKind, HookOutcome, HookReport, Input, KillCause, Probe,
    RuntimeReport, SeenContainer,
};
pub use spec::{ContainerName, ContainerSpec, Hook, Instance, PodSpec, Readiness, RestartPolicy, Role, Signal};
pub use status::{Condition, ContainerState, ContainerStatus, PodPhase, PodStatus, Terminated, Waiting};
pub use time::{Moment, Wall};
pub use worker::{PodWorker, Wake, WakeReason};
