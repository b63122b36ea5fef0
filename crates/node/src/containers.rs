//! The node's containers as its HTTP API (logs, exec) needs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::termination::{ProcessSignals, TerminationProgress};
use jiff::Timestamp;
use lifecycle::{ContainerState, ContainerStatus, Moment, Signal};
use runtime_api::{ContainerId, ExecSession, ExecSpec, FirstProcess, Runtime};
use serde_json::{Value, json};
use timeline::Clock;
use tokio::sync::watch;

use crate::pods::{Directory, PodReader};
use crate::record::{PodRecord, RecordReader};
use crate::streams::{ContainerRef, Containers, LogSource, StreamError};
use crate::terminations::TerminationMetrics;
use crate::usage::Usage;

/// Finds containers by the names people use.
pub struct NodeContainers<R: Runtime> {
    runtime: Arc<R>,
    directory: Directory,
    node: String,
    usage: Usage,
    clock: Clock,
    terminations: Arc<TerminationMetrics>,
}

impl<R: Runtime> NodeContainers<R> {
    /// Containers of the pods in `directory`, on the node called `node`.
    pub fn new(
        runtime: Arc<R>,
        directory: Directory,
        node: String,
        clock: Clock,
        terminations: Arc<TerminationMetrics>,
    ) -> Self {
        Self { runtime, directory, node, usage: Usage::default(), clock, terminations }
    }

    /// Who is on its way out, by namespace and name, and by when it must be gone.
    pub fn leaving(&self) -> BTreeMap<(String, String), Timestamp> {
        let (now, wall) = (self.clock.now(), crate::timestamp(&self.clock));
        let leaving = |reader: PodReader| {
            let record = reader.record.get();
            let deadline = record.deadline.filter(|_| !record.at_rest)?;
            let when = if deadline >= now {
                wall.checked_add(deadline.since(now))
            } else {
                wall.checked_sub(now.since(deadline))
            };
            let meta = &record.pod.metadata;
            Some(((meta.namespace.clone()?, meta.name.clone()?), when.ok()?))
        };
        self.directory.all().into_iter().filter_map(leaving).collect()
    }

    fn pod(&self, which: &ContainerRef) -> Result<PodReader, StreamError> {
        let found = self.directory.find(&which.namespace, &which.pod);
        found.ok_or_else(|| StreamError::not_found(format!("pod {:?} is not on this node", which.pod)))
    }

    fn status(&self, which: &ContainerRef) -> Result<(PodReader, ContainerStatus), StreamError> {
        let entry = self.pod(which)?;
        let status = entry.record.get().container(&which.container).cloned();
        match status {
            Some(status) => Ok((entry, status)),
            None => Err(StreamError::bad_request(format!(
                "container {} is not valid for pod {}",
                which.container, which.pod
            ))),
        }
    }

    fn running(&self, which: &ContainerRef) -> Result<(PodReader, ContainerId), StreamError> {
        let (entry, status) = self.status(which)?;
        match status.state {
            ContainerState::Running { .. } => {
                Ok((entry, ContainerId { name: which.container.clone(), attempt: status.attempt }))
            }
            ContainerState::Waiting(_) | ContainerState::Terminated(_) => {
                Err(StreamError::not_found(format!("container not found ({:?})", which.container)))
            }
        }
    }
}

/// What a process makes of this signal.
fn signals_of(process: &FirstProcess, signal: Signal) -> ProcessSignals {
    let bit = 1_u64.checked_shl(u32::from(signal.0).saturating_sub(1)).unwrap_or(0);
    let disposition = match () {
        () if process.blocked & bit != 0 => "Blocked",
        () if process.ignored & bit != 0 => "Ignored",
        () if process.caught & bit != 0 => "Caught",
        () => "Default",
    };
    ProcessSignals {
        container: process.id.name.clone(),
        name: process.name.clone(),
        pid: process.pid,
        signal: signal.to_string(),
        disposition: disposition.to_owned(),
    }
}

/// A pod, whichever its containers.
fn whole(namespace: &str, pod: &str) -> ContainerRef {
    ContainerRef { namespace: namespace.to_owned(), pod: pod.to_owned(), container: String::new() }
}

impl<R: Runtime> Containers for NodeContainers<R> {
    async fn check(&self, which: &ContainerRef) -> Result<(), StreamError> {
        self.running(which).map(drop)
    }

    async fn exec(&self, which: &ContainerRef, spec: ExecSpec) -> Result<ExecSession, StreamError> {
        let (entry, id) = self.running(which)?;
        self.runtime
            .exec(&entry.uid, &id, &spec)
            .await
            .map_err(|error| StreamError::internal("cannot run this in the container", error))
    }

    async fn attach(&self, which: &ContainerRef, spec: ExecSpec) -> Result<ExecSession, StreamError> {
        let (entry, id) = self.running(which)?;
        self.runtime
            .attach(&entry.uid, &id, &spec)
            .await
            .map_err(|error| StreamError::internal("cannot attach to the container", error))
    }

