//! Lifecycle hooks: run, sent or timed, and cancelled.

use k8s_openapi::api::core::v1::LifecycleHandler;
use lifecycle::{EventKind, Hook, HookKind, HookOutcome, Input, Instance};
use reading::hook_of;
use runtime_api::{DurableHooks as _, Runtime};

use supervision::error_chain;

use super::breaking::{answered, asked, caught, done};
use super::{EffectExecutor, PodContext, container_id, hook_name};
use crate::flaws::{self, Flaw};
use crate::probing;
use crate::translate::find_container;

impl<R: Runtime> EffectExecutor<R> {
    pub(super) fn run_hook(&mut self, instance: Instance, kind: HookKind) {
        let context = self.context.clone();
        let handler = context.handler(&instance, kind);
        let key = (instance.clone(), kind);
        match handler.as_ref().map(hook_of) {
            Some(Hook::Exec | Hook::ExecSleep(_)) => {
                let command = handler.and_then(|h| h.exec?.command).unwrap_or_default();
                let task = self.tasks.spawn(async move { context.exec_hook(instance, kind, command).await });
                self.hook_requests.retain(|_, request| !request.is_finished());
                self.hook_requests.insert(key, task);
            }
            Some(Hook::Sleep(length)) => {
                let task = self.tasks.spawn(async move {
                    tokio::time::sleep(length).await;
                    context.hook_finished(instance, kind, HookOutcome::Succeeded).await;
                });
                self.own_hooks.insert(key, task);
            }
            Some(Hook::HttpGet) => {
                let task = self.tasks.spawn(async move { context.http_hook(instance, kind, handler).await });
                self.own_hooks.insert(key, task);
            }
            None => {
                let outcome = HookOutcome::failed("the pod no longer names this hook");
                self.tasks.spawn(async move { context.hook_finished(instance, kind, outcome).await });
            }
        }
    }

    pub(super) fn cancel_hook(&mut self, instance: Instance, kind: HookKind) {
        let context = self.context.clone();
        let key = (instance.clone(), kind);
        // Nothing is asked for any more that is to end.
        if let Some(request) = self.hook_requests.remove(&key) {
            request.abort();
        }
        let own = self.own_hooks.remove(&key);
        self.tasks.spawn(async move {
            if let Some(task) = own {
                task.abort();
                return context.hook_finished(instance, kind, HookOutcome::Cancelled).await;
            }
            let id = container_id(&instance);
            let is_cancelled = match context.tools.runtime.durable_hooks() {
                Some(_) if flaws::has(Flaw::LeavesHookRunning) => false,
                Some(hooks) if flaws::has(Flaw::CancelsHookOnce) => {
                    caught(hooks.cancel_hook(&context.uid, &id, hook_name(kind))).await.is_ok()
                }
                // One that is not cut off would go on beside the stop signal.
                Some(hooks) => done(&instance, || hooks.cancel_hook(&context.uid, &id, hook_name(kind))).await.is_ok(),
                None => false,
            };
            if !is_cancelled {
                // Nobody is left to run it, so it does not run.
                context.hook_finished(instance, kind, HookOutcome::Cancelled).await;
            }
        });
    }
}

impl<R: Runtime> PodContext<R> {
    pub(super) fn handler(&self, instance: &Instance, kind: HookKind) -> Option<LifecycleHandler> {
        let pod = self.pod();
        let lifecycle = find_container(&pod, &instance.name.0)?.lifecycle.clone()?;
        match kind {
            HookKind::PreStop => lifecycle.pre_stop,
            HookKind::PostStart => lifecycle.post_start,
        }
    }

    pub(super) async fn hook_finished(&self, instance: Instance, kind: HookKind, outcome: HookOutcome) {
        self.answer(Input::HookFinished { instance, kind, outcome }).await;
    }

    /// The runtime tells how it ended; only a hook that could not be started is answered here.
    pub(super) async fn exec_hook(&self, instance: Instance, kind: HookKind, command: Vec<String>) {
        let id = container_id(&instance);
        let asked = match self.tools.runtime.durable_hooks() {
            Some(hooks) => {
                let ask = || hooks.run_hook(&self.uid, &id, hook_name(kind), &command);
                let asked = match flaws::has(Flaw::TakesSilenceForNo) {
                    true => caught(ask()).await,
                    false => answered(&instance, ask).await,
                };
                asked.map_err(|error| error_chain(&error))
            }
            None => Err("this container runtime cannot run hooks".to_owned()),
        };
        if let Err(message) = asked {
            self.hook_finished(instance, kind, HookOutcome::failed(message)).await;
        }
    }

    pub(super) async fn http_hook(&self, instance: Instance, kind: HookKind, handler: Option<LifecycleHandler>) {
        let pod = self.pod();
        let container = find_container(&pod, &instance.name.0);
        let pod_ip = self.record.get().pod_ip.clone().unwrap_or_else(|| self.tools.host_ip.clone());
        let outcome = match handler.and_then(|h| h.http_get).zip(container) {
            None => HookOutcome::failed("invalid handler"),
            Some((get, container)) => match asked(probing::hook_request(&get, &container, &pod_ip)).await {
                Ok(remark) => {
                    if let Some(message) = remark {
                        self.emit(None, EventKind::Warning, "LifecycleHTTPFallback", message);
                    }
                    HookOutcome::Succeeded
                }
                Err(message) => HookOutcome::failed(message),
            },
        };
        self.hook_finished(instance, kind, outcome).await;
    }
}
