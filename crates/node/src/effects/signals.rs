//! Stop signals and KILL.

use lifecycle::{Delivery, Input, Instance, Moment, Signal};
use runtime_api::{Runtime, RuntimeError};
use supervision::error_chain;
use tracing::warn;

use super::breaking::caught;
use super::{ASK_AGAIN, PodContext, container_id};
use crate::flaws::{self, Flaw};

impl<R: Runtime> PodContext<R> {
    pub(super) async fn signal(&self, instance: Instance, signal: Signal) {
        let delivery = loop {
            match caught(self.tools.runtime.stop(&self.uid, &container_id(&instance), signal.0)).await {
                Ok(runtime_api::Delivery::Delivered) => break Delivery::Delivered,
                Ok(runtime_api::Delivery::DeliveredBefore { boot_ms }) => {
                    break Delivery::DeliveredBefore { at: Moment::from_millis(boot_ms) };
                }
                Ok(runtime_api::Delivery::AlreadyGone) => break Delivery::AlreadyGone,
                Err(RuntimeError::NoSandbox { .. } | RuntimeError::NoContainer { .. }) => break Delivery::AlreadyGone,
                // Nobody knows whether it arrived. Asking again is safe, because the runtime sends it once; KILL at the
                // deadline ends the container, and with it this loop.
                Err(error) => warn!(error = error_chain(&error), %instance, "a signal could not be sent; trying again"),
            }
            tokio::time::sleep(ASK_AGAIN).await;
        };
        self.answer(Input::SignalAnswered { instance, signal, delivery }).await;
    }

    pub(super) async fn kill(&self, instance: Instance) {
        match caught(self.tools.runtime.kill(&self.uid, &container_id(&instance))).await {
            Ok(()) => {}
            // There is nobody left to kill; whoever reaps tells how it ended.
            Err(RuntimeError::NoSandbox { .. } | RuntimeError::NoContainer { .. }) => {}
            Err(_) if flaws::has(Flaw::DropsKillFailure) => {}
            Err(error) => {
                let message = error_chain(&error);
                warn!(error = message, %instance, "a container could not be killed");
                self.answer(Input::KillFailed { instance, message }).await;
            }
        }
    }
}
