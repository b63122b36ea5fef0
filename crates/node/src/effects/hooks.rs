//! Lifecycle hooks: run, sent or timed, and cancelled.

use k8s_openapi::api::core::v1::LifecycleHandler;
use lifecycle::{EventKind, Hook, HookKind, HookOutcome, Input, Instance};
use reading::hook_of;
use runtime_api::{DurableHooks as _, Runtime};

use supervision::error_chain;

use super::breaking::{asked, caught};
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
                self.tasks.spawn(async move { context.exec_hook(instance, kind, command).await });
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
                let outcome = HookOutcome::Failed { message: "the pod no longer names this hook".to_owned() };
                self.tasks.spawn(async move { context.hook_finished(instance, kind, outcome).await });
            }
        }
    }

    pub(super) fn cancel_hook(&mut self, instance: Instance, kind: HookKind) {
        let context = self.context.clone();
        let own = self.own_hooks.remove(&(instance.clone(), kind));
        self.tasks.spawn(async move {
            if let Some(task) = own {
                task.abort();
                return context.hook_finished(instance, kind, HookOutcome::Cancelled).await;
            }
            let id = container_id(&instance);
            let asked = match context.tools.runtime.durable_hooks() {
                Some(_) if flaws::has(Flaw::LeavesHookRunning) => false,
                Some(hooks) => caught(hooks.cancel_hook(&context.uid, &id, hook_name(kind))).await.is_ok(),
                None => false,
            };
            if !asked {
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
                let asking = hooks.run_hook(&self.uid, &id, hook_name(kind), &command);
                caught(asking).await.map_err(|error| error_chain(&error))
            }
            None => Err("this container runtime cannot run hooks".to_owned()),
        };
        if let Err(message) = asked {
            self.hook_finished(instance, kind, HookOutcome::Failed { message }).await;
        }
    }

    pub(super) async fn http_hook(&self, instance: Instance, kind: HookKind, handler: Option<LifecycleHandler>) {
        let pod = self.pod();
        let container = find_container(&pod, &instance.name.0);
        let pod_ip = self.record.get().pod_ip.clone().unwrap_or_else(|| self.tools.host_ip.clone());
        let outcome = match handler.and_then(|h| h.http_get).zip(container) {
            None => HookOutcome::Failed { message: "invalid handler".to_owned() },
            Some((get, container)) => match asked(probing::hook_request(&get, &container, &pod_ip)).await {
                Ok(remark) => {
                    if let Some(message) = remark {
                        self.emit(None, EventKind::Warning, "LifecycleHTTPFallback", message);
                    }
                    HookOutcome::Succeeded
                }
                Err(message) => HookOutcome::Failed { message },
            },
        };
        self.hook_finished(instance, kind, outcome).await;
    }
}
