//! Every container of a pod is run again, because one of them ended in a way that its rules answer so.
//!
//! ```text
//!  one ended ──▶ the others are asked to exit, without hooks and with the least notice ──all have──▶ from the first init container on
//! ```
//!
//! Sandbox and volumes stay, and so do ephemeral containers. No policy has a say, not even of containers that had done their part. The
//! one that caused it waits for its crash back-off, so that a pod that always ends so does not run in circles.

use alloc::vec::Vec;

use crate::container::{Container, Run};
use crate::{Condition, Effect, Moment, PodPhase, PodWorker, Role, Waiting};

/// What is said of a container that was stopped for it.
const RESTARTING: &str = "RestartingAllContainers";
const REMOVED: &str = "The container is removed because RestartAllContainers in place";

impl PodWorker {
    /// Takes it as far as it can be; true while it goes on, and nothing may be started.
    pub(crate) fn advance_restart_of_all(&mut self, now: Moment, out: &mut Vec<Effect>) -> bool {
        if !self.restarting_all {
            return false;
        }
        let affected = || |container: &&mut Container| container.spec.role != Role::Ephemeral;
        for container in self.containers.iter_mut().filter(affected()) {
            container.stop_to_restart_all(now, out);
        }
        if self.containers.iter_mut().filter(affected()).any(|container| container.may_be_alive()) {
            return true;
        }
        for container in self.containers.iter_mut().filter(affected()) {
            if matches!(container.run, Run::Ended) {
                container.run = Run::Unstarted;
            }
        }
        (self.restarting_all, self.initialized) = (false, false);
        false
    }

    /// What others see of it; nothing of a pod that never asks for it.
    pub(crate) fn all_restarting_condition(&self, phase: PodPhase) -> Option<Condition> {
        let asks = |container: &Container| container.spec.restart.as_ref().is_some_and(|own| own.may_restart_all());
        self.containers.iter().any(asks).then(|| {
            let (holds, reason, message) = match phase {
                PodPhase::Succeeded => (false, Some("PodCompleted"), None),
                PodPhase::Failed => (false, Some("PodFailed"), None),
                PodPhase::Pending | PodPhase::Running if self.restarting_all => {
                    let message = "container exited with restart policy rule";
                    (true, Some("RestartAllContainersStarted"), Some(message))
                }
                PodPhase::Pending | PodPhase::Running => (false, None, None),
            };
            Condition { holds, reason: reason.map(Into::into), message: message.map(Into::into) }
        })
    }

    /// What a container waits for meanwhile that runs no more.
    pub(crate) fn waits_for_restart_of_all(&self, container: &Container) -> Option<Waiting> {
        let waits = self.restarting_all && container.spec.role != Role::Ephemeral;
        waits.then(|| Waiting { reason: RESTARTING.into(), message: Some(REMOVED.into()) })
    }
}

impl Container {
    /// Whoever runs is asked to exit at once, and runs again.
    fn stop_to_restart_all(&mut self, now: Moment, out: &mut Vec<Effect>) {
        if let Run::Running(running) = &mut self.run {
            running.replaced = true;
            match &mut running.stop {
                Some(stop) => stop.hurry(now),
                None => self.begin_stop(now, |name| alloc::format!("Stopping container {name}"), out),
            }
        }
    }
}
