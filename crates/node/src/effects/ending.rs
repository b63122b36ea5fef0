//! The end of a run: what it left for people is read before the rules are told.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use lifecycle::{Exit, Instance};
use runtime_api::{ContainerId, ExitRecord, Runtime};
use tracing::warn;

use super::breaking::PART;
use super::{EffectExecutor, instance};
use crate::termination_message::termination_message;
use crate::translate::report::api_exit;

/// The longest time for which an exit waits for its termination message.
const MESSAGE_MAX: Duration = Duration::from_secs(30);

/// A run that has ended.
#[derive(Debug)]
pub struct EndedRun {
    /// Which.
    pub run: Instance,
    /// How.
    pub exit: Exit,
    /// What it left for people.
    pub message: Option<String>,
}

impl<R: Runtime> EffectExecutor<R> {
    /// Reads the termination message of a run of `pod`. Whatever that does to us, the exit is told.
    pub fn read_ending(&self, pod: Arc<Pod>, id: ContainerId, exit: ExitRecord) -> BoxFuture<'static, EndedRun> {
        let tools = self.context.tools.clone();
        async move {
            let reading = termination_message(&*tools.runtime, &pod, &id, &exit, &tools.files);
            let message = match tokio::time::timeout(MESSAGE_MAX, supervision::catch(PART, reading)).await {
                Ok(read) => read.ok().flatten(),
                Err(_) => {
                    warn!(
                        container = id.name,
                        "a termination message cannot be read in time; the exit is told without"
                    );
                    None
                }
            };
            EndedRun { run: instance(&id), exit: api_exit(exit), message }
        }
        .boxed()
    }
}
