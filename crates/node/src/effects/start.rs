//! Starts one run of a container, with everything that it needs.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use lifecycle::{EventKind, Input, Instance, Wall};
use runtime_api::{PodReport, Runtime, RuntimeError, Started};
use supervision::Panic;
use supervision::error_chain;
use tracing::warn;

use super::breaking::{PART, PAUSES, done};
use super::{PodContext, container_id};
use crate::flaws::{self, Flaw};
use crate::record::PodFact;
use crate::translate::container::{ConfigError, Lookups, container_spec};
use crate::translate::non_root::may_run_as;
use crate::translate::{find_container, find_ephemeral, unmet};
use crate::volumes;

/// Why a container was not started.
pub(super) enum NotStarted {
    /// For a reason, in the API's word, and a sentence.
    Refused(&'static str, String),
    /// There is no sandbox to start it in.
    NoSandbox,
}

impl NotStarted {
    /// The pod is asked to leave.
    fn leaving() -> Self {
        Self::Refused("CreateContainerError", "the pod is leaving".to_owned())
    }
}

impl From<(&'static str, String)> for NotStarted {
    fn from((reason, message): (&'static str, String)) -> Self {
        Self::Refused(reason, message)
    }
}

impl<R: Runtime> PodContext<R> {
    /// Waits until the services are known, which a pod that is asked to leave does not.
    pub(super) async fn services_unless_leaving(&self, pod: &Pod) -> Result<BTreeMap<String, String>, NotStarted> {
        tokio::select! {
            variables = self.tools.services.variables(pod) => Ok(variables),
            () = self.leaving() => {
                Err(NotStarted::leaving())
            }
        }
    }

    pub(super) async fn start(&self, instance: Instance) {
        let started = supervision::catch(PART, self.try_start(&instance)).await;
        let broken = |panic: Panic| Err(NotStarted::Refused("CreateContainerError", panic.to_string()));
        match started.unwrap_or_else(broken) {
            Ok((wall, fact)) => self.answers.send_with(fact, Input::Started { instance, wall }).await,
            Err(NotStarted::Refused(reason, message)) => {
                let fact = PodFact::Refused { run: instance.clone(), at: self.tools.clock.wall_now() };
                let input = Input::StartFailed { instance, reason: reason.to_owned(), message };
                self.answers.send_with(fact, input).await;
            }
            Err(NotStarted::NoSandbox) => self.answer(Input::SandboxLost { instance }).await,
        }
    }

    pub(super) async fn try_start(&self, instance: &Instance) -> Result<(Wall, PodFact), NotStarted> {
        let pod = self.pod();
        let mut container = find_container(&pod, &instance.name.0)
            .ok_or_else(|| ("CreateContainerError", format!("the pod has no container {}", instance.name)))?
            .into_owned();
        self.record.get().give_granted(&mut container);
        let facts = self.run_facts();
        let volumes = self.volumes(&pod, &facts).await?;
        let mut lookups = self.lookups(&pod).await?;
        lookups.services = self.services_unless_leaving(&pod).await?;
        let known = self.record.get().images.get(&instance.name.0).cloned();
        let known = known.and_then(|image| Some((image.id, image.user?)));
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
        let mut started = self.start_unless_leaving(instance, &plan(image)?).await?;
        if let Err(RuntimeError::ImageAbsent { .. }) = started {
            // Someone removed it since it was made present.
            let image = self.obtain_unless_leaving(&instance.name).await?;
            let spec = plan((image.id, image.user))?;
            started = self.start_unless_leaving(instance, &spec).await?;
        }
        match started {
            Ok(Started { wall_ms, warnings }) => {
                for message in warnings.into_iter().chain(unmet::of_container(&pod, &container)) {
                    self.emit(Some(&instance.name), EventKind::Warning, "SettingNotApplied", message);
                }
                let (run, image) = (instance.clone(), container.image.unwrap_or_default());
                Ok((Wall(wall_ms), PodFact::Started { run, image, resources: container.resources }))
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

    /// Starts it after a last look whether the pod is leaving. A start that is not answered may have begun, so it is asked for
    /// until it is answered; of a pod that is asked to leave meanwhile nothing more is begun.
    pub(super) async fn start_unless_leaving(
        &self,
        instance: &Instance,
        spec: &runtime_api::ContainerSpec,
    ) -> Result<Result<Started, RuntimeError>, NotStarted> {
        let mut pauses = PAUSES.start();
        let mut may_have_begun = false;
        while !self.record.get().is_leaving() {
            match self.tools.runtime.start_container(&self.uid, spec).await {
                Err(error @ RuntimeError::Unanswered { .. }) if !flaws::has(Flaw::TakesSilenceForNo) => {
                    let message = format!("Error: {}; asking again", error_chain(&error));
                    self.emit(Some(&instance.name), EventKind::Warning, "Failed", message);
                }
                answer => return Ok(answer),
            }
            may_have_begun = true;
            tokio::select! {
                () = tokio::time::sleep(pauses.after_failure()) => {}
                () = self.leaving() => {}
            }
        }
        match may_have_begun {
            true => self.find_begun(instance, spec).await,
            false => Err(NotStarted::leaving()),
        }
    }

    /// What became of a start that was not answered. It either is seen to have begun or does not begin any more.
    async fn find_begun(
        &self,
        instance: &Instance,
        spec: &runtime_api::ContainerSpec,
    ) -> Result<Result<Started, RuntimeError>, NotStarted> {
        let seen =
            |report: &PodReport| report.containers.iter().find(|it| it.id == spec.id).map(|it| it.started_wall_ms);
        for is_ended in [false, true] {
            let report = self.report().await.filter(|report| report.alive).ok_or(NotStarted::NoSandbox)?;
            if let Some(wall_ms) = seen(&report) {
                return Ok(Ok(Started { wall_ms, warnings: Vec::new() }));
            }
            if !is_ended {
                // What is on its way into the container is ended, and nothing else, for nothing of it runs yet.
                let killed = done(instance, || self.tools.runtime.kill(&self.uid, &spec.id)).await;
                if let Err(RuntimeError::NoSandbox { .. }) = killed {
                    return Err(NotStarted::NoSandbox);
                }
            }
        }
        Err(NotStarted::leaving())
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
