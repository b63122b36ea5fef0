//! What to change in a manifest, each with a reason and a remedy.
//!
//! Advice comes from two sources: what is written (a grace of 0, a shell in front), and what happened when it was
//! played (a hook that was cut short). Nothing is said that is not sure, or does not say how sure it is. Every piece has
//! a short name that programs can rely on.

mod hook;
mod signal;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use lifecycle::PodPhase;
use serde::Serialize;

use super::Plan;
use super::bars::{Bar, On};
use super::behaviour::HookRun;
use super::duration_text::length;
use super::traffic::Traffic;

/// A grace above this outlives the patience of drains and autoscalers.
const LONG_GRACE: Duration = Duration::from_secs(600);
/// The grace everybody has who writes none.
const USUAL_GRACE: Duration = Duration::from_secs(30);
/// Images that serve the other containers of their pod, by a part of their names.
pub(super) const HELPERS: [&str; 9] = [
    "istio/proxyv2",
    "linkerd2-proxy",
    "linkerd/proxy",
    "envoyproxy/envoy",
    "cloud-sql-proxy",
    "cloudsql-proxy",
    "fluent-bit",
    "fluentd",
    "opentelemetry-collector",
];

/// The short names of all warnings.
const CODES: [&str; 36] = [
    "annotation-not-understood",
    "cannot-tell",
    "command-needs-shell",
    "command-without-shell",
    "drain-budget-beyond-grace",
    "ends-by-itself",
    "grace-long",
    "grace-negative",
    "grace-zero",
    "hook-leaves-too-little",
    "hook-longer-than-grace",
    "hook-needs-shell",
    "hook-port-unknown",
    "hook-tcp-socket",
    "hook-without-shell",
    "job-counts-failure",
    "job-counts-success",
    "killed",
    "liveness-without-grace",
    "no-handler",
    "no-readiness",
    "runner-in-front",
    "shell-dies-first",
    "shell-does-not-wait",
    "shell-may-swallow-signal",
    "shell-swallows-signal",
    "sidecar-as-container",
    "sidecar-hook-at-once",
    "signal-ignored",
    "signal-name-refused",
    "sleep-instead-of-barrier",
    "startup-without-grace",
    "stop-signal-kill",
    "traffic-still-arrives",
    "trap-goes-on",
    "trap-waits",
];

/// A short name as `--accept` takes it.
pub(super) fn code(text: &str) -> Result<String, String> {
    match CODES.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("no warning is called {text:?}; there are: {}", CODES.join(", "))),
    }
}

/// Connections come to a program that is exiting.
pub(super) const STILL_ARRIVES: &str = "traffic-still-arrives";

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Warning {
    /// A short name for programs.
    pub(super) code: &'static str,
    /// Which container, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container: Option<String>,
    /// The field of the object it is about, or the option of the command line.
    pub(super) field: String,
    /// Where that is written; nowhere if the command line said it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u64>,
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
    advice.on_grace();
    advice.on_annotations();
    advice.on_job();
    let init = spec.init_containers.iter().flatten().enumerate();
    for (index, container) in init.filter(|(_, c)| c.restart_policy.as_deref() == Some("Always")) {
        let field = format!("spec.initContainers[{index}]");
        advice.on_container(spec, &About { container, field: &field, sidecar: true });
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let field = format!("spec.containers[{index}]");
        advice.on_container(spec, &About { container, field: &field, sidecar: false });
    }
    advice.found
}

struct Advice<'a> {
    plan: &'a Plan<'a>,
    found: Vec<Warning>,
}

/// A container and where it is written.
struct About<'a> {
    container: &'a Container,
    field: &'a str,
    sidecar: bool,
}

impl About<'_> {
    fn below(&self, field: &str) -> String {
        format!("{}.{field}", self.field)
    }
}

/// What is said: finding, reason, remedy.
type WarningText<'a> = (&'a str, &'a str, &'a str);

