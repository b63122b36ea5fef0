//! After a start: every life that the journal remembers goes on, and what nobody remembers is ended.
//!
//! What nobody can say anything about any more (its record or its manifest is lost) leaves by the same rules as every
//! other pod: stop signal, notice, KILL. Only then may a pod of the same UID that somebody wants begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lifecycle::{ContainerSpec, Input, KillCause, Moment, PodSpec, Role};
use runtime_api::{PodReport, PodUid, Runtime, SandboxSpec};
use supervision::error_chain;
use timeline::{Life, Record};
use tracing::{info, warn};

use super::{LeaveReason, Pods};
use crate::driver::PodJournal;
use crate::effects::instance;
use crate::flaws::{self, Flaw};
use crate::record::{PodFact, PodRecord};
use crate::termination_message::termination_message;
use crate::terminations::TerminationStory;
use crate::translate::report::runtime_report;

impl<R: Runtime> Pods<R> {
    /// Gives a driver to every life that the journal remembers.
    pub async fn recover(&mut self, lives: Vec<Life>, boot_id: &str) -> Result<(), runtime_api::RuntimeError> {
        let mut reports: BTreeMap<String, PodReport> =
            self.tools.runtime.inventory().await?.into_iter().map(|r| (r.spec.uid.0.clone(), r)).collect();
        if flaws::has(Flaw::AsksNobody) {
            reports.clear();
        }
        for life in lives {
            // After another boot nothing of it can have survived, but what was decided about it still holds.
            let report = reports.remove(&life.uid).filter(|_| life.boot_id == boot_id);
            let rebooted = life.boot_id != boot_id;
            self.resume(life, report, rebooted, false).await;
        }
        for (uid, report) in reports {
            warn!(uid, "ending an orphan sandbox");
            let life = unknown_life(&report, boot_id, self.tools.clock.now());
            drop(self.journal.append(Record::Adopted {
                uid,
                namespace: life.namespace.clone(),
                name: life.name.clone(),
                spec: life.spec.clone(),
                at: life.adopted_at,
            }));
            self.resume(life, Some(report), false, true).await;
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
            warn!(uid, error = error_chain(&error), "the pod's logs could not be removed");
        }
        if let Err(error) = self.tools.manifests.forget(uid).await {
            warn!(uid, %error, "the pod's files could not be removed");
        }
    }

    async fn resume(&mut self, life: Life, report: Option<PodReport>, rebooted: bool, unknown: bool) {
        let uid = life.uid.clone();
        let (pod, orphan) = match self.tools.manifests.recall(&uid).await {
            Ok(pod) if !unknown && !was_orphaned(&life) => (pod, false),
            Ok(_) => (nameless(&life), true),
            Err(error) => {
                warn!(uid, %error, "the pod's manifest is lost; what is left of it is ended");
                (nameless(&life), true)
            }
        };
        let (worker, story) = TerminationStory::of_life(&life);
        let start = life.start();
        let was = life.last().filter(|_| rebooted).map(|(at, wall)| {
            let since = self.tools.clock.wall_now().0.saturating_sub(wall.0);
            at + Duration::from_millis(u64::try_from(since).unwrap_or(0))
        });
        let pod_ip = match &report {
            Some(report) => report.sandbox.ip().map(|ip| ip.to_string()),
            None => pod.status.as_ref().and_then(|s| s.pod_ip.clone()),
        };
        // What an orphan was granted nobody knows any more: it keeps what it has until it ends.
        let alive = report.as_ref().filter(|report| report.alive && !orphan);
        let resources = alive.map(|report| report.spec.resources.clone());
        let mut record = PodRecord::new(Arc::new(pod), &worker, self.tools.host_ip.clone(), start);
        record.learn(PodFact::Recovered { pod_ip, resources });
        for container in report.iter().flat_map(|r| &r.containers) {
            record.learn(PodFact::Found(Box::new(container.clone())));
            let name = container.id.name.clone();
            record.learn(match self.tools.runtime.ensure_image(&container.image_id).await {
                Ok(image) => PodFact::ImageFound { container: name, wanted: None, image },
                Err(_) => PodFact::ImageId { container: name, id: container.image_id.clone() },
            });
            if let Some(exit) = &container.exit
                && let Some(text) =
                    termination_message(&*self.tools.runtime, &record.pod, &container.id, exit, &self.tools.files).await
            {
                record.learn(PodFact::TerminationMessage { run: instance(&container.id), text });
            }
        }
        info!(uid, pod = life.name, steps = life.steps.len(), "pod recovered from the journal");
        let had_begun = worker.has_begun();
        let begun = orphan || had_begun;
        let is_static = api::pod::is_static(&*record.pod);
        let report = Input::AgentRestarted { report: report.map(runtime_report).unwrap_or_default() };
        let mut first: Vec<Input> = was.map(|was| Input::Rebooted { was }).into_iter().collect();
        let kill = orphan.then_some(Input::KillRequested { cause: KillCause::Orphaned, grace: None });
        // Who is there must be known before a pod that was never begun is ended. One that was begun is ended first, or it
        // would start what it was about to start.
        match had_begun {
            false => first.extend([report].into_iter().chain(kill)),
            true => first.extend(kill.into_iter().chain([report])),
        }
        let pod_journal = PodJournal { start, steps: life.steps.len() };
        self.begin(&uid, worker, record, begun, first, (pod_journal, story));
        if orphan && let Some(handle) = self.drivers.get_mut(&uid) {
            handle.leave(LeaveReason::Unwanted);
            self.orphans.found(&uid);
        }
        if is_static {
            self.resume_static(&life).await;
        }
    }

    /// Nothing is left of a pod that nobody knew: one of the same UID that somebody wants may begin.
    pub(super) async fn follow_orphan(&mut self, uid: &str, successor: Option<Arc<Pod>>) {
        if let Some(pod) = self.desired.get(uid).cloned() {
            self.begin_static(pod);
        } else if let Some(pod) = successor {
            self.changed_or_later(pod, false).await;
        }
    }
}

/// An earlier start found that nobody knows it, and was not left the time to end it.
fn was_orphaned(life: &Life) -> bool {
    let ended_as_one = |input: &Input| matches!(input, Input::KillRequested { cause: KillCause::Orphaned, .. });
    life.steps.iter().any(|(_, _, input, _)| ended_as_one(input))
}

/// All that the runtime alone can tell of a pod: whose it was, and the names of its containers.
fn unknown_life(report: &PodReport, boot_id: &str, now: Moment) -> Life {
    let names: BTreeSet<&str> = report.containers.iter().map(|container| container.id.name.as_str()).collect();
    let SandboxSpec { uid, namespace, name, .. } = &report.spec;
    Life {
        uid: uid.0.clone(),
        namespace: namespace.clone(),
        name: name.clone(),
        spec: PodSpec::new(names.into_iter().map(|name| ContainerSpec::new(name, Role::Main)).collect()),
        adopted_at: now,
        boot_id: boot_id.to_owned(),
        fold: None,
        steps: Vec::new(),
    }
}

/// A pod of which only the names are known.
fn nameless(life: &Life) -> Pod {
    let metadata = ObjectMeta {
        namespace: Some(life.namespace.clone()),
        name: Some(life.name.clone()),
        uid: Some(life.uid.clone()),
        ..ObjectMeta::default()
    };
    Pod { metadata, ..Pod::default() }
}
