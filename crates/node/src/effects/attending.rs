//! What goes on beside a run: its probes, and volumes that are kept up to date.

use std::sync::Arc;

use lifecycle::{Input, Instance, PodWorker};
use runtime_api::Runtime;

use super::{EffectExecutor, container_id, lock};
use crate::probing;
use crate::translate::find_container;
use crate::volumes;

impl<R: Runtime> EffectExecutor<R> {
    /// Keeps probes and volumes in step with what was seen: they begin with a run and end with it.
    pub fn attend(&mut self, input: &Input, worker: &PodWorker) {
        if let Input::Started { instance, .. } = input {
            self.probe(instance, false);
            self.keep_volumes_fresh();
        } else if let Input::Exited { instance, .. } = input {
            let mut facts = lock(&self.context.facts);
            facts.has.remove(instance);
            // No other run of it is waited for that will never come.
            if worker.has_ended(&instance.name) {
                facts.resize.restarting.remove(&instance.name.0);
            }
            drop(facts);
            self.context.granted.notify_one();
            self.probes.remove(instance);
        } else if let Input::AgentRestarted { report } = input {
            // Whoever made the sandbox had made the volumes; the next start makes sure of them.
            if worker.status().ready_to_start_containers.holds {
                self.context.has_volumes.send_replace(true);
            }
            for container in &report.containers {
                if matches!(container.seen, lifecycle::SeenContainer::Running { .. }) {
                    let name = &container.instance.name;
                    let came_up = worker.status().containers.iter().any(|it| it.name == *name && it.started);
                    self.probe(&container.instance, came_up);
                    self.keep_volumes_fresh();
                }
            }
        }
        let is_leaving = worker.is_terminating();
        if is_leaving {
            self.context.leaving.send_replace(true);
        }
        // Whoever is being stopped, alone or with its pod, need not prove that it lives.
        for (instance, running) in &mut self.probes {
            if is_leaving || worker.is_stopping(instance) {
                running.keep_only_readiness();
            }
        }
    }

    pub(super) fn probe(&mut self, instance: &Instance, came_up: bool) {
        let facts = lock(&self.context.facts);
        let Some(container) = find_container(&facts.pod, &instance.name.0) else { return };
        let target = probing::Target {
            runtime: self.context.tools.runtime.clone(),
            pod: self.context.uid.clone(),
            id: container_id(instance),
            pod_ip: facts.pod_ip.clone().unwrap_or_else(|| facts.host_ip.clone()),
        };
        let context = Arc::downgrade(&self.context);
        let tell = move |event| {
            if let Some(context) = context.upgrade() {
                context.say(event);
            }
        };
        if let Some(running) = probing::start(&container, (instance, came_up), target, self.context.inbox.clone(), tell)
        {
            self.probes.insert(instance.clone(), running);
        }
    }

    pub(super) fn keep_volumes_fresh(&mut self) {
        if self.refreshing.is_none() {
            let context = &self.context;
            let (means, facts, run) = (context.tools.volumes(), context.facts.clone(), context.run_facts());
            let dir = context.tools.manifests.volumes(&context.uid.0).memory;
            let made = lock(&context.changes).take();
            // Those of an earlier agent may have changed since it went.
            let stale = made.is_none();
            let changes = made.unwrap_or_else(|| context.tools.watches.changes(&context.pod()));
            self.refreshing = Some(self.tasks.spawn(volumes::keep_fresh(means, facts, run, dir, changes, stale)));
        }
    }
}
