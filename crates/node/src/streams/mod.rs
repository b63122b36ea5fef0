//! The node's own HTTP API: logs, exec, attach, port-forward and what is used, on the paths and in the stream protocols a kubelet speaks.
//!
//! ```text
//!  API server ── byte stream ──> http (routes, upgrade) ──┬── logs ── cri (log format), tail, follow (inotify)
//!                                                         ├── exec ── conversation with one process (exec, attach)
//!                                                         │            ├── websocket   v5, v4, v1 channels
//!                                                         │            └── spdy        frame, headers, connection
//!                                                         └── forward ── one pair of spdy streams a connection
//!                                                                        (tunnel: spdy inside websocket messages)
//! ```
//!
//! This folder knows nothing of pods' lives or of the runtime's insides: whoever serves it says how to find a
//! container through [`Containers`]. It never decides anything; it carries bytes, and says how they ended.

mod cri;
mod error;
mod exec;
mod fd;
mod follow;
mod forward;
mod http;
mod last_lines;
mod listen;
mod logs;
mod ports;
mod query;
mod spdy;
mod tail;
mod tunnel;
mod websocket;

use std::future::Future;
use std::path::PathBuf;

use tokio::sync::watch;

pub use self::error::StreamError;
pub(crate) use self::fd::registered;
pub use self::http::serve_connection;
pub(crate) use self::last_lines::last_lines;
pub use self::listen::listen;

/// One container of one pod, as a client names it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContainerRef {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
}

/// Where a run's log is, and when it will not grow any more.
#[derive(Clone, Debug)]
pub struct LogSource {
    /// The log file, in CRI format. It may not exist yet.
    pub path: PathBuf,
    /// Turns true once the run has ended and its log is complete. A dropped sender means the same.
    pub ended: watch::Receiver<bool>,
}

/// What the node API needs to know of the containers on this node.
pub trait Containers: Send + Sync + 'static {
    /// Answers whether something can be run in this container. Asked before a connection is upgraded, so that a
    /// client learns of a wrong name by a plain HTTP answer.
    fn check(&self, which: &ContainerRef) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Runs a program in the container.
    fn exec(
        &self,
        which: &ContainerRef,
        spec: runtime_api::ExecSpec,
    ) -> impl Future<Output = Result<runtime_api::ExecSession, StreamError>> + Send;

    /// Joins the streams of the container's first process.
    fn attach(
        &self,
        which: &ContainerRef,
        spec: runtime_api::ExecSpec,
    ) -> impl Future<Output = Result<runtime_api::ExecSession, StreamError>> + Send;

    /// Whether the container's input ends with the first who attaches to it (`stdinOnce`).
    fn is_stdin_once(&self, which: &ContainerRef) -> bool;

    /// Answers whether there is such a pod to connect to.
    fn check_pod(&self, namespace: &str, pod: &str) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// Connects to a port on the pod's own loopback.
    fn connect(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
    ) -> impl Future<Output = Result<std::net::TcpStream, StreamError>> + Send;

    /// What the node and its containers use, in the words of a kubelet's summary.
    fn summary(&self) -> impl Future<Output = Result<serde_json::Value, StreamError>> + Send;

    /// How the end of a pod goes, and what its first processes make of their stop signals.
    fn termination(
        &self,
        namespace: &str,
        pod: &str,
    ) -> impl Future<Output = Result<api::termination::TerminationProgress, StreamError>> + Send;

    /// What the node counts, as Prometheus reads it.
    fn metrics(&self) -> String;

    /// The pods that the node was told to run, as a list.
    fn pods(&self) -> serde_json::Value;

    /// What time it is.
    fn now(&self) -> jiff::Timestamp;
    /// Sets the size of the terminal of an exec. A size that cannot be set is not worth an answer.
    fn resize(&self, session: &runtime_api::ExecSession, columns: u16, rows: u16);

    /// Finds the log of the container's present run, or with `previous` of the one before.
    fn log(&self, which: &ContainerRef, previous: bool) -> impl Future<Output = Result<LogSource, StreamError>> + Send;
}
