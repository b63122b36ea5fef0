//! Advice on preStop hooks.

use std::time::Duration;

use k8s_openapi::api::core::v1::{HTTPGetAction, LifecycleHandler};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{About, Advice, spent};
use crate::plan::bars::{Bar, On};
use crate::plan::behaviour::splits_badly;
use crate::plan::command;
use crate::plan::pause;
use crate::plan::story::{HookName, What};
use crate::plan::words::{about as rounded, length};

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
        let abandoned = self.plan.story.facts.iter().any(|fact| {
            fact.container.as_ref() == Some(&about.container.name)
                && matches!(fact.what, What::HookAbandoned { hook: HookName::PreStop, .. })
        });
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
                    &format!("a preStop hook that outlasts the grace of {}", length(grace)),
                    "a hook is paid for from the grace; when that is spent the hook is abandoned, the stop signal is \
                     sent, and KILL follows 2s later",
                    &format!("shorten the hook, or {raise}"),
                ),
            );
        } else if bar.is_some_and(|bar| bar.end.is_some_and(|end| end.killed)) && took > Duration::ZERO {
            self.container(
                about,
                "hook-leaves-too-little",
                field,
                (
                    &format!("a preStop hook that takes {} of {}", rounded(took), length(grace)),
                    &format!(
                        "the program itself has only {} left after it, which is not enough",
                        rounded(spent(bar, On::Stopping))
                    ),
                    &format!("shorten the hook, or {raise}"),
                ),
            );
        }
    }

    /// A hook that cannot work.
    fn on_failure(&mut self, about: &About<'_>, field: &str, hook: &LifecycleHandler) {
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
        if let Some(port) = hook.http_get.as_ref().and_then(|get| missing_port(get, about)) {
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
        } else if command.first().is_some_and(|program| command::is_shell(program) || command::base(program) == "sleep")
        {
            let image = about.container.image.as_deref().unwrap_or_default();
            if image.contains("distroless") && !image.contains("debug") {
                self.container(
                    about,
                    "hook-needs-shell",
                    field,
                    (
                        &format!("a hook that runs {} in an image without it", command::base(&command[0])),
                        "distroless images hold neither shells nor tools: the hook fails whenever it is run",
                        "use the sleep or httpGet handler, which need nothing in the image",
                    ),
                );
            }
        }
    }

    fn on_sleep(&mut self, about: &About<'_>, field: &str, bar: Option<&Bar>) {
        // Who has said so already needs no advice about it; as long as nobody steers, it is slept all the same.
        if self.annotation("elide-sleep") == Some("true") {
            return;
        }
        let took = rounded(spent(bar, On::PreStop));
        let behind = self.plan.traffic.as_ref().map(|traffic| traffic.services.join(", "));
        let service = behind.map_or_else(String::new, |names| format!(" of Service {names}"));
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
                "this version of Adieu does not steer traffic yet, and other clusters never do: keep it as short as your \
                 proxies allow. Once there is a barrier, the annotation adieu.dev/elide-sleep: \"true\" leaves it out \
                 wherever the barrier has done its work",
            ),
        );
    }
}

/// A named port that the container does not have. A text that is a number is one.
fn missing_port<'a>(get: &'a HTTPGetAction, about: &About<'_>) -> Option<&'a str> {
    let IntOrString::String(name) = &get.port else { return None };
    let known = about.container.ports.iter().flatten().any(|port| port.name.as_ref() == Some(name));
    (!known && name.parse::<u16>().is_err()).then_some(name)
}
