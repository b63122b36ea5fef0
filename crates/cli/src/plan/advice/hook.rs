//! Advice on preStop hooks.

use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;

use super::{About, Advice, spent};
use crate::plan::bars::{Bar, On};
use crate::plan::behaviour::{Exits, lacks_program, missing_port, splits_badly};
use crate::plan::command;
use crate::plan::duration_text::{about as rounded, length};
use crate::plan::pause;
use crate::plan::story::{Fact, FactKind, HookName};

impl Advice<'_> {
    pub(super) fn on_hook(&mut self, about: &About<'_>, hook: &LifecycleHandler, bar: Option<&Bar>) {
        let field = about.below("lifecycle.preStop");
        self.on_length(about, &field, bar);
        self.on_failure(about, &field, hook);
        let command = hook.exec.as_ref().and_then(|exec| exec.command.as_deref()).unwrap_or_default();
        let sleeps = hook.sleep.is_some() || pause::only_sleeps(command);
        if sleeps {
            self.on_sleep(about, &field, bar);
        } else if about.sidecar {
            self.container(
                about,
                "sidecar-hook-at-once",
                &field,
                (
                    "a preStop hook of a sidecar",
                    "hooks of all containers start at once, at the delete; only stop signals are sent in order. This hook \
                     runs while the main containers still work and need the sidecar",
                    "do nothing in it that the main containers would miss; a sidecar that stops well on its signal needs \
                     no hook",
                ),
            );
        }
    }

    /// A hook that leaves the program too little.
    fn on_length(&mut self, about: &About<'_>, field: &str, bar: Option<&Bar>) {
        let grace = self.plan.story.budget();
        let abandoned = self.is_abandoned(about);
        let raise = match self.plan.grace_said {
            true => "delete it with a longer grace",
            false => "raise terminationGracePeriodSeconds above the hook and what the program needs together",
        };
        let took = spent(bar, On::PreStop);
        if abandoned {
            self.container(
                about,
                "hook-longer-than-grace",
                field,
                (
                    &match self.plan.story.grace.is_zero() {
                        true => "a preStop hook that outlasts the 1s that hooks have at grace 0".to_owned(),
                        false => format!("a preStop hook that outlasts the grace of {}", length(grace)),
                    },
                    "a hook is paid for from the grace; when that is spent the hook is abandoned, the stop signal is \
                     sent, and KILL follows 2s later",
                    &format!("shorten the hook, or {raise}"),
                ),
            );
        } else if let Some(needs) = self.robbed(about, bar) {
            self.container(
                about,
                "hook-leaves-too-little",
                field,
                (
                    &format!("a preStop hook that takes {} of {}", rounded(took), length(grace)),
                    &format!(
                        "the program needs {} after its stop signal, and the hook leaves it {}",
                        length(needs),
                        length(self.left(about))
                    ),
                    &format!("shorten the hook, or {raise}"),
                ),
            );
        }
    }

    /// What was left of the grace when a container got its stop signal.
    fn left(&self, about: &About<'_>) -> Duration {
        let own = |fact: &&Fact| fact.container.as_ref() == Some(&about.container.name);
        let left = self.plan.story.facts.iter().filter(own).find_map(|fact| {
            let FactKind::Signalled { left_millis, .. } = fact.what else { return None };
            Some(left_millis)
        });
        Duration::from_millis(left.unwrap_or(0))
    }

    /// What a program needs that was killed because its hook took the time it would have had otherwise.
    pub(super) fn robbed(&self, about: &About<'_>, bar: Option<&Bar>) -> Option<Duration> {
        let bar = bar.filter(|bar| bar.end.is_some_and(|end| end.killed))?;
        let took = spent(Some(bar), On::PreStop);
        match self.plan.behaviours.get(&about.container.name)?.exits {
            Exits::After(needs) if took > Duration::ZERO && needs <= self.plan.story.budget() => Some(needs),
            Exits::After(_) | Exits::Never => None,
        }
    }

    pub(super) fn is_abandoned(&self, about: &About<'_>) -> bool {
        self.plan.story.facts.iter().any(|fact| {
            fact.container.as_ref() == Some(&about.container.name)
                && matches!(fact.what, FactKind::HookAbandoned { hook: HookName::PreStop, .. })
        })
    }

    /// A hook that cannot work, of either kind.
    pub(super) fn on_failure(&mut self, about: &About<'_>, field: &str, hook: &LifecycleHandler) {
        if hook.tcp_socket.is_some() {
            self.container(
                about,
                "hook-tcp-socket",
                field,
                (
                    "a tcpSocket hook",
                    "it is accepted for the sake of old manifests and fails whenever it is run",
                    "use exec, httpGet or sleep",
                ),
            );
        }
        if let Some(port) = missing_port(hook, about.container) {
            self.container(
                about,
                "hook-port-unknown",
                field,
                (
                    &format!("a hook that asks for port {port:?}"),
                    "no port of this container has that name, so the request cannot be made and the hook does nothing",
                    "name the port under ports, or write its number",
                ),
            );
        }
        let command = hook.exec.as_ref().and_then(|exec| exec.command.as_deref()).unwrap_or_default();
        if splits_badly(command) {
            self.container(
                about,
                "hook-without-shell",
                field,
                (
                    "a hook command that only a shell could run",
                    "the words of a command are not split and operators mean nothing: it fails whenever it is run",
                    "write each word on its own ([\"nginx\", \"-s\", \"quit\"]), or [\"sh\", \"-c\", \"...\"]",
                ),
            );
        } else if lacks_program(command, about.container) {
            self.container(
                about,
                "hook-needs-shell",
                field,
                (
                    &format!("a hook that runs {} in an image without it", command::base(&command[0])),
                    match field.ends_with("postStart") {
                        true => {
                            "such an image holds its program, and neither shells nor tools: the hook fails whenever it is \
                             run, and the container is ended and started again and again"
                        }
                        false => {
                            "such an image holds its program, and neither shells nor tools: the hook fails whenever it is \
                             run, and the stop signal is sent at once"
                        }
                    },
                    "use the sleep or httpGet handler, which need nothing in the image",
                ),
            );
        }
    }

    /// Where somebody tells when traffic has moved, nobody has to guess how long that takes.
    fn on_sleep(&mut self, about: &About<'_>, field: &str, bar: Option<&Bar>) {
        let took = spent(bar, On::PreStop);
        let Some(traffic) = self.plan.traffic.as_ref().filter(|traffic| traffic.flow.steered && !took.is_zero()) else {
            return;
        };
        if self.is_abandoned(about) {
            return;
        }
        let (took, service) = (rounded(took), format!(" of Service {}", traffic.services.join(", ")));
        self.container(
            about,
            "sleep-instead-of-barrier",
            field,
            (
                "a preStop hook that only sleeps",
                &format!(
                    "it is there to let traffic{service} move away before the stop signal, and nobody tells it when that \
                     has happened; it adds {took} to every stop and is taken from the grace. A drain barrier waits until \
                     new connections go elsewhere, milliseconds as a rule, and makes it unnecessary"
                ),
                "keep it for clusters without a barrier, and let the annotation adieu.dev/elide-sleep: \"true\" leave it out \
                 wherever the barrier has done its work",
            ),
        );
    }
}
