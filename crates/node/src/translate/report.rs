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
            let output = output.as_ref().map(|output| format!(": {output}")).unwrap_or_default();
            HookOutcome::Failed { message: format!("it ended with exit code {code}{output}") }
        }
        HookRecord::Failed { message } => HookOutcome::Failed { message: message.clone() },
        HookRecord::Cancelled => HookOutcome::Cancelled,
    }
}
