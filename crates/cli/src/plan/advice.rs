//! What to change in a manifest, each with a reason and a remedy.
//!
//! Advice comes from two sources: what is written (a grace of 0, a shell in front), and what happened when it was
//! played (a hook that was cut short). Every piece has a short name that programs can rely on.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, PodSpec};
use lifecycle::PodPhase;
use serde::Serialize;

use super::Plan;
use super::bars::{Bar, On};
use super::command::{self, Hears};
use super::story::{HookName, What};
use super::words::{about, length};

/// A grace above this outlives the patience of drains and autoscalers.
const LONG_GRACE: Duration = Duration::from_secs(600);
/// The grace everybody has who writes none.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Warning {
    /// A short name for programs.
    pub(super) code: &'static str,
    /// Which container, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<String>,
    /// The field of the pod it is about.
    pub(super) field: String,
    /// Where that is written.
    pub(super) line: u64,
    /// What was found, in a few words.
    pub(super) finding: String,
    /// Why it matters.
    pub(super) reason: String,
    /// What to do.
    pub(super) remedy: String,
}

/// All advice on a plan, the pod's first and then container by container.
pub(super) fn on(plan: &Plan<'_>) -> Vec<Warning> {
    let Some(spec) = plan.pod.pod.spec.as_ref() else { return Vec::new() };
    let mut advice = Advice { plan, found: Vec::new() };
    advice.on_pod();
    let init = spec.init_containers.iter().flatten().enumerate();
    for (index, container) in init.filter(|(_, c)| c.restart_policy.as_deref() == Some("Always")) {
        advice.on_container(spec, container, &format!("spec.initContainers[{index}]"), true);
    }
    for (index, container) in spec.containers.iter().enumerate() {
        advice.on_container(spec, container, &format!("spec.containers[{index}]"), false);
    }
    advice.found
}

struct Advice<'a> {
    plan: &'a Plan<'a>,
    found: Vec<Warning>,
}

