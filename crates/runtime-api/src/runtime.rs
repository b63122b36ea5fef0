//! The verbs of a runtime, by noun.
//!
//! [`Runtime`] is all that every runtime can do. What only some can is a trait of its own behind a question that is answered
//! with `None` by the others: [`Signals`], [`DurableHooks`], [`ConnectionCounts`].
//!
//! An answer can get lost ([`RuntimeError::Unanswered`](crate::RuntimeError::Unanswered)). So every verb may be asked for again and is
//! done once: a run by its [`ContainerId`], a hook by its run and name. What is asked about one run is done in the order in which it
//! was asked.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::image::{Image, Keyring, Origin, Prune, Pulled, Removed};
use crate::{
    ConnectionFilter, Connections, ContainerId, ContainerSpec, ContainerStats, ContainerStored, ContainerUsage,
    Delivery, ExecSession, ExecSpec, FirstProcess, PodReport, PodUid, Resources, Result, RuntimeEvent, Sandbox,
    SandboxSpec, Started,
};

/// Pods as a whole: made, found again, removed.
pub trait Sandboxes: Send + Sync + 'static {
    /// The events, once: the first caller gets the receiver.
    fn events(&self) -> Option<mpsc::UnboundedReceiver<RuntimeEvent>>;
    /// All pods the runtime knows, after it has reattached to every shim.
    fn inventory(&self) -> impl Future<Output = Result<Vec<PodReport>>> + Send;
    /// Makes the pod's sandbox.
    fn create_sandbox(&self, spec: &SandboxSpec) -> impl Future<Output = Result<Sandbox>> + Send;
    /// Gives a pod other resources as a whole, and remembers that; less memory than it uses is refused. What its containers have
    /// must fit: more is given to the pod first, and less to the pod last.
    fn set_pod_resources(&self, pod: &PodUid, resources: &Resources) -> impl Future<Output = Result<()>> + Send;
    /// Kills and removes everything of the pod: processes, mounts, namespaces, cgroups, addresses, and all files but
    /// its logs, which can be read until the pod is forgotten.
    /// Returns when no process of it is left; slow kernel work behind that goes on in the background.
    fn remove_sandbox(&self, pod: &PodUid) -> impl Future<Output = Result<()>> + Send;
    /// Deletes the logs of a pod whose sandbox is gone.
    fn forget_logs(&self, pod: &PodUid) -> impl Future<Output = Result<()>> + Send;
    /// Resolves when the files of all sandboxes removed before are deleted, or cannot be: what they took is free again.
    fn tidied(&self) -> impl Future<Output = ()> + Send;
    /// Removes what the runtime keeps between pods (links, rules, routes, cgroup roots). For `adieu down`.
    fn tear_down(&self) -> impl Future<Output = Result<()>> + Send;
}

/// Runs of containers: started, given resources, stopped, killed, remembered.
pub trait Containers: Send + Sync + 'static {
    /// Creates and starts a container; returns when its program runs (or was refused by exec).
    fn start_container(&self, pod: &PodUid, spec: &ContainerSpec) -> impl Future<Output = Result<Started>> + Send;
    /// Gives a running container other resources, and remembers that. Returns what this machine could not apply, in words;
    /// less memory than it uses is refused.
    fn set_resources(
        &self,
        pod: &PodUid,
        id: &ContainerId,
        resources: &Resources,
    ) -> impl Future<Output = Result<Vec<String>>> + Send;
    /// Asks the container's first process to stop, with the signal that its container is stopped with; asked a second time,
    /// it is not sent again. A runtime that was told the signal when it made the container sends that one.
    fn stop(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> impl Future<Output = Result<Delivery>> + Send;
    /// Kills everything in the container, what escaped its first process included, and what is still on its way into it.
    fn kill(&self, pod: &PodUid, id: &ContainerId) -> impl Future<Output = Result<()>> + Send;
    /// The log file of a run (CRI format: `TIME STREAM F|P LINE`); may not exist yet. Full ones are beside it, by the
    /// same name with a growing number behind.
    fn log_path(&self, pod: &PodUid, id: &ContainerId) -> PathBuf;
    /// The container's last words, at most the last 4096 bytes; `None` if it left none.
    fn termination_message(&self, pod: &PodUid, id: &ContainerId) -> impl Future<Output = Option<String>> + Send;
}

/// Images: found, pulled, removed.
pub trait Images: Send + Sync + 'static {
    /// Finds an image that is present, by any of its names, its id, or a name without registry and tag.
    fn ensure_image(&self, name: &str) -> impl Future<Output = Result<Image>> + Send;
    /// Finds an image as `ensure_image` does, and who may use it without asking its registry.
    fn find_image(&self, name: &str) -> impl Future<Output = Result<(Image, Origin)>> + Send;
    /// Asks the image's registry and makes present what the name stands for there. Dropping the future ends it at once.
    fn pull_image(&self, name: &str, keyring: &Keyring) -> impl Future<Output = Result<Pulled>> + Send;
    /// Removes images that may go; never one that a container uses.
    fn prune_images(&self, which: Prune) -> impl Future<Output = Result<Removed>> + Send;
    /// All images that are present.
    fn images(&self) -> impl Future<Output = Result<Vec<Image>>> + Send;
}

