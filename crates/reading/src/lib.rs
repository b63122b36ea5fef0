//! An API pod read for the rules of life: everything they need to know of it, and nothing else.
//!
//! Pure, and the only place where the API's pod and the rules' pod are both known; `node` reads the pods it runs with
//! it, `cli` those it only plans.

mod drain;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, LifecycleHandler, Pod, Probe as ApiProbe};
use lifecycle::{
    ContainerName, ContainerRestart, ContainerSpec, ExitCodes, Hook, PodIdentity, PodSpec, ProbeSpec, Readiness,
    RestartAction, RestartPolicy, RestartRule, Role, Signal, SpecChange,
};

use drain::drain_spec;

pub use drain::unread_annotations;

/// Why a pod cannot be run as it is written.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The API would not have let this through; a hand-made object might.
    #[error("the pod has no spec")]
    NoSpec,
    /// A stop signal nobody knows.
    #[error("container {container}: stopSignal {signal:?} is not a signal")]
    StopSignal {
        /// Whose.
        container: String,
        /// As it was written.
        signal: String,
    },
}

/// `spec.terminationGracePeriodSeconds` where the API left it out.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Reads a pod for its worker.
pub fn pod_spec(pod: &Pod) -> Result<PodSpec, SpecError> {
    let spec = pod.spec.as_ref().ok_or(SpecError::NoSpec)?;
    let init = spec.init_containers.iter().flatten().map(|c| {
        let role = if c.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init };
        container_spec(c, role)
    });
    let main = spec.containers.iter().map(|c| container_spec(c, Role::Main));
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| Ok(ephemeral_spec(&c.name)));
    let meta = &pod.metadata;
    Ok(PodSpec {
        identity: PodIdentity {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        },
        containers: init.chain(main).chain(ephemeral).collect::<Result<_, _>>()?,
        restart: restart_policy(spec.restart_policy.as_deref().unwrap_or_default()),
        grace: seconds(spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS)),
        active_deadline: spec.active_deadline_seconds.map(seconds),
        drain: drain_spec(pod),
    })
}

/// What may change in the spec of a pod that runs, and did.
pub fn spec_changes(before: &Pod, after: &Pod) -> Vec<SpecChange> {
    let (Some(old), Some(new)) = (&before.spec, &after.spec) else { return Vec::new() };
    let mut changes = Vec::new();
    for container in new.init_containers.iter().flatten().chain(&new.containers) {
        let same_name = old.init_containers.iter().flatten().chain(&old.containers).find(|c| c.name == container.name);
        if same_name.is_some_and(|c| c.image != container.image) {
            changes.push(SpecChange::Image { container: ContainerName(container.name.clone()) });
        }
    }
    for added in new.ephemeral_containers.iter().flatten() {
        if !old.ephemeral_containers.iter().flatten().any(|c| c.name == added.name) {
            changes.push(SpecChange::Ephemeral { spec: ephemeral_spec(&added.name) });
        }
    }
    if old.active_deadline_seconds != new.active_deadline_seconds {
        changes.push(SpecChange::ActiveDeadline { deadline: new.active_deadline_seconds.map(seconds) });
    }
    changes
}

fn ephemeral_spec(name: &str) -> ContainerSpec {
    ContainerSpec::new(name, Role::Ephemeral)
}

fn container_spec(container: &Container, role: Role) -> Result<ContainerSpec, SpecError> {
    let lifecycle = container.lifecycle.as_ref();
    let stop_signal = match lifecycle.and_then(|l| l.stop_signal.as_deref()) {
        None => None,
        Some(name) => Some(
            signal_named(name)
                .ok_or_else(|| SpecError::StopSignal { container: container.name.clone(), signal: name.to_owned() })?,
        ),
    };
    Ok(ContainerSpec {
        name: ContainerName(container.name.clone()),
        role,
        pre_stop: lifecycle.and_then(|l| l.pre_stop.as_ref()).map(hook_of),
        post_start: lifecycle.and_then(|l| l.post_start.as_ref()).map(hook_of),
        stop_signal,
        readiness: if container.readiness_probe.is_some() { Readiness::WhenProbed } else { Readiness::WhileRunning },
        probes: ProbeSpec {
            startup: container.startup_probe.is_some(),
            startup_grace: grace_of(container.startup_probe.as_ref()),
            liveness_grace: grace_of(container.liveness_probe.as_ref()),
        },
        restart: container_restart(container),
    })
}

fn grace_of(probe: Option<&ApiProbe>) -> Option<Duration> {
    probe.and_then(|probe| probe.termination_grace_period_seconds).map(seconds)
}