impl Advice<'_> {
    fn on_pod(&mut self) {
        let grace = self.plan.story.grace;
        let field = "spec.terminationGracePeriodSeconds";
        if grace.is_zero() {
            self.pod(
                "grace-zero",
                field,
                "a grace of 0",
                "the object is removed before anything has stopped, so a replacement with the same name or volume can \
                 start beside it; hooks get 1s at most, and KILL comes 2s after the stop signal",
                "give it a few seconds, and keep 0 for `kubectl delete --force`",
            );
        }
        if grace > LONG_GRACE {
            self.pod(
                "grace-long",
                field,
                &format!("a grace of {}", length(grace)),
                "cluster autoscalers wait 10 minutes for a pod at most, a node's shutdown far less; a program that \
                 hangs is waited for all that time",
                "be sure that the program exits as soon as its work is done, and that nothing else in your cluster cuts \
                 the wait short",
            );
        }
        let ends_badly = self.plan.story.phase == PodPhase::Failed;
        if ends_badly && matches!(self.plan.pod.kind.as_str(), "Job" | "CronJob") {
            self.pod(
                "job-counts-failure",
                "spec.restartPolicy",
                "a pod of a Job that ends Failed when it is asked to leave",
                "a drain or an eviction then counts against backoffLimit, as if the work itself had failed",
                "exit with 0 after saving your progress, or ignore disruptions with a podFailurePolicy \
                 (onPodConditions: DisruptionTarget)",
            );
        }
    }

    fn on_container(&mut self, spec: &PodSpec, container: &Container, field: &str, sidecar: bool) {
        let bar = self.plan.bars.iter().find(|bar| bar.name == container.name);
        self.on_signal(container, field, bar);
        if let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
            self.on_hook(container, &format!("{field}.lifecycle.preStop"), hook, sidecar, bar);
        }
        if let Some(probe) = &container.liveness_probe
            && probe.termination_grace_period_seconds.is_none()
            && self.plan.story.grace > USUAL_GRACE
        {
            let grace = length(self.plan.story.grace);
            self.container(
                container,
                "liveness-without-grace",
                &format!("{field}.livenessProbe"),
                &format!("a liveness probe without a grace of its own, in a pod with {grace}"),
                &format!(
                    "a container that hangs fails this probe, and is then given {grace} to exit before it is restarted"
                ),
                "set livenessProbe.terminationGracePeriodSeconds to what a hanging program deserves, such as 10",
            );
        }
        let serves = !sidecar && !container.ports.as_deref().unwrap_or_default().is_empty();
        let serves = serves || (!sidecar && spec.containers.len() == 1);
        if let (Some(service), None, true) = (self.plan.services.first(), &container.readiness_probe, serves) {
            self.container(
                container,
                "no-readiness",
                field,
                &format!("no readiness probe behind Service {service}"),
                "it gets traffic as soon as its process runs; in a rollout the old pod is asked to leave before the new \
                 one can answer",
                "add a readinessProbe that passes once the program can serve",
            );
        }
    }

    fn on_signal(&mut self, container: &Container, field: &str, bar: Option<&Bar>) {
        let signal = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
        let command = format!("{field}.command");
        if let Some(signal @ ("SIGKILL" | "SIGSTOP")) = signal {
            self.container(
                container,
                "stop-signal-kill",
                &format!("{field}.lifecycle.stopSignal"),
                &format!("{signal} as stop signal"),
                "no program can handle it, so whatever was going on is lost, at once or when the grace is spent",
                "leave stopSignal out (SIGTERM), or name a signal that the program handles",
            );
        }
        let hears = self.plan.behaviours.get(&container.name).map(|behaviour| &behaviour.hears);
        let killed = bar.is_some_and(|bar| bar.end.is_some_and(|end| end.killed));
        match hears {
            Some(Hears::NotBehindShell) => self.container(
                container,
                "shell-swallows-signal",
                &command,
                "a shell as first process, with the program as its child",
                "the stop signal goes to the first process only; the shell does not pass it on, so the program never \
                 hears it and is killed when the grace is spent",
                "start the program with `exec` as the last command of the script, or use no shell",
            ),
            Some(Hears::PerhapsBehindShell) => self.container(
                container,
                "shell-may-swallow-signal",
                &command,
                "a shell as first process",
                "most shells become a single command that they are given, but older ones stay in front of it and swallow \
                 the stop signal",
                "write `exec` before the command, or use no shell",
            ),
            Some(Hears::NoHandler(program)) => self.container(
                container,
                "no-handler",
                &command,
                &format!("{program} as first process"),
                "the kernel gives the first process of a container no signal that it does not handle, so this one is \
                 always killed, when the grace is spent",
                "run a program that handles SIGTERM, or an init such as tini in front of it (`shareProcessNamespace: \
                 true` does it too)",
            ),
            // Where a hook took all the time, that is what to say.
            Some(Hears::Presumably)
                if killed && signal != Some("SIGKILL") && spent(bar, On::PreStop) == Duration::ZERO =>
            {
                let stopping = spent(bar, On::Stopping);
                self.container(
                    container,
                    "killed",
                    field,
                    "killed at the end of the grace",
                    &format!("it had {} from its stop signal, and whatever it was doing then is lost", about(stopping)),
                    "handle the stop signal and exit when the work is done, or give the pod a longer \
                     terminationGracePeriodSeconds",
                );
            }
            Some(Hears::Presumably) | None => {}
        }
    }

    fn on_hook(
        &mut self,
        container: &Container,
        field: &str,
        hook: &LifecycleHandler,
        sidecar: bool,
        bar: Option<&Bar>,
    ) {
        let grace = self.plan.story.budget();
        if self.hook_was_abandoned(container) {
            self.container(
                container,
                "hook-longer-than-grace",
                field,
                &format!("a preStop hook that outlasts the grace of {}", length(grace)),
                "a hook is paid for from the grace; when that is spent the hook is abandoned, the stop signal is sent, \
                 and KILL follows 2s later",
                "shorten the hook, or raise terminationGracePeriodSeconds above the hook and what the program needs \
                 together",
            );
        } else if let Some(bar) = bar
            && bar.end.is_some_and(|end| end.killed)
            && spent(Some(bar), On::PreStop) > Duration::ZERO
        {
            let (took, left) = (spent(Some(bar), On::PreStop), spent(Some(bar), On::Stopping));
            self.container(
                container,
                "hook-leaves-too-little",
                field,
                &format!("a preStop hook that takes {} of {}", about(took), length(grace)),
                &format!("the program itself has only {} left after it, which is not enough", about(left)),
                "shorten the hook, or raise terminationGracePeriodSeconds",
            );
        }
        if hook.tcp_socket.is_some() {
            self.container(
                container,
                "hook-tcp-socket",
                field,
                "a tcpSocket hook",
                "it is accepted for the sake of old manifests and fails whenever it is run",
                "use exec, httpGet or sleep",
            );
        }
        let command = hook.exec.as_ref().and_then(|exec| exec.command.as_deref()).unwrap_or_default();
        if hook.sleep.is_some() || command::only_sleeps(command) {
            let took = about(spent(bar, On::PreStop));
            self.container(
                container,
                "sleep-instead-of-barrier",
                field,
                "a preStop hook that only sleeps",
                &format!(
                    "it is there to let traffic move away before the stop signal, which nobody tells it; it adds {took} \
                     to every rollout and is taken from the grace"
                ),
                "keep it as short as your proxies allow; the drain barrier will make it unnecessary, but this version \
                 does not steer traffic yet",
            );
        }
        if sidecar {
            self.container(
                container,
                "sidecar-hook-at-once",
                field,
                "a preStop hook of a sidecar",
                "hooks of all containers start at once, at the delete; only stop signals are sent in order. This hook \
                 runs while the main containers still work and need the sidecar",
                "do nothing in it that the main containers would miss; a sidecar that stops well on its signal needs no \
                 hook",
            );
        }
    }

    fn hook_was_abandoned(&self, container: &Container) -> bool {
        self.plan.story.facts.iter().any(|fact| {
            fact.container.as_ref() == Some(&container.name)
                && matches!(fact.what, What::HookAbandoned { hook: HookName::PreStop, .. })
        })
    }

    fn pod(&mut self, code: &'static str, field: &str, finding: &str, reason: &str, remedy: &str) {
        self.add(code, None, field, finding, reason, remedy);
    }

    fn container(
        &mut self,
        container: &Container,
        code: &'static str,
        field: &str,
        finding: &str,
        reason: &str,
        remedy: &str,
    ) {
        self.add(code, Some(container.name.clone()), field, finding, reason, remedy);
    }

    fn add(
        &mut self,
        code: &'static str,
        container: Option<String>,
        field: &str,
        finding: &str,
        reason: &str,
        remedy: &str,
    ) {
        self.found.push(Warning {
            code,
            container,
            field: self.plan.pod.path_of(field),
            line: self.plan.pod.line_of(field),
            finding: finding.to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        });
    }
}

/// How long a container spent on something.
fn spent(bar: Option<&Bar>, on: On) -> Duration {
    let spans = bar.map_or(&[][..], |bar| &bar.spans);
    let millis = spans.iter().filter(|span| span.on == on).map(|span| span.to_millis - span.from_millis).sum::<i64>();
    Duration::from_millis(millis.unsigned_abs())
}
