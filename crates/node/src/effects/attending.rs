//! What goes on beside a run: its probes, and volumes that are kept up to date.

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
        // Whoever is being stopped, alone or with its pod, need not prove that it lives.
        for (instance, running) in &mut self.probes {
            if is_leaving || worker.is_stopping(instance) {
                running.keep_only_readiness();
            }
        }
    }

    pub(super) fn probe(&mut self, instance: &Instance, came_up: bool) {
        let record = self.context.record.get();
        let Some(container) = find_container(&record.pod, &instance.name.0) else { return };
        let target = probing::Target {
            runtime: self.context.tools.runtime.clone(),
            pod: self.context.uid.clone(),
            id: container_id(instance),
            pod_ip: record.pod_ip.clone().unwrap_or_else(|| record.host_ip.clone()),
        };
        let context = self.context.downgrade();
        let tell = move |event| {
            if let Some(context) = context.upgrade() {
                context.say(event);
            }
        };
        if let Some(running) =
            probing::start(&container, (instance, came_up), target, self.context.answers.clone(), tell)
        {
            self.probes.insert(instance.clone(), running);
        }
    }

    pub(super) fn keep_volumes_fresh(&mut self) {
        if self.refreshing.is_none() {
            let context = &self.context;
            let (means, record, run) = (context.tools.volumes(), context.record.clone(), context.run_facts());
            let dir = context.tools.manifests.volumes(&context.uid.0).memory;
            let made = lock(&context.changes).take();
            // Those of an earlier agent may have changed since it went.
            let stale = made.is_none();
            let changes = made.unwrap_or_else(|| context.tools.watches.changes(&context.pod()));
            self.refreshing = Some(self.tasks.spawn(volumes::keep_fresh(means, record, run, dir, changes, stale)));
        }
    }
}