/// How a container is restarted, if it says so itself.
fn container_restart(container: &Container) -> Option<ContainerRestart> {
    let policy = restart_policy(container.restart_policy.as_deref()?);
    let rules = container.restart_policy_rules.iter().flatten().filter_map(restart_rule).collect();
    Some(ContainerRestart { policy, rules })
}

fn restart_policy(word: &str) -> RestartPolicy {
    match word {
        "Never" => RestartPolicy::Never,
        "OnFailure" => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

/// A rule that nobody knows speaks of no exit code.
fn restart_rule(rule: &ContainerRestartRule) -> Option<RestartRule> {
    let codes = rule.exit_codes.as_ref()?;
    let values = codes.values.clone().unwrap_or_default();
    Some(RestartRule {
        codes: match codes.operator.as_str() {
            "In" => ExitCodes::In(values),
            "NotIn" => ExitCodes::NotIn(values),
            _ => return None,
        },
        action: match rule.action.as_str() {
            "Restart" => RestartAction::Restart,
            "RestartAllContainers" => RestartAction::RestartAllContainers,
            _ => return None,
        },
    })
}

/// Which kind of hook. `tcpSocket` passes validation for old manifests' sake and fails when run, as a request that
/// cannot be made does.
pub fn hook_of(handler: &LifecycleHandler) -> Hook {
    if let Some(exec) = &handler.exec {
        sleep_of(exec.command.as_deref().unwrap_or_default()).map_or(Hook::Exec, Hook::ExecSleep)
    } else if let Some(sleep) = &handler.sleep {
        Hook::Sleep(seconds(sleep.seconds))
    } else {
        Hook::HttpGet
    }
}

/// How long a command sleeps that does nothing else: `sleep 15`, by itself or given to a shell.
fn sleep_of(command: &[String]) -> Option<Duration> {
    let words: Vec<&str> = match command {
        [shell, flag, script] if flag == "-c" && matches!(program(shell), "sh" | "bash" | "ash" | "dash") => {
            let script = script.trim().trim_end_matches(';');
            script.strip_prefix("exec ").unwrap_or(script).split_whitespace().collect()
        }
        command => command.iter().map(String::as_str).collect(),
    };
    let [sleep, length] = words[..] else { return None };
    let length = (program(sleep) == "sleep").then_some(length)?;
    let (number, unit) = match length.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, length.chars().next_back()),
        None => (length, None),
    };
    let unit = match unit {
        None | Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some(_) => 86_400,
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| digits)? * f64::from(unit);
    Duration::try_from_secs_f64(seconds).ok()
}

/// A program by its name, wherever it lies.
fn program(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Seconds as the API writes them; negative ones count as one, as the API stores them.
pub fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(1))
}

