//! How many replicas one metric asks for: pure.
//!
//! Pods that leave or have failed do not count at all, nor do their requests. Pods that are not ready yet, or of which nothing was measured,
//! are taken to use nothing when more pods are asked for, and to use all they may when fewer are: they never make a step longer.

use std::collections::BTreeMap;
use std::time::Duration;

use api::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::view::{MetricSpec, ResourceMetric, ScalingRules};

/// A pod that has just started is not believed about its processor.
const CPU_INITIALIZATION: Duration = Duration::from_secs(5 * 60);
/// A pod that was never ready after this long after its start has never been ready.
const INITIAL_READINESS: Duration = Duration::from_secs(30);
const TOLERANCE: f64 = 0.1;

/// A pod that is scaled, and what it uses: milli-units by container and resource.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ScaledPod {
    pub(crate) name: String,
    /// It leaves, or has failed.
    pub(crate) is_over: bool,
    pub(crate) is_pending: bool,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ready: Option<(bool, Option<Timestamp>)>,
    /// What each container asks for.
    pub(crate) requests: BTreeMap<String, BTreeMap<String, i64>>,
    pub(crate) usage: Option<Usage>,
}

/// What was measured of a pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Usage {
    pub(crate) at: Timestamp,
    pub(crate) window: Duration,
    pub(crate) containers: BTreeMap<String, BTreeMap<String, i64>>,
}

/// What a metric asks for.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Proposal {
    pub(crate) replicas: i32,
    /// What it is called in words.
    pub(crate) name: String,
    /// As the status shows it.
    pub(crate) current: Value,
}

/// Why a metric asks for nothing: the reason of the condition, and words.
pub(crate) type NoProposal = (&'static str, String);

/// How far from its target a metric may be, down and up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Tolerance {
    down: f64,
    up: f64,
}

impl Tolerance {
    pub(crate) fn of(down: Option<&ScalingRules>, up: Option<&ScalingRules>) -> Self {
        let told = |rules: Option<&ScalingRules>| {
            let quantity: Quantity = rules?.tolerance.as_deref()?.parse().ok()?;
            Some(as_number(quantity.milli_ceil()) / 1000.0)
        };
        Self { down: told(down).unwrap_or(TOLERANCE), up: told(up).unwrap_or(TOLERANCE) }
    }

    fn holds(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

#[expect(clippy::cast_precision_loss, reason = "amounts of resources; the last digit decides nothing")]
fn as_number(number: i64) -> f64 {
    number as f64
}

/// The next whole number, within what there can be.
#[expect(clippy::cast_possible_truncation, reason = "it is brought within the limits first")]
fn ceil(number: f64) -> i32 {
    number.ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}

fn count(number: usize) -> f64 {
    as_number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// What this metric asks for, of pods that are `current` in number.
pub(crate) fn propose(
    metric: &MetricSpec,
    pods: Result<&[ScaledPod], &str>,
    current: i32,
    tolerance: Tolerance,
    now: Timestamp,
) -> Result<Proposal, NoProposal> {
    let (resource, reason) = match metric.r#type.as_str() {
        "Resource" => (metric.resource.as_ref(), "FailedGetResourceMetric"),
        "ContainerResource" => (metric.container_resource.as_ref(), "FailedGetContainerResourceMetric"),
        "Pods" => return Err(("FailedGetPodsMetric", "no custom metrics are served here".to_owned())),
        "Object" => return Err(("FailedGetObjectMetric", "no custom metrics are served here".to_owned())),
        "External" => return Err(("FailedGetExternalMetric", "no external metrics are served here".to_owned())),
        other => return Err(("InvalidMetricSourceType", format!("unknown metric source type {other:?}"))),
    };
    let resource = resource.ok_or_else(|| (reason, "the metric says nothing of a resource".to_owned()))?;
    let fail = |text: String| (reason, format!("failed to get {} {}: {text}", resource.name, what(resource)));
    let pods = pods.map_err(|error| fail(error.to_owned()))?;
    propose_resource(metric, resource, pods, current, tolerance, now).map_err(fail)
}

fn what(resource: &ResourceMetric) -> &'static str {
    if resource.target.average_utilization.is_some() { "utilization" } else { "usage" }
}

/// What pods count with: their use, and what they ask for.
struct Counted {
    used: Vec<(i64, i64)>,
    ready: usize,
    /// What those ask for that are not ready, and those of which nothing was measured.
    unready: Vec<i64>,
    missing: Vec<i64>,
}

fn sum(containers: &BTreeMap<String, BTreeMap<String, i64>>, of: &ResourceMetric) -> i64 {
    let counts = |(name, _): &(&String, _)| of.container.as_ref().is_none_or(|only| only == *name);
    total(containers.iter().filter(counts).filter_map(|(_, all)| all.get(&of.name)))
}

/// A sum that stays within what there can be, whatever nodes report.
fn total<'a>(numbers: impl Iterator<Item = &'a i64>) -> i64 {
    numbers.fold(0, |sum, number| sum.saturating_add(*number))
}

