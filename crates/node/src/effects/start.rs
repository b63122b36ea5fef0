//! Starts one run of a container, with everything that it needs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{EventKind, Input, Instance, Wall};
use runtime_api::{Runtime, RuntimeError, Started};
use supervision::Panic;
use tracing::warn;

use super::breaking::PART;
use super::{PodContext, container_id, error_chain, lock};
use crate::translate::container::{ConfigError, Lookups, container_spec};
use crate::translate::non_root::may_run_as;
use crate::translate::resize::amounts;
use crate::translate::{find_container, find_ephemeral, unmet};
use crate::volumes;

/// Why a container was not started.
pub(super) enum NotStarted {
    /// For a reason, in the API's word, and a sentence.
    Refused(&'static str, String),
    /// There is no sandbox to start it in.
    NoSandbox,
}

impl From<(&'static str, String)> for NotStarted {
    fn from((reason, message): (&'static str, String)) -> Self {
        Self::Refused(reason, message)
    }
}

impl<R: Runtime> PodContext<R> {
    /// Waits until the services are known, which a pod that is asked to leave does not.
    pub(super) async fn services_unless_leaving(&self, pod: &Pod) -> Result<BTreeMap<String, String>, NotStarted> {
        let mut leaving = self.leaving.subscribe();
        tokio::select! {
            variables = self.tools.services.variables(pod) => Ok(variables),
            _ = leaving.wait_for(|leaving| *leaving) => {
                Err(NotStarted::Refused("CreateContainerError", "the pod is leaving".to_owned()))
            }
        }
    }

    pub(super) async fn start(&self, instance: Instance) {
        let asked = instance.clone();
        let started = supervision::catch(PART, self.try_start(&instance)).await;
        let broken = |panic: Panic| Err(NotStarted::Refused("CreateContainerError", panic.to_string()));
        let input = match started.unwrap_or_else(broken) {
            Ok(wall) => Input::Started { instance, wall },
            Err(NotStarted::Refused(reason, message)) => {
                lock(&self.facts).know_refusal(&instance, self.tools.clock.wall_now());
                Input::StartFailed { instance, reason: reason.to_owned(), message }
            }
            Err(NotStarted::NoSandbox) => Input::SandboxLost { instance },
        };
        self.tell(input).await;
        let held = lock(&self.starting).remove(&asked).flatten();
        // It may not have the newest resources, and was left alone until here.
        self.granted.notify_one();
        if let Some(end) = held {
            self.tell(end).await;
        }
    }

    pub(super) async fn try_start(&self, instance: &Instance) -> Result<Wall, NotStarted> {
        let pod = self.pod();
        let mut container = find_container(&pod, &instance.name.0)
            .ok_or_else(|| ("CreateContainerError", format!("the pod has no container {}", instance.name)))?
            .into_owned();
        lock(&self.facts).give_granted(&mut container);
        let facts = self.run_facts();
        let volumes = self.volumes(&pod, &facts).await?;
        let mut lookups = self.lookups(&pod).await?;
        lookups.services = self.services_unless_leaving(&pod).await?;
        let known = {
            let facts = lock(&self.facts);
            let user = facts.image_users.get(&instance.name.0).cloned();
            facts.image_ids.get(&instance.name.0).cloned().zip(user)
        };
        let image = match known {
            // The first run has the image that was made present for it.
            Some(known) if instance.attempt == 0 => known,
            // The policy speaks again for every further run, and after a restart of the node the id is not known here.
            _ => self.obtain_unless_leaving(&instance.name).await.map(|image| (image.id, image.user))?,
        };
        let plan = |(image, user): (String, Option<String>)| {
            may_run_as(&pod, &container, user.as_deref())
                .map_err(|error: ConfigError| ("CreateContainerConfigError", error.to_string()))?;
            container_spec(&pod, &container, container_id(instance), image, &volumes, &lookups, &facts)
                .map_err(|error: ConfigError| ("CreateContainerConfigError", error.to_string()))
        };
        // What it is given has to fit into what its pod has. Where it does not, that is told as of any other limit.
        if let Err(error) = self.widen().await {
            warn!(uid = %self.uid.0, error, "a pod cannot be given more yet");
        }
        let mut started = self.start_unless_leaving(&plan(image)?).await?;
        if let Err(RuntimeError::ImageAbsent { .. }) = started {
            // Someone removed it since it was made present.
            let image = self.obtain_unless_leaving(&instance.name).await?;
            let spec = plan((image.id, image.user))?;
            started = self.start_unless_leaving(&spec).await?;
        }
        match started {
            Ok(Started { wall_ms, warnings }) => {
                {
                    let mut facts = lock(&self.facts);
                    facts.know_run(instance, container.image.as_deref().unwrap_or_default());
                    facts.know_resources(instance, container.resources.clone());
                    facts.has.insert(instance.clone(), amounts(container.resources.as_ref()));
                }
                for message in warnings.into_iter().chain(unmet::of_container(&pod, &container)) {
                    self.emit(Some(&instance.name), EventKind::Warning, "SettingNotApplied", message);
                }
                Ok(Wall(wall_ms))
            }
            Err(RuntimeError::NoContainer { .. }) => {
                let target = find_ephemeral(&pod, &instance.name.0).and_then(|own| own.target_container_name.clone());
                let message = format!("unable to find target container {:?}", target.unwrap_or_default());
                Err(NotStarted::Refused("CreateContainerConfigError", message))
            }
            // The shim died with all it held: what becomes of the pod is the rules' to say.
            Err(RuntimeError::NoSandbox { .. }) => Err(NotStarted::NoSandbox),
            Err(error @ RuntimeError::Start { .. }) => Err(NotStarted::Refused("StartError", error_chain(&error))),
            Err(error) => Err(NotStarted::Refused("CreateContainerError", error_chain(&error))),
        }
    }

    /// The last look before anything is made.
    pub(super) async fn start_unless_leaving(
        &self,
        spec: &runtime_api::ContainerSpec,
    ) -> Result<Result<Started, RuntimeError>, NotStarted> {
        if *self.leaving.borrow() {
            return Err(NotStarted::Refused("CreateContainerError", "the pod is leaving".to_owned()));
        }
        Ok(self.tools.runtime.start_container(&self.uid, spec).await)
    }

    /// What environments refer to; while nobody can be asked, as it was for an earlier start.
    pub(super) async fn lookups(&self, pod: &Pod) -> Result<Lookups, (&'static str, String)> {
        let mut known = self.lookups.lock().await;
        match volumes::lookups(&self.tools.client, pod).await {
            Ok(found) => Ok(known.insert(found).clone()),
            Err(kube::Error::Api(status)) => Err(("CreateContainerConfigError", status.to_string())),
            Err(error) => known.clone().ok_or_else(|| ("CreateContainerConfigError", error.to_string())),
        }
    }
}