/// The signal the API calls `SIGTERM`, `SIGRTMIN+3` or `SIGRTMAX-1`.
fn signal_named(name: &str) -> Option<Signal> {
    // As every container sees them: the C library keeps the first two for itself.
    const MIN_REAL_TIME: u8 = 34;
    const MAX: u8 = 64;
    if let Some(below) = name.strip_prefix("SIGRTMAX") {
        let below = if below.is_empty() { 0 } else { below.strip_prefix('-')?.parse().ok()? };
        return MAX.checked_sub(below).filter(|number| *number >= MIN_REAL_TIME).map(Signal);
    }
    // A number nobody has named is shown as `signal 32`, which is no name.
    (1..=MAX).map(Signal).filter(|_| name.starts_with("SIG")).find(|signal| signal.to_string() == name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerRestartRuleOnExitCodes, EphemeralContainer, ExecAction, Lifecycle, PodSpec as ApiSpec, SleepAction,
    };

    use super::*;

    #[test]
    fn signals_are_read_by_the_names_the_api_allows() {
        for (name, number) in
            [("SIGTERM", 15), ("SIGQUIT", 3), ("SIGRTMIN", 34), ("SIGRTMIN+3", 37), ("SIGRTMAX-1", 63)]
        {
            assert_eq!(signal_named(name), Some(Signal(number)), "{name}");
        }
        for name in ["", "TERM", "sigterm", "SIGNOPE", "SIGRTMAX-31", "SIGRTMAX+1", "signal 32"] {
            assert_eq!(signal_named(name), None, "{name}");
        }
    }

    #[test]
    fn a_command_that_only_sleeps_is_known_for_it() {
        let hook = |command: &[&str]| {
            let command = Some(command.iter().map(|word| (*word).to_owned()).collect());
            hook_of(&LifecycleHandler { exec: Some(ExecAction { command }), ..LifecycleHandler::default() })
        };
        let sleep = |seconds| Hook::ExecSleep(Duration::from_secs(seconds));
        assert_eq!(hook(&["sleep", "15"]), sleep(15));
        assert_eq!(hook(&["/bin/sleep", "2m"]), sleep(120));
        assert_eq!(hook(&["/bin/sh", "-c", "sleep 10"]), sleep(10));
        assert_eq!(hook(&["bash", "-c", " exec /usr/bin/sleep 1.5s; "]), Hook::ExecSleep(Duration::from_millis(1500)));
        for other in [
            &["sleep"][..],
            &["sleep", "5", "5"],
            &["sleep", "infinity"],
            &["sleep", "-1"],
            &["sleep", "1e9"],
            &["nginx", "-s"],
            &["sh", "-c", "sleep 5; nginx -s quit"],
            &["sh", "-c", "nginx -s quit; sleep 5"],
            &["sh", "-c", "sleep $WAIT"],
            &["sh", "sleep", "5"],
            &[],
        ] {
            assert_eq!(hook(other), Hook::Exec, "{other:?}");
        }
    }

    #[test]
    fn an_ephemeral_container_is_part_of_a_pod_from_the_first() {
        let debug = EphemeralContainer { name: "debug".into(), ..EphemeralContainer::default() };
        let app = Container { name: "app".into(), ..Container::default() };
        let spec = ApiSpec { containers: vec![app], ephemeral_containers: Some(vec![debug]), ..ApiSpec::default() };
        let pod = Pod { spec: Some(spec), ..Pod::default() };
        let roles: Vec<_> = pod_spec(&pod).expect("it is a pod").containers.into_iter().map(|c| c.role).collect();
        assert_eq!(roles, [Role::Main, Role::Ephemeral]);
    }

    #[test]
    fn container_has_the_restart_policy_and_the_rules_that_it_names() {
        let rule = |action: &str, operator: &str, values: &[i32]| ContainerRestartRule {
            action: action.into(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.into(),
                values: Some(values.to_vec()),
            }),
        };
        let read = |policy: Option<&str>, rules: Vec<ContainerRestartRule>| {
            let (restart_policy, restart_policy_rules) = (policy.map(Into::into), Some(rules));
            container_restart(&Container { restart_policy, restart_policy_rules, ..Container::default() })
        };
        let rules = vec![
            rule("Restart", "In", &[42, 43]),
            rule("RestartAllContainers", "NotIn", &[0]),
            rule("Dance", "In", &[1]),
            rule("Restart", "Near", &[1]),
            ContainerRestartRule { action: "Restart".into(), exit_codes: None },
        ];
        let known = vec![
            RestartRule { codes: ExitCodes::In(vec![42, 43]), action: RestartAction::Restart },
            RestartRule { codes: ExitCodes::NotIn(vec![0]), action: RestartAction::RestartAllContainers },
        ];
        let never = ContainerRestart { policy: RestartPolicy::Never, rules: known };
        assert_eq!(read(Some("Never"), rules.clone()), Some(never));
        assert_eq!(read(None, rules), None, "no rules without a policy");
        for (word, policy) in [("Always", RestartPolicy::Always), ("OnFailure", RestartPolicy::OnFailure)] {
            assert_eq!(read(Some(word), vec![]), Some(ContainerRestart { policy, rules: vec![] }));
        }
    }

    #[test]
    fn init_containers_come_first_and_restartable_ones_are_sidecars() {
        let named = |name: &str| Container { name: name.into(), ..Container::default() };
        let sleep = LifecycleHandler { sleep: Some(SleepAction { seconds: 5 }), ..LifecycleHandler::default() };
        let app =
            Container { lifecycle: Some(Lifecycle { pre_stop: Some(sleep), ..Lifecycle::default() }), ..named("app") };
        let pod = Pod {
            spec: Some(ApiSpec {
                init_containers: Some(vec![
                    named("migrate"),
                    Container { restart_policy: Some("Always".into()), ..named("proxy") },
                ]),
                containers: vec![app],
                ..ApiSpec::default()
            }),
            ..Pod::default()
        };
        let spec = pod_spec(&pod).expect("it is a pod");
        let roles: Vec<_> = spec.containers.iter().map(|c| (c.name.0.as_str(), c.role)).collect();
        assert_eq!(roles, [("migrate", Role::Init), ("proxy", Role::Sidecar), ("app", Role::Main)]);
        assert_eq!(spec.containers[2].pre_stop, Some(Hook::Sleep(Duration::from_secs(5))));
        assert_eq!(spec.grace, Duration::from_secs(30));
    }
}