fn counted(resource: &ResourceMetric, pods: &[ScaledPod], now: Timestamp) -> Result<Counted, String> {
    let mut counted = Counted { used: Vec::new(), ready: 0, unready: Vec::new(), missing: Vec::new() };
    for pod in pods.iter().filter(|pod| !pod.is_over) {
        let asked = match resource.target.average_utilization {
            None => 0,
            Some(_) => {
                let only = resource.container.as_ref();
                let lacks = |(name, all): &(&String, &BTreeMap<String, i64>)| {
                    only.is_none_or(|only| only == *name) && !all.contains_key(&resource.name)
                };
                if let Some((container, _)) = pod.requests.iter().find(lacks) {
                    return Err(format!(
                        "missing request for {} in container {container} of Pod {}",
                        resource.name, pod.name
                    ));
                }
                sum(&pod.requests, resource)
            }
        };
        let usage = pod.usage.as_ref();
        match usage {
            _ if pod.is_pending => counted.unready.push(asked),
            None => counted.missing.push(asked),
            Some(usage) if resource.name == "cpu" && !is_ready(pod, usage, now) => counted.unready.push(asked),
            Some(usage) => {
                counted.ready += 1;
                counted.used.push((sum(&usage.containers, resource), asked));
            }
        }
    }
    if counted.used.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    Ok(counted)
}

/// Whether what was measured of a pod's processor says something about its work.
fn is_ready(pod: &ScaledPod, usage: &Usage, now: Timestamp) -> bool {
    let (Some(started), Some((ready, since))) = (pod.started, pod.ready) else { return false };
    let since = since.unwrap_or(started);
    // Dates come from nodes, and may be any.
    let after = |at: Timestamp, wait: Duration| at.saturating_add(wait).unwrap_or(Timestamp::MAX);
    if after(started, CPU_INITIALIZATION) > now {
        return ready && usage.at >= after(since, usage.window);
    }
    ready || after(started, INITIAL_READINESS) <= since
}

