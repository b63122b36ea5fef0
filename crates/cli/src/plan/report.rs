//! A plan for programs.

use lifecycle::PodPhase;
use serde::Serialize;

use super::Plan;
use super::advice::Warning;
use super::bars::Bar;
use super::mistakes::{Mistake, Mistakes};
use super::story::Fact;
use super::traffic::Traffic;
use super::verdict::PlanVerdict;

/// Everything that was planned, or all that is wrong; never both.
#[derive(Serialize)]
struct Report<'a> {
    pods: Vec<PodReport<'a>>,
    skipped: &'a [String],
    notes: &'a [String],
    mistakes: &'a [Mistake],
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
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<TrafficReport<'a>>,
    grace_seconds: u64,
    assumptions: &'a [String],
    verdict: &'a PlanVerdict,
    phase: &'static str,
    timeline: &'a [Fact],
    containers: &'a [Bar],
    warnings: &'a [Warning],
}

/// How the pod is reached. `steered` says whether the timeline has somebody who cuts its traffic, as a node of
/// Adieu has; `gone_without_steering_millis` says when the pod is gone without.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TrafficReport<'a> {
    #[serde(flatten)]
    traffic: &'a Traffic,
    steered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    gone_without_steering_millis: Option<i64>,
}

/// The report on mistakes.
pub(super) fn of_mistakes(mistakes: &Mistakes) -> serde_json::Result<String> {
    printed(&Report { pods: Vec::new(), skipped: &[], notes: &[], mistakes: mistakes.all() })
}

fn printed(report: &Report<'_>) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(report)? + "\n")
}

/// The report on these plans.
pub(super) fn of(plans: &[Plan<'_>], skipped: &[String], notes: &[String]) -> serde_json::Result<String> {
    let pods = plans.iter().map(|plan| PodReport {
        kind: &plan.pod.kind,
        name: &plan.pod.name,
        replicas: plan.pod.replicas,
        file: &plan.pod.place.file,
        line: plan.pod.place.line,
        traffic: plan.traffic.as_ref().map(|traffic| TrafficReport {
            traffic,
            steered: traffic.flow.steered,
            gone_without_steering_millis: plan
                .unsteered
                .as_ref()
                .and_then(|story| story.facts.last())
                .map(|f| f.at_millis),
        }),
        grace_seconds: plan.story.grace.as_secs(),
        assumptions: &plan.assumed,
        verdict: &plan.verdict,
        phase: phase(plan.story.phase),
        timeline: &plan.story.facts,
        containers: &plan.bars,
        warnings: &plan.warnings,
    });
    printed(&Report { pods: pods.collect(), skipped, notes, mistakes: &[] })
}

fn phase(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Pending => "Pending",
        PodPhase::Running => "Running",
        PodPhase::Succeeded => "Succeeded",
        PodPhase::Failed => "Failed",
    }
}
