//! After a start: every life that the journal remembers goes on, and what nobody remembers is cleared away.

use std::collections::HashMap;
use std::time::Duration;

use lifecycle::{Input, PodWorker};
use runtime::{PodReport, PodUid, Runtime};
use timeline::{Life, Record};
use tracing::{info, warn};

use super::Pods;
use crate::hands::{instance, words};
use crate::statics;
use crate::translate::report::runtime_report;
use crate::translate::status::Facts;

impl<R: Runtime> Pods<R> {
    /// Gives a driver to every life that the journal remembers.
    pub async fn recover(&mut self, lives: Vec<Life>, boot_id: &str) -> Result<(), runtime::RuntimeError> {
        let mut reports: HashMap<String, PodReport> =
            self.tools.runtime.inventory().await?.into_iter().map(|r| (r.spec.uid.0.clone(), r)).collect();
        for life in lives {
            // After another boot nothing of it can have survived, but what was decided about it still holds.
            let report = reports.remove(&life.uid).filter(|_| life.boot_id == boot_id);
            let rebooted = life.boot_id != boot_id;
            self.resume(life, report, rebooted).await;
        }
        for uid in reports.into_keys() {
            warn!(uid, "a sandbox that nobody remembers is removed");
            self.discard(&uid).await;
        }
        self.sweep().await;
        Ok(())
    }

    /// Files of pods that were forgotten just before a crash.
    async fn sweep(&self) {
        let kept = self.tools.manifests.all().await.unwrap_or_default();
        for uid in kept.iter().filter(|uid| !self.drivers.contains_key(*uid)) {
            self.forget_files(uid).await;
        }
    }

    /// Logs first: what is left after a crash is found by its manifest.
    async fn forget_files(&self, uid: &str) {
        if let Err(error) = self.tools.runtime.forget_logs(&PodUid(uid.to_owned())).await {
            warn!(uid, error = words(&error), "the pod's logs could not be removed");
        }
        if let Err(error) = self.tools.manifests.forget(uid).await {
            warn!(uid, %error, "the pod's files could not be removed");
        }
    }

    async fn resume(&mut self, life: Life, report: Option<PodReport>, rebooted: bool) {
        let uid = life.uid.clone();
        let pod = match self.tools.manifests.recall(&uid).await {
            Ok(pod) => pod,
            Err(error) => {
                warn!(uid, %error, "the pod's manifest is lost; its remains are removed");
                return self.discard(&uid).await;
            }
        };
        let mut worker = PodWorker::new(life.spec.clone());
        for (at, _, input, _) in &life.steps {
            worker.handle(*at, input.clone());
        }
        let start = life.steps.first().map(|(_, wall, ..)| *wall);
        let was = life.steps.last().filter(|_| rebooted).map(|(at, wall, ..)| {
            let since = timeline::wall_now().0.saturating_sub(wall.0);
            *at + Duration::from_millis(u64::try_from(since).unwrap_or(0))
        });
        let mut facts = Facts { pod, host_ip: self.tools.host_ip.clone(), start, ..Facts::default() };
        facts.pod_ip = match &report {
            Some(report) => report.sandbox.ip.map(|ip| ip.to_string()),
            None => facts.pod.status.as_ref().and_then(|s| s.pod_ip.clone()),
        };
        for container in report.iter().flat_map(|r| &r.containers) {
            match self.tools.runtime.ensure_image(&container.image_id).await {
                Ok(image) => facts.know_image(&container.id.name, &image),
                Err(_) => _ = facts.image_ids.insert(container.id.name.clone(), container.image_id.clone()),
            }
            if let Some(words) = self.tools.runtime.termination_message(&PodUid(uid.clone()), &container.id).await {
                facts.last_words.insert(instance(&container.id), words);
            }
        }
        info!(uid, pod = life.name, steps = life.steps.len(), "a pod's life goes on");
        let begun = !life.steps.is_empty();
        let is_static = statics::is_static(&facts.pod);
        let inbox = self.begin(&uid, worker, facts, begun);
        if let Some(was) = was {
            let _ = inbox.send(Input::Rebooted { was }).await;
        }
        let report = report.map(runtime_report).unwrap_or_default();
        let _ = inbox.send(Input::AgentRestarted { report }).await;
        if is_static {
            self.resume_static(&life).await;
        }
    }

    async fn discard(&mut self, uid: &str) {
        if let Err(error) = self.tools.runtime.remove_sandbox(&PodUid(uid.to_owned())).await {
            warn!(uid, error = words(&error), "a sandbox could not be removed");
        }
        self.forget_files(uid).await;
        // The next start compacts the record away; until then it is a life that ended.
        drop(self.journal.append(Record::Forgotten { uid: uid.to_owned() }));
    }
}