impl Advice<'_> {
    fn on_grace(&mut self) {
        let (grace, field) = (self.plan.story.grace, "spec.terminationGracePeriodSeconds");
        let written = self.plan.pod.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        if written.is_some_and(|seconds| seconds < 0) {
            self.pod(
                "grace-negative",
                field,
                (
                    "a grace below 0",
                    "it is read as one second, the least there is",
                    "write how many seconds the pod needs to leave",
                ),
            );
        }
        if grace.is_zero() {
            let stateful = match self.plan.pod.kind.as_str() {
                "StatefulSet" => " (in a StatefulSet: two pods that believe to be the same member, on one volume)",
                _ => "",
            };
            self.about_grace(
                "grace-zero",
                field,
                (
                    "a grace of 0",
                    &format!(
                        "the object is removed before anything has stopped, so a replacement with the same name or \
                         volume can start beside it{stateful}; hooks get 1s at most, and KILL comes 2s after the stop \
                         signal"
                    ),
                    "give it a few seconds, and keep 0 for `kubectl delete --force`",
                ),
            );
        }
        if grace > LONG_GRACE && self.annotation("drain-budget-seconds").is_none() {
            self.about_grace(
                "grace-long",
                field,
                (
                    &format!("a grace of {}", length(grace)),
                    "cluster autoscalers wait 10 minutes for a pod at most, a node's shutdown far less; a program that \
                     hangs is waited for all that time",
                    "be sure that the program exits as soon as its work is done, and that nothing else in your cluster \
                     cuts the wait short",
                ),
            );
        }
    }

    /// A grace is the manifest's or the command line's.
    fn about_grace(&mut self, code: &'static str, field: &str, said: WarningText<'_>) {
        if self.plan.grace_said {
            self.add(code, None, "--grace".to_owned(), None, said);
        } else {
            self.pod(code, field, said);
        }
    }

    fn on_annotations(&mut self) {
        for (name, why) in reading::unread_annotations(&self.plan.pod.pod) {
            let field = format!("metadata.annotations.{name}");
            self.pod(
                "annotation-not-understood",
                &field,
                (
                    &format!("{name} is not understood"),
                    &format!("{why}; the pod leaves as if it had not been written"),
                    "correct it, or take it out",
                ),
            );
        }
        let budget =
            self.annotation("drain-budget-seconds").and_then(|text| text.parse().ok()).map(Duration::from_secs);
        if let (Some(budget), None) = (budget, self.annotation("term-reserve-seconds")) {
            let grace = self.plan.own_grace;
            let third = Duration::from_secs(grace.as_secs().div_ceil(3));
            let reserve = third.clamp(Duration::from_secs(2), Duration::from_secs(10)).min(grace);
            if budget > grace - reserve {
                self.pod(
                    "drain-budget-beyond-grace",
                    "metadata.annotations.adieu.dev/drain-budget-seconds",
                    (
                        &format!("a drain budget of {} in a grace of {}", length(budget), length(grace)),
                        &format!(
                            "open connections are waited for inside the grace, of which {} are kept for hooks and the \
                             stop signal: {} remain",
                            length(reserve),
                            length(grace - reserve)
                        ),
                        &format!(
                            "set terminationGracePeriodSeconds to {}",
                            budget.saturating_add(Duration::from_secs(60)).as_secs()
                        ),
                    ),
                );
            }
        }
    }

    fn on_job(&mut self) {
        // One that is over before anybody asks it to leave has failed or succeeded by itself.
        let asked = self.plan.bars.iter().any(|bar| bar.end.is_some());
        if !asked || !self.plan.pod.is_job() {
            return;
        }
        let known = |bar: &Bar| self.plan.behaviours.get(&bar.name).is_some_and(|behaviour| behaviour.code_known);
        match self.plan.story.phase {
            PodPhase::Failed => self.pod(
                "job-counts-failure",
                "spec.restartPolicy",
                (
                    "a pod of a Job that ends Failed when it is asked to leave",
                    "a drain or an eviction then counts against backoffLimit, as if the work itself had failed",
                    "ignore disruptions with a podFailurePolicy (onPodConditions: DisruptionTarget); exit with 0 only \
                     when all the work is done, because the Job then never runs it again",
                ),
            ),
            PodPhase::Succeeded if self.plan.bars.iter().all(known) => self.pod(
                "job-counts-success",
                "spec.containers",
                (
                    "a pod of a Job that ends Succeeded when it is asked to leave",
                    "the Job takes its work for done, however much of it is left, and never runs it again",
                    "exit with another code than 0 if there is work left, and ignore disruptions with a podFailurePolicy \
                     (onPodConditions: DisruptionTarget)",
                ),
            ),
            PodPhase::Succeeded | PodPhase::Pending | PodPhase::Running => {}
        }
    }

    fn on_container(&mut self, spec: &PodSpec, about: &About<'_>) {
        let bar = self.plan.bars.iter().find(|bar| bar.name == about.container.name);
        self.on_signal(about, bar);
        if let Some(hook) = about.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) {
            self.on_hook(about, hook, bar);
        }
        if let Some(hook) = about.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) {
            self.on_failure(about, &about.below("lifecycle.postStart"), hook);
        }
        self.on_probes(spec, about);
        self.on_role(spec, about);
        self.on_end(spec, about);
    }

    /// A container that is not there to be deleted.
    fn on_end(&mut self, spec: &PodSpec, about: &About<'_>) {
        let over = self.plan.behaviours.get(&about.container.name).is_some_and(|behaviour| behaviour.over.is_some());
        let policy = about.container.restart_policy.as_ref().or(spec.restart_policy.as_ref());
        if over && policy.is_some_and(|policy| policy == "Always") {
            self.container(
                about,
                "ends-by-itself",
                &about.below("command"),
                (
                    "a command that is over as soon as it has begun",
                    "it waits for nothing, so the container ends, and is started again and again with longer and longer \
                     pauses (CrashLoopBackOff)",
                    "keep the program in the foreground, as the last command; work that is meant to end belongs into a Job",
                ),
            );
        }
    }

    fn on_probes(&mut self, spec: &PodSpec, about: &About<'_>) {
        let container = about.container;
        // A container that is restarted gets the pod's own grace, whatever a delete says.
        let grace = self.plan.own_grace;
        let probes = [("livenessProbe", &container.liveness_probe), ("startupProbe", &container.startup_probe)];
        for (name, probe) in probes {
            if probe.as_ref().is_some_and(|probe| probe.termination_grace_period_seconds.is_none())
                && grace > USUAL_GRACE
            {
                let (code, word) = match name {
                    "livenessProbe" => ("liveness-without-grace", "a liveness probe"),
                    _ => ("startup-without-grace", "a startup probe"),
                };
                let grace = length(grace);
                self.container(
                    about,
                    code,
                    &about.below(name),
                    (
                        &format!("{word} without a grace of its own, in a pod with {grace}"),
                        &format!(
                            "a container that hangs fails this probe, and is then given {grace} to exit before it is \
                             restarted"
                        ),
                        &format!(
                            "set {name}.terminationGracePeriodSeconds to what a hanging program deserves, such as 10"
                        ),
                    ),
                );
            }
        }
        let serves = self.serves(spec, container);
        let traffic = self.plan.traffic.as_ref().filter(|_| serves && !about.sidecar);
        // Where nobody can take them, it is of no use to wait for connections to go elsewhere.
        let somebody = |traffic: &&Traffic| traffic.replaced || traffic.others != Some(0);
        let unsteered = traffic.filter(somebody).is_some_and(|traffic| !traffic.flow.steered);
        let bar = self.plan.bars.iter().find(|bar| bar.name == container.name);
        // A hook of any kind is time in which connections can go elsewhere.
        let behaviour = self.plan.behaviours.get(&container.name);
        let held = match behaviour.map(|behaviour| behaviour.pre_stop) {
            Some(HookRun::EndsProgram { asks, .. }) => asks,
            Some(_) | None => spent(bar, On::PreStop),
        };
        if unsteered && held.is_zero() && !self.plan.story.grace.is_zero() {
            self.container(
                about,
                STILL_ARRIVES,
                about.field,
                (
                    "a stop signal while clients still connect",
                    "whoever routes to the pod learns of its end at the same time as the pod itself. For a moment, new \
                     connections still come to a program that is already exiting, and are refused",
                    "serve on for a few seconds first (lifecycle.preStop.sleep.seconds: 5), and add them to \
                     terminationGracePeriodSeconds; or make the program accept connections for a while after its stop \
                     signal, and say --accept traffic-still-arrives",
                ),
            );
        }
        let service = self.plan.traffic.as_ref().and_then(|traffic| traffic.services.first());
        if let (Some(service), None, true) = (service, &container.readiness_probe, serves && !about.sidecar) {
            let rolls = self.plan.traffic.as_ref().is_some_and(|traffic| traffic.replaced);
            let reason = match rolls {
                true => {
                    "it gets traffic as soon as its process runs; in a rollout the old pod is asked to leave before the \
                     new one can answer"
                }
                false => "it gets traffic as soon as its process runs, whether it can answer or not",
            };
            self.container(
                about,
                "no-readiness",
                about.field,
                (
                    &format!("no readiness probe behind Service {service}"),
                    reason,
                    "add a readinessProbe that passes once the program can serve",
                ),
            );
        }
    }

    /// Whether the connections of the Services are for this container, as far as ports tell.
    fn serves(&self, spec: &PodSpec, container: &Container) -> bool {
        let targets = self.plan.traffic.as_ref().map_or(&[][..], |traffic| &traffic.targets);
        let has = |container: &Container| {
            container.ports.iter().flatten().any(|port| {
                let names = port.name.as_deref();
                targets
                    .iter()
                    .any(|target| *target == port.container_port.to_string() || Some(target.as_str()) == names)
            })
        };
        match spec.containers.iter().any(has) {
            true => has(container),
            false => !container.ports.as_deref().unwrap_or_default().is_empty() || spec.containers.len() == 1,
        }
    }

    /// A helper among the containers it serves.
    fn on_role(&mut self, spec: &PodSpec, about: &About<'_>) {
        let image = about.container.image.as_deref().unwrap_or_default();
        let helper = HELPERS.iter().any(|helper| image.contains(helper));
        if about.sidecar || !helper || spec.containers.len() < 2 {
            return;
        }
        let job = self.plan.pod.is_job();
        let reason = match job {
            true => {
                "a Job is done when all its containers are: this one does not exit by itself, so the Job never ends"
            }
            false => {
                "it gets its stop signal in the same moment as the containers it serves, and is gone while they still \
                 finish their work"
            }
        };
        self.container(
            about,
            "sidecar-as-container",
            about.field,
            (
                "a helper among the containers it serves",
                reason,
                "move it to initContainers with restartPolicy: Always; it then starts first, is asked to leave last, and \
                 holds no Job",
            ),
        );
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        let annotations = self.plan.pod.pod.metadata.annotations.as_ref()?;
        annotations.get(&format!("adieu.dev/{name}")).map(String::as_str)
    }

    fn pod(&mut self, code: &'static str, field: &str, said: WarningText<'_>) {
        self.add(code, None, self.plan.pod.path_of(field), Some(self.plan.pod.line_of(field)), said);
    }

    fn container(&mut self, about: &About<'_>, code: &'static str, field: &str, said: WarningText<'_>) {
        let (path, line) = (self.plan.pod.path_of(field), self.plan.pod.line_of(field));
        self.add(code, Some(about.container.name.clone()), path, Some(line), said);
    }

    fn add(
        &mut self,
        code: &'static str,
        container: Option<String>,
        field: String,
        line: Option<u64>,
        said: WarningText<'_>,
    ) {
        let line = line.filter(|line| *line > 0);
        let (finding, reason, remedy) = (said.0.to_owned(), said.1.to_owned(), said.2.to_owned());
        self.found.push(Warning { code, container, field, line, finding, reason, remedy });
    }
}

/// How long a container spent on something.
fn spent(bar: Option<&Bar>, on: On) -> Duration {
    let spans = bar.map_or(&[][..], |bar| &bar.spans);
    let millis = spans.iter().filter(|span| span.on == on).map(|span| span.to_millis - span.from_millis).sum::<i64>();
    Duration::from_millis(millis.unsigned_abs())
}
