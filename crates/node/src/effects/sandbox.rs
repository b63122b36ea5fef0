//! The sandbox of a pod and its volumes: made together, removed at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{EventKind, Input};
use runtime_api::{Runtime, Sandbox, SandboxSpec};

use supervision::error_chain;
use tracing::{info, warn};

use super::breaking::{PART, asked, caught};
use super::{PodContext, lock};
use crate::record::PodFact;
use crate::translate::container::RunFacts;
use crate::translate::resolv_conf::{self, DnsFacts};
use crate::translate::sandbox::{ports_not_mapped, sandbox_spec};
use crate::translate::unmet;
use crate::volumes::{self, Prepared, VolumeError};

/// How long the end of a pod waits for its volumes.
const VOLUMES_REMOVED: Duration = Duration::from_secs(10);

impl<R: Runtime> PodContext<R> {
    /// Makes volumes and sandbox side by side: neither needs the other, and nothing is started without both.
    pub(super) async fn create_sandbox(&self) {
        let pod = self.pod();
        let granted = self.record.get().as_granted(&pod);
        let facts = DnsFacts { cluster_dns: &self.tools.cluster_dns, host: &self.tools.machine.resolv_conf };
        let resolv_conf = resolv_conf::of_pod(&granted, facts);
        let spec = SandboxSpec {
            pids_max: self.tools.pod_pids_max,
            resolv_conf: Some(resolv_conf.text),
            ..sandbox_spec(&granted)
        };
        let run_facts = self.run_facts();
        let making =
            async { tokio::join!(self.tools.runtime.create_sandbox(&spec), self.make_volumes(&pod, &run_facts)) };
        let (sandbox, volumes) = match supervision::catch(PART, making).await {
            Ok(made) => made,
            Err(panic) => return self.answer(Input::SandboxFailed { message: panic.to_string() }).await,
        };
        if let Err(error) = volumes {
            return self.answer(Input::VolumeFailed { message: error_chain(&error) }).await;
        }
        match sandbox {
            Ok(sandbox) => {
                if let Err(message) = self.admit(&pod, &sandbox).await {
                    self.emit(None, EventKind::Warning, "PolicyNotReady", message.clone());
                    return self.answer(Input::SandboxFailed { message }).await;
                }
                for message in ports_not_mapped(&pod).into_iter().chain(unmet::of_pod(&pod)) {
                    self.emit(None, EventKind::Warning, "SettingNotApplied", message);
                }
                for (reason, message) in resolv_conf.warnings {
                    self.emit(None, EventKind::Warning, reason, message);
                }
                let ip = sandbox.ip().map_or_else(|| self.tools.host_ip.clone(), |ip| ip.to_string());
                let fact = PodFact::SandboxMade { ip, resources: spec.resources };
                self.answers.send_with(fact, Input::SandboxReady).await;
            }
            Err(error) => self.answer(Input::SandboxFailed { message: error_chain(&error) }).await,
        }
    }

    /// Waits until the rules of the pod's traffic are in force; one on its node's network has none.
    async fn admit(&self, pod: &Pod, sandbox: &Sandbox) -> Result<(), String> {
        match sandbox.ips.as_slice() {
            [] => Ok(()),
            addresses => asked(self.tools.traffic.admit(pod, addresses)).await,
        }
    }

    pub(super) async fn volumes(
        &self,
        pod: &Pod,
        facts: &RunFacts,
    ) -> Result<BTreeMap<String, Prepared>, (&'static str, String)> {
        self.make_volumes(pod, facts).await.map_err(|error| {
            let message = error_chain(&error);
            self.emit(None, EventKind::Warning, "FailedMount", message.clone());
            ("CreateContainerConfigError", message)
        })
    }

    /// The volumes, made unless they are.
    pub(super) async fn make_volumes(
        &self,
        pod: &Pod,
        facts: &RunFacts,
    ) -> Result<BTreeMap<String, Prepared>, VolumeError> {
        let mut made = self.volumes.lock().await;
        if let Some(volumes) = &*made {
            return Ok(volumes.clone());
        }
        let changes = self.tools.watches.changes(pod);
        let dirs = self.tools.manifests.volumes(&self.uid.0);
        let volumes = volumes::prepare(&self.tools.volumes(), pod, facts, &dirs).await?;
        *lock(&self.changes) = Some(changes);
        self.has_volumes.send_replace(true);
        Ok(made.insert(volumes).clone())
    }

    /// Waits a while for the volumes to be gone, so that whoever needs room sees it; a large one goes on being removed.
    async fn remove_volumes(&self) {
        match tokio::time::timeout(VOLUMES_REMOVED, self.tools.manifests.remove_volumes(&self.uid.0)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(%error, "the volumes of a pod that is over could not be removed; they go with its object");
            }
            Err(_) => info!(uid = self.uid.0, "the volumes of a pod that is over are still being removed"),
        }
    }

    /// Removes the sandbox. The object of a pod that was evicted or has completed may stay for long: its volumes do not wait for that.
    pub(super) async fn remove_sandbox(&self, and_volumes: bool) {
        let input = match caught(self.tools.runtime.remove_sandbox(&self.uid)).await {
            Ok(()) => {
                self.tools.traffic.departed(&self.pod());
                if and_volumes {
                    self.remove_volumes().await;
                }
                Input::SandboxRemoved
            }
            Err(error) => Input::SandboxRemovalFailed { message: error_chain(&error) },
        };
        self.answer(input).await;
    }
}
