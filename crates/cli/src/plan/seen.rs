//! What `kubectl get pod` shows of a pod.

use lifecycle::{ContainerState, ContainerStatus, PodPhase, PodStatus, Role};
use serde::Serialize;

/// A row of `kubectl get pod`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    /// `1/2`.
    pub(super) ready: String,
    /// `Terminating`.
    pub(super) status: String,
}

impl Seen {
    /// There is no such pod.
    pub(super) fn nothing() -> Self {
        Self { ready: String::new(), status: "NotFound".to_owned() }
    }

    /// Of a pod with that status; `deleted` if somebody asked for its end.
    pub(super) fn of(status: &PodStatus, deleted: bool) -> Self {
        let counted: Vec<&ContainerStatus> =
            status.containers.iter().filter(|it| matches!(it.role, Role::Main | Role::Sidecar)).collect();
        let ready = counted.iter().filter(|container| container.ready).count();
        let word = match status.phase {
            PodPhase::Succeeded => "Completed".to_owned(),
            PodPhase::Failed => "Error".to_owned(),
            PodPhase::Pending | PodPhase::Running if deleted => "Terminating".to_owned(),
            PodPhase::Pending | PodPhase::Running => going(status),
        };
        Self { ready: format!("{ready}/{}", counted.len()), status: word }
    }
}

/// The word for a pod that is to run: that of the first init container that is not done, or of the last container that
/// has something to say.
fn going(status: &PodStatus) -> String {
    let init: Vec<&ContainerStatus> = status.containers.iter().filter(|it| it.role == Role::Init).collect();
    let done = |container: &&&ContainerStatus| matches!(&container.state, ContainerState::Terminated(ended) if ended.exit_code == 0);
    if let Some(next) = init.iter().find(|container| !done(container)) {
        return match said(next) {
            Some(reason) if reason != "PodInitializing" => format!("Init:{reason}"),
            Some(_) | None => format!("Init:{}/{}", init.iter().filter(done).count(), init.len()),
        };
    }
    let main = || status.containers.iter().filter(|container| container.role == Role::Main);
    let runs = main().any(|container| matches!(container.state, ContainerState::Running { .. }) && container.ready);
    // The first of the list has the last word.
    let reason = main().find_map(said).filter(|reason| !(runs && reason == "Completed"));
    reason.unwrap_or_else(|| format!("{:?}", status.phase))
}

fn said(container: &ContainerStatus) -> Option<String> {
    match &container.state {
        ContainerState::Waiting(waiting) => Some(waiting.reason.clone()).filter(|reason| !reason.is_empty()),
        ContainerState::Terminated(ended) => Some(ended.reason.clone()),
        ContainerState::Running { .. } => None,
    }
}
