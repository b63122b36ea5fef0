//! How fast the number of replicas may change: windows, policies and bounds. Pure; what was recommended and done before is handed in.

use std::time::Duration;

use tokio::time::Instant;

use super::view::{AutoscalerView, ScalingPolicy, ScalingRules};

/// How long a smaller number must have been enough, unless something else is asked for.
const DOWN_WINDOW: Duration = Duration::from_secs(300);

/// What was recommended and done lately. A controller that begins anew takes the present size as what was recommended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    pub(crate) recommendations: Vec<(Instant, i32)>,
    /// By how much it was scaled up and down.
    pub(crate) changes: Vec<(Instant, i32)>,
}

/// A condition: its status, reason and message.
pub(crate) type Said = (bool, &'static str, &'static str);

/// What comes of a recommendation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Normalized {
    pub(crate) replicas: i32,
    pub(crate) able_to_scale: Said,
    pub(crate) scaling_limited: Said,
}

impl Past {
    /// Forgets what is older than anything asks for.
    pub(crate) fn trim(&mut self, longest: Duration, now: Instant) {
        self.recommendations.retain(|(at, _)| now.duration_since(*at) <= longest);
        self.changes.retain(|(at, _)| now.duration_since(*at) <= longest);
    }

    fn recommended(&self, within: Duration, now: Instant) -> impl Iterator<Item = i32> {
        self.recommendations
            .iter()
            .filter(move |(at, _)| now.duration_since(*at) < within)
            .map(|(_, replicas)| *replicas)
    }

    /// How many there were when a period began.
    fn at_start(&self, current: i32, period: Duration, now: Instant) -> i64 {
        let within = self.changes.iter().filter(|(at, _)| now.duration_since(*at) < period);
        i64::from(current) - within.map(|(_, change)| i64::from(*change)).sum::<i64>()
    }
}

/// The longest time that anything is remembered for.
pub(crate) fn longest(scaler: &AutoscalerView) -> Duration {
    let both = scaler.spec.behavior.iter().flat_map(|it| [&it.scale_up, &it.scale_down]).flatten();
    let asked = both
        .flat_map(|rules| rules.policies.iter().map(ScalingPolicy::period).chain(rules.window()).collect::<Vec<_>>());
    asked.max().unwrap_or_default().max(DOWN_WINDOW)
}

