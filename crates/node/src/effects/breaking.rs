//! What becomes of a pod's effects when something breaks: an effect is a failure that the worker is told of, and a driver that begins
//! again finds nothing under way.

use std::time::Duration;

use lifecycle::{EventKind, Instance, RuntimeReport};
use runtime_api::{PodReport, Runtime, RuntimeError};
use supervision::{BackoffPolicy, Panic, error_chain};
use tracing::warn;

use super::{ASK_AGAIN, EffectExecutor, PodContext};
use crate::translate::report::runtime_report;

/// What panics of effects are counted as.
pub(super) const PART: &str = "effect";

impl<R: Runtime> EffectExecutor<R> {
    /// Ends all that was begun for the worker, whose driver broke: what is still wanted it will ask for again.
    pub async fn drop_all(&mut self) {
        self.probes.clear();
        self.pulls.clear();
        self.own_hooks.clear();
        self.hook_requests.clear();
        self.refreshing = None;
        self.starts.shutdown().await;
        self.tasks.shutdown().await;
    }

    /// The life of the driver that effects are executed for.
    pub fn life(&self) -> u32 {
        self.context.answers.life()
    }

    /// The driver begins another life: answers to what was asked for before do not count for it.
    pub fn begin_again(&mut self) {
        self.context.answers.begin_again();
    }

    /// What the runtime says of the pod; as soon as it says something.
    pub async fn report(&self) -> RuntimeReport {
        self.context.report().await.map(runtime_report).unwrap_or_default()
    }

    /// Tells people that the node broke on this pod.
    pub fn tell_broken(&self, message: String) {
        self.context.emit(None, EventKind::Warning, "FailedSync", message);
    }
}

impl<R: Runtime> PodContext<R> {
    /// What the runtime has of the pod; as soon as it says something.
    pub(super) async fn report(&self) -> Option<PodReport> {
        loop {
            match self.tools.runtime.inventory().await {
                Ok(pods) => return pods.into_iter().find(|pod| pod.spec.uid == self.uid),
                Err(error) => {
                    warn!(error = error_chain(&error), "the runtime does not say what there is; asking again")
                }
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}

/// The pauses between questions that nobody answers.
pub(super) const PAUSES: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(5));

/// Asks the runtime until it answers. One that did not may have done what it was asked for, and does nothing twice.
pub(super) async fn answered<T, W>(instance: &Instance, ask: impl Fn() -> W) -> Result<T, RuntimeError>
where
    W: Future<Output = Result<T, RuntimeError>>,
{
    until(instance, ask, |error| !matches!(error, RuntimeError::Unanswered { .. })).await
}

/// Asks the runtime until it has done something, or has nothing to do it to.
pub(super) async fn done<W>(instance: &Instance, ask: impl Fn() -> W) -> Result<(), RuntimeError>
where
    W: Future<Output = Result<(), RuntimeError>>,
{
    let is_final =
        |error: &RuntimeError| matches!(error, RuntimeError::NoSandbox { .. } | RuntimeError::NoContainer { .. });
    until(instance, ask, is_final).await
}

async fn until<T, W>(
    instance: &Instance,
    ask: impl Fn() -> W,
    is_final: impl Fn(&RuntimeError) -> bool,
) -> Result<T, RuntimeError>
where
    W: Future<Output = Result<T, RuntimeError>>,
{
    let mut pauses = PAUSES.start();
    loop {
        match caught(ask()).await {
            Err(error) if !is_final(&error) => {
                warn!(error = error_chain(&error), %instance, "the runtime is asked again");
            }
            answer => return answer,
        }
        tokio::time::sleep(pauses.after_failure()).await;
    }
}

/// Asks the runtime; should that break, it is a failure like any other, and the worker is told of it.
pub(super) async fn caught<T>(work: impl Future<Output = Result<T, RuntimeError>>) -> Result<T, RuntimeError> {
    let broken = |panic: Panic| Err(RuntimeError::System { doing: "the node broke".to_owned(), source: panic.into() });
    supervision::catch(PART, work).await.unwrap_or_else(broken)
}

/// The same for what is asked over the network.
pub(super) async fn asked<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    supervision::catch(PART, work).await.unwrap_or_else(|panic| Err(panic.to_string()))
}
