//! Images: made present as a container's policy says.

use lifecycle::{ContainerName, Input, Signal};
use runtime_api::{Image, Runtime};

use super::PodContext;
use super::breaking::PART;
use crate::flaws::{self, Flaw};
use crate::images::{self, NoImage, PullPolicy};
use crate::record::PodFact;
use crate::translate::find_container;

impl<R: Runtime> PodContext<R> {
    pub(super) async fn pull(&self, container: ContainerName, edition: u32) {
        // A pod that waits for a volume has use for no image yet. Nobody is late who ends all that at once.
        let _ = self.has_volumes.subscribe().wait_for(|made| *made).await;
        let obtained = supervision::catch(PART, self.obtain(&container)).await;
        let input = match obtained.unwrap_or_else(|panic| Err(("ErrImagePull", panic.to_string()))) {
            Ok(Image { stop_signal, .. }) => {
                let stop_signal = stop_signal.filter(|_| !flaws::has(Flaw::ForgetsImageSignal));
                Input::ImageReady { container, edition, stop_signal: stop_signal.map(Signal) }
            }
            Err((reason, message)) => Input::ImageFailed { container, edition, reason: reason.to_owned(), message },
        };
        self.answer(input).await;
    }

    /// Makes a container's image present as its policy says, and remembers which one it is.
    pub(super) async fn obtain(&self, container: &ContainerName) -> Result<Image, NoImage> {
        let pod = self.pod();
        let Some(wanted) = find_container(&pod, &container.0) else {
            return Err(("CreateContainerError", format!("the pod has no container {container}")));
        };
        let name = wanted.image.clone().unwrap_or_default();
        let policy = PullPolicy::of(wanted.image_pull_policy.as_deref());
        let tell = |kind, reason: &str, message| self.emit(Some(container), kind, reason, message);
        let image = images::obtain(&*self.tools.runtime, &self.tools.client, &pod, &name, policy, &tell).await?;
        self.tools.images_given.notify_one();
        let (container, wanted) = (container.0.clone(), Some(name));
        self.answers.learn(PodFact::ImageFound { container, wanted, image: image.clone() }).await;
        Ok(image)
    }

    /// A pull on the way to a start ends at once when the pod is asked to leave.
    pub(super) async fn obtain_unless_leaving(&self, container: &ContainerName) -> Result<Image, NoImage> {
        tokio::select! {
            obtained = self.obtain(container) => obtained,
            () = self.leaving() => {
                Err(("CreateContainerError", "the pod is leaving".to_owned()))
            }
        }
    }
}
