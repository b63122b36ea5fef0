//! A plan for programs.

use lifecycle::PodPhase;
use serde::Serialize;

use super::Plan;
use super::advice::Warning;
use super::bars::Bar;
use super::story::Fact;
use super::verdict::Verdict;

/// Everything that was planned.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pods: Vec<PodReport<'a>>,
    skipped: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodReport<'a> {
    kind: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i64>,
    file: &'a str,
    line: u64,
    services: &'a [String],
    grace_seconds: u64,
    assumptions: &'a [String],
    verdict: &'a Verdict,
    phase: &'static str,
    timeline: &'a [Fact],
    containers: &'a [Bar],
    warnings: &'a [Warning],
}

/// The report on these plans.
pub(super) fn of<'a>(plans: &'a [Plan<'a>], skipped: &'a [String]) -> Report<'a> {
    let pods = plans.iter().map(|plan| PodReport {
        kind: &plan.pod.kind,
        name: &plan.pod.name,
        replicas: plan.pod.replicas,
        file: &plan.pod.place.file,
        line: plan.pod.place.line,
        services: &plan.services,
        grace_seconds: plan.story.grace.as_secs(),
        assumptions: &plan.assumed,
        verdict: &plan.verdict,
        phase: phase(plan.story.phase),
        timeline: &plan.story.facts,
        containers: &plan.bars,
        warnings: &plan.warnings,
    });
    Report { pods: pods.collect(), skipped }
}

fn phase(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
    }
}