/// Programs run inside containers, and connections into pods.
pub trait Streams: Send + Sync + 'static {
    /// Runs a program in a running container, with its streams.
    fn exec(&self, pod: &PodUid, id: &ContainerId, spec: &ExecSpec)
    -> impl Future<Output = Result<ExecSession>> + Send;
    /// Joins the streams of a container's first process, from now on; `command` is of no meaning. The session ends with
    /// the container, or when its reader falls too far behind.
    fn attach(
        &self,
        pod: &PodUid,
        id: &ContainerId,
        spec: &ExecSpec,
    ) -> impl Future<Output = Result<ExecSession>> + Send;
    /// Connects to a TCP port on the pod's own loopback.
    fn connect(&self, pod: &PodUid, port: u16) -> impl Future<Output = Result<OwnedFd>> + Send;
    /// Sets the size of an exec's terminal.
    fn resize(&self, session: &ExecSession, columns: u16, rows: u16) -> Result<()>;
}

/// What pods use of the machine.
pub trait Statistics: Send + Sync + 'static {
    /// What each running container of the pod uses.
    fn stats(&self, pod: &PodUid) -> impl Future<Output = Result<Vec<ContainerStats>>> + Send;
    /// What each run of the pod's containers uses of the machine, looked up now.
    fn usage(&self, pod: &PodUid) -> impl Future<Output = Result<Vec<ContainerUsage>>> + Send;
    /// What each run of the pod's containers has on disk: part of its usage, without a look at its processes.
    fn stored(&self, pod: &PodUid) -> impl Future<Output = Result<Vec<ContainerStored>>> + Send;
    /// The first process of each running container. A runtime that cannot see them tells of none.
    fn first_processes(&self, _pod: &PodUid) -> impl Future<Output = Result<Vec<FirstProcess>>> + Send {
        async { Ok(Vec::new()) }
    }
}

/// Signals beside the one a container is stopped with. CRI has no verb for them.
pub trait Signals: Send + Sync + 'static {
    /// Sends a signal to the container's first process, by pidfd; the same signal a second time is not sent again.
    fn signal(&self, pod: &PodUid, id: &ContainerId, signal: u8) -> impl Future<Output = Result<Delivery>> + Send;
}

/// Programs that run on in their container while the agent is away, each once under its name. With CRI alone a program ends with
/// whoever asked for it.
pub trait DurableHooks: Send + Sync + 'static {
    /// Starts a program as a hook: a child of the shim, never started twice under one name, its outcome recorded.
    fn run_hook(
        &self,
        pod: &PodUid,
        id: &ContainerId,
        hook: &str,
        command: &[String],
    ) -> impl Future<Output = Result<()>> + Send;
    /// Ends a hook that still runs. One that was not begun never will be.
    fn cancel_hook(&self, pod: &PodUid, id: &ContainerId, hook: &str) -> impl Future<Output = Result<()>> + Send;
}

/// How many connections a pod has. CRI does not tell.
pub trait ConnectionCounts: Send + Sync + 'static {
    /// Counts the pod's TCP connections. Of a pod on the host's network those that its own processes have open, and what has
    /// come to the ports they listen on and is not accepted yet.
    fn connections(&self, pod: &PodUid, filter: &ConnectionFilter) -> impl Future<Output = Result<Connections>> + Send;
    /// Waits until no connection to the pod is being opened or waits to be accepted, seen twice in a row; false if that was
    /// not seen in time. `every` is how often the kernel is asked.
    fn settled(&self, pod: &PodUid, every: Duration, within: Duration) -> impl Future<Output = Result<bool>> + Send;
}

/// A container runtime: what the node cannot do without, and the way to the rest.
pub trait Runtime: Sandboxes + Containers + Images + Streams + Statistics {
    /// [`Unsupported`] if there are none.
    type Signals: Signals;
    /// [`Unsupported`] if there are none.
    type DurableHooks: DurableHooks;
    /// [`Unsupported`] if there are none.
    type ConnectionCounts: ConnectionCounts;

    /// Signals beside the one a container is stopped with, if this runtime can send them.
    fn signals(&self) -> Option<&Self::Signals>;
    /// Hooks that outlive the agent, if this runtime can run them.
    fn durable_hooks(&self) -> Option<&Self::DurableHooks>;
    /// The connections of pods, if this runtime can count them.
    fn connection_counts(&self) -> Option<&Self::ConnectionCounts>;
}

/// What a runtime names in the place of something it cannot do. There is none of it.
#[derive(Debug)]
pub enum Unsupported {}

impl Signals for Unsupported {
    async fn signal(&self, _: &PodUid, _: &ContainerId, _: u8) -> Result<Delivery> {
        match *self {}
    }
}

impl DurableHooks for Unsupported {
    async fn run_hook(&self, _: &PodUid, _: &ContainerId, _: &str, _: &[String]) -> Result<()> {
        match *self {}
    }

    async fn cancel_hook(&self, _: &PodUid, _: &ContainerId, _: &str) -> Result<()> {
        match *self {}
    }
}

impl ConnectionCounts for Unsupported {
    async fn connections(&self, _: &PodUid, _: &ConnectionFilter) -> Result<Connections> {
        match *self {}
    }

    async fn settled(&self, _: &PodUid, _: Duration, _: Duration) -> Result<bool> {
        match *self {}
    }
}
