//! What the runtime reports, in the rules' words.

use lifecycle::{ContainerReport, Exit, HookKind, HookOutcome, HookReport, RuntimeReport, SeenContainer, Signal, Wall};
use runtime_api::{ExitRecord, HookRecord, PodReport};

use crate::effects::{hook_name, instance};

/// What the runtime still knows of a pod.
pub fn runtime_report(report: PodReport) -> RuntimeReport {
    RuntimeReport {
        sandbox: report.alive,
        containers: report
            .containers
            .iter()
            .map(|c| ContainerReport {
                instance: instance(&c.id),
                seen: match c.exit {
                    Some(exit) => SeenContainer::Exited { exit: api_exit(exit) },
                    None => SeenContainer::Running { wall: Wall(c.started_wall_ms) },
                },
            })
            .collect(),
        hooks: report
            .hooks
            .iter()
            .filter_map(|h| {
                Some(HookReport {
                    instance: instance(&h.id),
                    kind: hook_kind(&h.hook)?,
                    outcome: h.outcome.as_ref().map(hook_outcome),
                })
            })
            .collect(),
    }
}

/// How a run ended.
pub fn api_exit(record: ExitRecord) -> Exit {
    Exit {
        code: record.code,
        signal: record.signal.map(Signal),
        oom: record.oom,
        wall: Wall(record.wall_ms),
        seen: record.seen,
    }
}

/// The hook that the runtime calls so.
pub fn hook_kind(name: &str) -> Option<HookKind> {
    [HookKind::PreStop, HookKind::PostStart].into_iter().find(|kind| hook_name(*kind) == name)
}

/// How a hook ended.
pub fn hook_outcome(record: &HookRecord) -> HookOutcome {
    match record {
        HookRecord::Exited { code: 0, .. } => HookOutcome::Succeeded,
        HookRecord::Exited { code, output } => {
            let by = code.checked_sub(128).filter(|signal| (1..=64).contains(signal));
            let by = by.map(|signal| format!(", as after {}", Signal(signal))).unwrap_or_default();
            HookOutcome::Failed { message: format!("it ended with exit code {code}{by}"), output: output.clone() }
        }
        HookRecord::Failed { message } => HookOutcome::failed(message),
        HookRecord::Cancelled => HookOutcome::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_that_failed_tells_why_apart_from_what_it_wrote() {
        let ended = |code, output: Option<&str>| HookRecord::Exited { code, output: output.map(str::to_owned) };
        let told = |record| match hook_outcome(&record) {
            HookOutcome::Failed { message, output } => (message, output),
            other @ (HookOutcome::Succeeded | HookOutcome::Cancelled) => panic!("{other:?}"),
        };
        assert_eq!(told(ended(3, Some("password"))), ("it ended with exit code 3".into(), Some("password".into())));
        assert_eq!(told(ended(137, None)), ("it ended with exit code 137, as after SIGKILL".into(), None));
        assert_eq!(told(ended(255, None)).0, "it ended with exit code 255");
        assert_eq!(told(HookRecord::Failed { message: "no such file".into() }), ("no such file".into(), None));
        assert_eq!(hook_outcome(&ended(0, None)), HookOutcome::Succeeded);
    }
}