fn propose_resource(
    metric: &MetricSpec,
    resource: &ResourceMetric,
    pods: &[ScaledPod],
    current: i32,
    tolerance: Tolerance,
    now: Timestamp,
) -> Result<Proposal, String> {
    let Counted { mut used, ready, unready, missing } = counted(resource, pods, now)?;
    let target = &resource.target;
    let average =
        |used: &[(i64, i64)]| total(used.iter().map(|(used, _)| used)) / i64::try_from(used.len()).unwrap_or(1).max(1);
    let utilization = |used: &[(i64, i64)]| -> Result<i64, String> {
        let asked = total(used.iter().map(|(_, asked)| asked));
        let all = total(used.iter().map(|(used, _)| used));
        (asked > 0)
            .then(|| all.saturating_mul(100) / asked)
            .ok_or_else(|| "no metrics returned matched known pods".to_owned())
    };
    let aim = match (target.average_utilization, &target.average_value) {
        (Some(percent), _) => percent,
        (None, Some(text)) => text.parse::<Quantity>().map_err(|error| error.to_string())?.milli_ceil(),
        (None, None) => return Err("the metric has no target".to_owned()),
    };
    if aim <= 0 {
        return Err("the target is nothing".to_owned());
    }
    let by_percent = target.average_utilization.is_some();
    let value = |used: &[(i64, i64)]| if by_percent { utilization(used) } else { Ok(average(used)) };
    let ratio_of = |used: &[(i64, i64)]| value(used).map(|value| as_number(value) / as_number(aim));
    let ratio = ratio_of(&used)?;
    let current_value = json!({ "averageValue": milli(average(&used), &resource.name) });
    let mut current_value = current_value;
    if by_percent {
        current_value["averageUtilization"] = utilization(&used)?.into();
    }
    let replicas = if missing.is_empty() && (unready.is_empty() || ratio <= 1.0) {
        if tolerance.holds(ratio) { current } else { ceil(ratio * count(ready)) }
    } else {
        let full = |asked: i64| if by_percent { asked.saturating_mul(aim.max(100)) / 100 } else { aim };
        used.extend(missing.iter().map(|asked| (if ratio < 1.0 { full(*asked) } else { 0 }, *asked)));
        if ratio > 1.0 {
            used.extend(unready.iter().map(|asked| (0, *asked)));
        }
        let new = ratio_of(&used)?;
        let turned = (ratio < 1.0 && new > 1.0) || (ratio > 1.0 && new < 1.0);
        let replicas = ceil(new * count(used.len()));
        let against = (new < 1.0 && replicas > current) || (new > 1.0 && replicas < current);
        if tolerance.holds(new) || turned || against { current } else { replicas }
    };
    let of = if resource.container.is_some() { "container resource" } else { "resource" };
    let name = match by_percent {
        true => format!("{} {of} utilization (percentage of request)", resource.name),
        false => format!("{} {of}", resource.name),
    };
    let mut shown = json!({ "name": resource.name, "current": current_value });
    let key = if resource.container.is_some() { "containerResource" } else { "resource" };
    if let Some(container) = &resource.container {
        shown["container"] = json!(container);
    }
    Ok(Proposal { replicas, name, current: json!({ "type": metric.r#type, key: shown }) })
}

/// A number of milli-units as quantities are written.
fn milli(number: i64, resource: &str) -> String {
    match number % 1000 {
        0 => (number / 1000).to_string(),
        _ if resource == "memory" => (number / 1000).to_string(),
        _ => format!("{number}m"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn amounts(cpu: i64) -> BTreeMap<String, BTreeMap<String, i64>> {
        BTreeMap::from([("c".to_owned(), BTreeMap::from([("cpu".to_owned(), cpu)]))])
    }

    /// A pod that asks for a whole processor and uses this many thousandths of it.
    fn pod(used: Option<i64>) -> ScaledPod {
        let long_ago = now() - Duration::from_secs(3600);
        let usage = |used| Usage { at: now(), window: Duration::from_secs(15), containers: amounts(used) };
        ScaledPod {
            name: "p".to_owned(),
            started: Some(long_ago),
            ready: Some((true, Some(long_ago))),
            requests: amounts(1000),
            usage: used.map(usage),
            ..ScaledPod::default()
        }
    }

    fn starting() -> ScaledPod {
        ScaledPod { started: Some(now()), ready: Some((false, Some(now()))), ..pod(Some(900)) }
    }

    fn asks(target: Value, pods: &[ScaledPod], current: i32) -> Result<i32, String> {
        let metric = json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } });
        let tolerance = Tolerance::of(None, None);
        let metric: MetricSpec = serde_json::from_value(metric).unwrap();
        propose(&metric, Ok(pods), current, tolerance, now()).map(|it| it.replicas).map_err(|(_, why)| why)
    }

    /// [WL-140] [WL-142]
    #[test]
    fn metric_of_a_resource_asks_for_as_many_pods_as_its_target_needs() {
        let half = || json!({ "averageUtilization": 50 });
        let busy = [pod(Some(900)), pod(Some(900)), pod(Some(900))];
        assert_eq!(asks(half(), &[&busy[..], &[starting()]].concat(), 4), Ok(6), "not 8");
        assert_eq!(asks(half(), &[&busy[..], &[pod(Some(900))]].concat(), 4), Ok(8));
        assert_eq!(asks(half(), &[pod(Some(540)), pod(Some(540))], 2), Ok(2), "within tolerance");
        assert_eq!(asks(half(), &[pod(Some(100)), pod(Some(100)), pod(Some(100))], 3), Ok(1));
        assert_eq!(
            asks(half(), &[pod(Some(100)), pod(Some(100)), pod(None)], 3),
            Ok(3),
            "what is not known may be all of it"
        );
        assert_eq!(asks(half(), &[pod(Some(900)), pod(None)], 2), Ok(2), "what is not known may be nothing");
        let leaving = ScaledPod {
            is_over: true,
            requests: BTreeMap::from([("c".to_owned(), BTreeMap::new())]),
            ..pod(Some(900))
        };
        assert_eq!(asks(half(), &[pod(Some(500)), leaving.clone()], 2), Ok(2), "who leaves is nobody");
        let nothing_asked = ScaledPod { is_over: false, ..leaving };
        assert!(asks(half(), &[nothing_asked], 1).unwrap_err().contains("missing request for cpu in container c"));
        assert!(asks(half(), &[pod(None)], 1).is_err());
        assert_eq!(asks(json!({ "averageValue": "300m" }), &[pod(Some(900)), pod(Some(300))], 2), Ok(4));
        assert_eq!(asks(half(), &[pod(Some(i64::MAX)), pod(Some(i64::MAX))], 2), Ok(i32::MAX), "as a node may report");
        assert!(asks(json!({ "averageValue": "0" }), &[pod(Some(900))], 1).is_err());
        assert!(asks(json!({ "averageValue": "much" }), &[pod(Some(900))], 1).is_err());
    }
}
