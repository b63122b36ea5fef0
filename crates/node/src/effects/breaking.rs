//! What becomes of a pod's effects when something breaks: an effect is a failure that the worker is told of, and a driver that begins
//! again finds nothing under way.

use lifecycle::{EventKind, RuntimeReport};
use runtime_api::{Runtime, RuntimeError};
use supervision::{Panic, error_chain};
use tracing::warn;

use super::{ASK_AGAIN, EffectExecutor};
use crate::translate::report::runtime_report;

/// What panics of effects are counted as.
pub(super) const PART: &str = "effect";

impl<R: Runtime> EffectExecutor<R> {
    /// Ends all that was begun for the worker, whose driver broke: what is still wanted it will ask for again.
    pub async fn drop_all(&mut self) {
        self.probes.clear();
        self.pulls.clear();
        self.own_hooks.clear();
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
        loop {
            match self.context.tools.runtime.inventory().await {
                Ok(pods) => {
                    let own = pods.into_iter().find(|pod| pod.spec.uid == self.context.uid);
                    return own.map(runtime_report).unwrap_or_default();
                }
                Err(error) => {
                    warn!(error = error_chain(&error), "the runtime does not say what there is; asking again")
                }
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Tells people that the node broke on this pod.
    pub fn tell_broken(&self, message: String) {
        self.context.emit(None, EventKind::Warning, "FailedSync", message);
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