const READY: Said = (true, "ReadyForNewScale", "recommended size matches current size");
const DOWN_STABILIZED: Said = (
    true,
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const UP_STABILIZED: Said = (
    true,
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: Said = (false, "DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FEW: Said = (true, "TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_MANY: Said = (true, "TooManyReplicas", "the desired replica count is more than the maximum replica count");
const UP_LIMIT: Said =
    (true, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const DOWN_LIMIT: Said =
    (true, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

/// What a recommendation of `desired` comes to; `past` does not have it yet.
pub(crate) fn normalize(scaler: &AutoscalerView, current: i32, desired: i32, past: &Past, now: Instant) -> Normalized {
    let (least, most) = (scaler.min_replicas(), scaler.spec.max_replicas);
    let behavior = scaler.spec.behavior.as_ref();
    let (up, down) = (behavior.and_then(|it| it.scale_up.as_ref()), behavior.and_then(|it| it.scale_down.as_ref()));
    let window = |rules: Option<&ScalingRules>, usual| rules.and_then(ScalingRules::window).unwrap_or(usual);
    let lowest = past.recommended(window(up, Duration::ZERO), now).chain([desired]).min().unwrap_or(desired);
    let highest = past.recommended(window(down, DOWN_WINDOW), now).chain([desired]).max().unwrap_or(desired);
    let stabilized = current.max(lowest).min(highest);
    let able_to_scale = match stabilized.cmp(&desired) {
        std::cmp::Ordering::Greater => DOWN_STABILIZED,
        std::cmp::Ordering::Less => UP_STABILIZED,
        std::cmp::Ordering::Equal => READY,
    };
    let (floor, ceiling) = match behavior {
        None => (0, i64::from(current).saturating_mul(2).max(4)),
        Some(_) => (down_limit(down, current, past, now), up_limit(up, current, past, now)),
    };
    let limit = |number: i64| i32::try_from(number.clamp(0, i64::from(i32::MAX))).unwrap_or(i32::MAX);
    let (floor, ceiling) = (limit(floor), limit(ceiling));
    let bounded = stabilized.clamp(least, most.max(least));
    let (replicas, scaling_limited) = match bounded {
        it if it > current && it > ceiling => (ceiling.max(current), UP_LIMIT),
        it if it < current && it < floor => (floor.min(current), DOWN_LIMIT),
        it if stabilized < least => (it, TOO_FEW),
        it if stabilized > most => (it, TOO_MANY),
        it => (it, WITHIN),
    };
    Normalized { replicas, able_to_scale, scaling_limited }
}

fn policy(kind: &str, value: i64) -> ScalingPolicy {
    ScalingPolicy { r#type: kind.to_owned(), value, period_seconds: 15 }
}

/// How many there may be at most: the longest step of those that are allowed, or the shortest.
fn up_limit(rules: Option<&ScalingRules>, current: i32, past: &Past, now: Instant) -> i64 {
    let usual = [policy("Pods", 4), policy("Percent", 100)];
    let select = rules.and_then(|it| it.select_policy.as_deref());
    if select == Some("Disabled") {
        return i64::from(current);
    }
    let policies = rules.map(|it| &it.policies[..]).filter(|all| !all.is_empty()).unwrap_or(&usual);
    let limits = policies.iter().map(|policy| {
        let start = past.at_start(current, policy.period(), now);
        match policy.r#type.as_str() {
            "Pods" => start.saturating_add(policy.value),
            _ => (start.saturating_mul(policy.value.saturating_add(100))).saturating_add(99).div_euclid(100),
        }
    });
    if select == Some("Min") { limits.min() } else { limits.max() }.unwrap_or(i64::from(current))
}

/// How few there may be.
fn down_limit(rules: Option<&ScalingRules>, current: i32, past: &Past, now: Instant) -> i64 {
    let usual = [policy("Percent", 100)];
    let select = rules.and_then(|it| it.select_policy.as_deref());
    if select == Some("Disabled") {
        return i64::from(current);
    }
    let policies = rules.map(|it| &it.policies[..]).filter(|all| !all.is_empty()).unwrap_or(&usual);
    let limits = policies.iter().map(|policy| {
        let start = past.at_start(current, policy.period(), now);
        match policy.r#type.as_str() {
            "Pods" => start.saturating_sub(policy.value),
            _ => (start.saturating_mul(100 - policy.value.clamp(0, 100))).div_euclid(100),
        }
    });
    if select == Some("Min") { limits.max() } else { limits.min() }.unwrap_or(i64::from(current))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    const STEP: Duration = Duration::from_secs(15);

    fn scaler(behavior: Value) -> AutoscalerView {
        let spec = json!({ "minReplicas": 2, "maxReplicas": 20, "behavior": behavior });
        serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
    }

    /// The sizes when each of these is recommended, 15 seconds apart.
    fn sizes(behavior: Value, start: i32, recommended: &[i32]) -> Vec<i32> {
        let scaler = scaler(behavior);
        let (mut now, mut size) = (Instant::now(), start);
        let mut past = Past { recommendations: vec![(now, start)], changes: Vec::new() };
        let mut sizes = Vec::new();
        for desired in recommended {
            now += STEP;
            let Normalized { replicas, .. } = normalize(&scaler, size, *desired, &past, now);
            past.recommendations.push((now, *desired));
            past.changes.push((now, replicas - size));
            past.trim(longest(&scaler), now);
            size = replicas;
            sizes.push(size);
        }
        sizes
    }

    /// [WL-144]
    #[test]
    fn rates_without_behavior_double_at_most() {
        assert_eq!(sizes(Value::Null, 2, &[20, 20, 20, 20]), [4, 8, 16, 20]);
        assert_eq!(sizes(Value::Null, 20, &[99]), [20]);
    }

    /// [WL-145] [WL-146]
    #[test]
    fn rates_keep_the_size_until_a_smaller_one_was_enough_for_the_window() {
        let down = sizes(Value::Null, 10, &[1; 21]);
        assert_eq!(down[..19], [10; 19]);
        assert_eq!(down[20], 2, "in one step, and not below the least");
    }

    #[test]
    fn rates_follow_the_policies_that_are_asked_for() {
        let slow = json!({ "scaleUp": { "policies": [{ "type": "Pods", "value": 2, "periodSeconds": 30 }] },
            "scaleDown": { "stabilizationWindowSeconds": 0, "policies": [{ "type": "Percent", "value": 50, "periodSeconds": 15 }] } });
        assert_eq!(sizes(slow.clone(), 2, &[20, 20, 20, 20]), [4, 4, 6, 6]);
        assert_eq!(sizes(slow, 16, &[2, 2, 2]), [8, 4, 2]);
        let never = json!({ "scaleDown": { "selectPolicy": "Disabled", "stabilizationWindowSeconds": 0 } });
        assert_eq!(sizes(never, 9, &[2, 2]), [9, 9]);
        assert_eq!(sizes(json!({}), 2, &[20, 20]), [6, 12]);
        let calm = json!({ "scaleUp": { "stabilizationWindowSeconds": 60 } });
        assert_eq!(sizes(calm, 2, &[20, 20, 20, 2]), [2, 2, 2, 2]);
    }

    /// What is stored need not have been looked at by the server that is there.
    #[test]
    fn rates_bound_windows_and_numbers_that_are_stored() {
        let odd = |value: i64| {
            let policies = json!([{ "type": "Percent", "value": value, "periodSeconds": u64::MAX },
                { "type": "Pods", "value": value, "periodSeconds": 0 }]);
            let rules = json!({ "stabilizationWindowSeconds": u64::MAX, "policies": policies });
            json!({ "scaleUp": rules, "scaleDown": rules })
        };
        for value in [i64::MIN, -1, 0, i64::MAX] {
            assert_eq!(longest(&scaler(odd(value))), Duration::from_secs(3600));
            for size in sizes(odd(value), 5, &[20, 2, i32::MAX, 0]) {
                assert!((0..=20).contains(&size), "{value}: {size}");
            }
        }
    }

    #[test]
    fn rates_say_what_they_hold_back() {
        let now = Instant::now();
        let said = |current, desired| {
            let Normalized { able_to_scale, scaling_limited, .. } = normalize(
                &scaler(Value::Null),
                current,
                desired,
                &Past { recommendations: vec![(now, current)], ..Past::default() },
                now,
            );
            (able_to_scale.1, scaling_limited.1)
        };
        assert_eq!(said(2, 2), ("ReadyForNewScale", "DesiredWithinRange"));
        assert_eq!(said(2, 20), ("ReadyForNewScale", "ScaleUpLimit"));
        assert_eq!(said(19, 30), ("ReadyForNewScale", "TooManyReplicas"));
        assert_eq!(said(5, 2), ("ScaleDownStabilized", "DesiredWithinRange"));
    }
}
