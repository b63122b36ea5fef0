//! What the node asks of any container runtime, and what it is told unasked: sandboxes and containers, images, streams.
//!
//! Every verb is idempotent: asking twice is answered like asking once, so that a driver which crashed between asking and
//! hearing may simply ask again. Nothing here is of one runtime: `runtime` has the embedded one, and one that speaks CRI fits
//! beside it. Read first: [`Runtime`].

mod capability;
mod container;
mod error;
mod id;
pub mod image;
mod logs;
mod report;
mod runtime;
mod sandbox;
mod streams;
mod usage;

pub use capability::{CAPABILITIES, is_capability};
pub use container::{
    ContainerSpec, Delivery, ExitRecord, LogLimits, Mount, MountSource, Propagation, Resources, Seccomp, Started,
};
pub use error::{Result, RuntimeError};
pub use id::{ContainerId, PodUid};
pub use image::Image;
pub use logs::{log_files, log_generations, numbered_log};
pub use report::{ContainerReport, HookRecord, HookReport, PodReport, RuntimeEvent};
pub use runtime::{
    ConnectionCounts, Containers, DurableHooks, Images, Runtime, Sandboxes, Signals, Statistics, Streams, Unsupported,
};
pub use sandbox::{HostPort, MemoryVolume, Protocol, Sandbox, SandboxSpec};
pub use streams::{ExecSession, ExecSpec, Tether};
pub use usage::{
    AddressRange, ConnectionFilter, Connections, ContainerStats, ContainerStored, ContainerUsage, FirstProcess,
    InvalidAddressRange,
};

/// All verbs, for whoever asks a runtime of a known type.
pub mod verbs {
    pub use crate::{
        ConnectionCounts as _, Containers as _, DurableHooks as _, Images as _, Runtime as _, Sandboxes as _,
        Signals as _, Statistics as _, Streams as _,
    };
}