    fn is_stdin_once(&self, which: &ContainerRef) -> bool {
        let Ok((entry, _)) = self.running(which) else { return false };
        let pod = entry.record.pod();
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.filter(|own| own.name == which.container).any(|own| own.stdin_once == Some(true))
    }

    async fn check_pod(&self, namespace: &str, pod: &str) -> Result<(), StreamError> {
        self.pod(&whole(namespace, pod)).map(drop)
    }

    async fn connect(&self, namespace: &str, pod: &str, port: u16) -> Result<std::net::TcpStream, StreamError> {
        let entry = self.pod(&whole(namespace, pod))?;
        let connected = self.runtime.connect(&entry.uid, port).await;
        connected.map(Into::into).map_err(|error| StreamError::internal("cannot reach the pod", error))
    }

    fn now(&self) -> Timestamp {
        crate::timestamp(&self.clock)
    }

    async fn summary(&self) -> Result<Value, StreamError> {
        Ok(self.usage.summary(&self.node, &*self.runtime, &self.directory, &self.clock).await)
    }

    async fn termination(&self, namespace: &str, pod: &str) -> Result<TerminationProgress, StreamError> {
        let entry = self.pod(&whole(namespace, pod))?;
        let record = entry.record.get();
        // A runtime that cannot say now says nothing.
        let processes = self.runtime.first_processes(&entry.uid).await.unwrap_or_default();
        let processes = processes.iter().filter_map(|process| {
            let status = record.container(&process.id.name)?;
            let is_newest = status.attempt == process.id.attempt;
            is_newest.then(|| signals_of(process, status.stop_signal.unwrap_or(Signal::TERM)))
        });
        let now = self.clock.now();
        let from_now = |at: Moment| {
            let ahead = i64::try_from(at.since(now).as_millis()).unwrap_or(i64::MAX);
            if ahead > 0 { ahead } else { -i64::try_from(now.since(at).as_millis()).unwrap_or(i64::MAX) }
        };
        let leaving = record.leaving.as_deref();
        let next = leaving.and_then(|leaving| leaving.next.as_ref());
        Ok(TerminationProgress {
            waits_for: leaving.map(|leaving| leaving.waits_for.clone()).unwrap_or_default(),
            next: next.map(|next| next.reason.to_string()).unwrap_or_default(),
            next_in_milliseconds: next.map(|next| from_now(next.at)),
            deadline_in_milliseconds: record.deadline.map(from_now),
            record: leaving.map(|leaving| leaving.story.record(&record.pod, &self.node)),
            processes: processes.collect(),
        })
    }

    fn metrics(&self) -> String {
        self.terminations.text()
    }

    fn pods(&self) -> Value {
        let items: Vec<Value> = self.directory.all().iter().map(|reader| json!(*reader.record.pod())).collect();
        json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items })
    }

    fn resize(&self, session: &ExecSession, columns: u16, rows: u16) {
        // A size that cannot be set is not worth an answer.
        let _ = self.runtime.resize(session, columns, rows);
    }

    async fn log(&self, which: &ContainerRef, previous: bool) -> Result<LogSource, StreamError> {
        let (entry, status) = self.status(which)?;
        let attempt = if previous {
            status.last.as_ref().map(|last| last.attempt).ok_or_else(|| {
                StreamError::bad_request(format!(
                    "previous terminated container {:?} in pod {:?} not found",
                    which.container, which.pod
                ))
            })?
        } else {
            match (&status.state, &status.last) {
                // A container that waits for its next run still has the log of its last one.
                (ContainerState::Waiting(_), Some(last)) => last.attempt,
                (ContainerState::Waiting(waiting), None) => {
                    return Err(StreamError::bad_request(format!(
                        "container {:?} in pod {:?} is waiting to start: {}",
                        which.container, which.pod, waiting.reason
                    )));
                }
                (ContainerState::Running { .. } | ContainerState::Terminated(_), _) => status.attempt,
            }
        };
        let id = ContainerId { name: which.container.clone(), attempt };
        let path = self.runtime.log_path(&entry.uid, &id);
        Ok(LogSource { path, ended: ended(entry.record, id) })
    }
}

/// Turns true when that run has ended.
fn ended(mut record: RecordReader, id: ContainerId) -> watch::Receiver<bool> {
    let (told, ended) = watch::channel(false);
    tokio::spawn(async move {
        let over = |record: &PodRecord| {
            let container = record.container(&id.name);
            container.is_none_or(|c| c.attempt > id.attempt || !matches!(c.state, ContainerState::Running { .. }))
        };
        tokio::select! {
            // A pod that is gone is over too.
            () = record.wait_until(over) => {}
            () = told.closed() => return,
        }
        told.send_replace(true);
    });
    ended
}
