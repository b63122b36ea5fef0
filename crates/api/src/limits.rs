//! Limit ranges: what a container gets that says nothing, and what no container, pod or claim may go beyond.
//!
//! Asked in two places, as upstream does: [`fill`] before an object is judged, [`check`] once it is known to be sound.

use serde_json::{Map, Value, json};

use crate::amounts::Amounts;
use crate::kinds::Kind;
use crate::meta;
use crate::pod::{self, ResourceOptions};
use crate::quantity::Quantity;
use crate::rules::value::{child, list, word};

/// What is bounded of a pod as a whole: what it says, and not what its runtime needs.
const BOUNDED: ResourceOptions = ResourceOptions::WITHOUT_OVERHEAD;
/// Says on a pod what it was given.
const GIVEN: &str = "kubernetes.io/limit-ranger";

/// Gives the containers of a new pod the defaults of a namespace's `ranges`.
pub fn fill<'a>(pod: &mut Value, ranges: impl IntoIterator<Item = &'a Value>) {
    for range in ranges {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for limit in list(&range["spec"], "limits").iter().filter(|limit| word(limit, "type") == "Container") {
            requests.extend(limit["defaultRequest"].as_object().cloned().unwrap_or_default());
            limits.extend(limit["default"].as_object().cloned().unwrap_or_default());
        }
        let mut given = Vec::new();
        for (key, called) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod["spec"].get_mut(key).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (side, names) in fill_one(container, &requests, &limits) {
                    given.push(format!("{} {side} for {called} {name}", names.join(", ")));
                }
            }
        }
        if !given.is_empty() {
            let text = format!("LimitRanger plugin set: {}", given.join("; "));
            child(meta::meta_mut(pod), "annotations").insert(GIVEN.to_owned(), json!(text));
        }
    }
}

/// Answers what was given, by the side it was given to.
fn fill_one(
    container: &mut Map<String, Value>,
    requests: &Map<String, Value>,
    limits: &Map<String, Value>,
) -> Vec<(&'static str, Vec<String>)> {
    // What a container limits, it asks for; that comes before any default.
    let own = container.get("resources").and_then(|own| own["limits"].as_object()).cloned().unwrap_or_default();
    let mut given = Vec::new();
    for (key, side, defaults) in [("requests", "request", requests), ("limits", "limit", limits)] {
        if defaults.is_empty() {
            continue;
        }
        let amounts = child(child(container, "resources"), key);
        if key == "requests" {
            for (name, amount) in &own {
                amounts.entry(name.as_str()).or_insert_with(|| amount.clone());
            }
        }
        let missing = defaults.iter().filter(|(name, _)| !amounts.contains_key(*name));
        let missing: Vec<(String, Value)> = missing.map(|(name, amount)| (name.clone(), amount.clone())).collect();
        if !missing.is_empty() {
            given.push((side, missing.iter().map(|(name, _)| name.clone()).collect()));
            amounts.extend(missing);
        }
    }
    given
}

/// What is asked of an amount, by the key of the range that asks it.
type Rule = fn(&Bound<'_>) -> Option<String>;
const RULES: [(&str, Rule); 3] = [("min", at_least), ("max", at_most), ("maxLimitRequestRatio", in_ratio)];

/// One bound of a range, and what it bounds.
struct Bound<'a> {
    /// `Container`.
    of: &'a str,
    name: &'a str,
    bound: Quantity,
    request: Option<Quantity>,
    limit: Option<Quantity>,
    /// A claim asks for room and knows no limit.
    has_limit: bool,
}

/// Refuses a new pod, or a claim, that goes beyond one of a namespace's `ranges`; with every reason at once.
pub fn check<'a>(kind: &Kind, object: &Value, ranges: impl IntoIterator<Item = &'a Value>) -> Result<(), String> {
    let mut complaints = Vec::new();
    for range in ranges {
        for limit in list(&range["spec"], "limits") {
            for (requests, limits) in bounded(kind, object, word(limit, "type")) {
                complain(limit, &requests, limits.as_ref(), &mut complaints);
            }
        }
        if !complaints.is_empty() {
            break;
        }
    }
    complaints.dedup();
    match complaints.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// What a limit of type `of` bounds in `object`: requests, and limits where there are any to have.
fn bounded(kind: &Kind, object: &Value, of: &str) -> Vec<(Amounts, Option<Amounts>)> {
    let spec = &object["spec"];
    match (kind.collection(), of) {
        ("pods", "Container") => {
            let containers = list(spec, "containers").iter().chain(list(spec, "initContainers"));
            let sides = containers.map(|container| &container["resources"]);
            sides.map(|own| (Amounts::of(&own["requests"]), Some(Amounts::of(&own["limits"])))).collect()
        }
        ("pods", "Pod") => vec![(pod::requests(object, BOUNDED), Some(pod::limits(object, BOUNDED)))],
        ("persistentvolumeclaims", "PersistentVolumeClaim") => {
            vec![(Amounts::of(&spec["resources"]["requests"]), None)]
        }
        _ => Vec::new(),
    }
}

fn complain(limit: &Value, requests: &Amounts, limits: Option<&Amounts>, complaints: &mut Vec<String>) {
    for (key, rule) in RULES {
        for (name, bound) in Amounts::of(&limit[key]).iter() {
            let (request, own) = (requests.get(name), limits.and_then(|limits| limits.get(name)));
            let of = word(limit, "type");
            complaints.extend(rule(&Bound { of, name, bound, request, limit: own, has_limit: limits.is_some() }));
        }
    }
}

fn at_least(Bound { of, name, bound, request, limit, .. }: &Bound<'_>) -> Option<String> {
    let rule = format!("minimum {name} usage per {of} is {bound}");
    match (request, limit) {
        (None, _) => Some(format!("{rule}. No request is specified")),
        (Some(request), _) if request < bound => Some(format!("{rule}, but request is {request}")),
        (_, Some(limit)) if limit < bound => Some(format!("{rule}, but limit is {limit}")),
        _ => None,
    }
}

fn at_most(Bound { of, name, bound, request, limit, has_limit }: &Bound<'_>) -> Option<String> {
    let rule = format!("maximum {name} usage per {of} is {bound}");
    match (request, limit) {
        (_, None) if *has_limit => Some(format!("{rule}. No limit is specified")),
        (None, None) => Some(format!("{rule}. No request is specified")),
        (_, Some(limit)) if limit > bound => Some(format!("{rule}, but limit is {limit}")),
        (Some(request), _) if request > bound => Some(format!("{rule}, but request is {request}")),
        _ => None,
    }
}

fn in_ratio(Bound { of, name, bound, request, limit, has_limit }: &Bound<'_>) -> Option<String> {
    let rule = format!("{name} max limit to request ratio per {of} is {bound}");
    let some = |amount: &Option<Quantity>| amount.filter(|amount| !amount.is_zero());
    match (some(request), some(limit)) {
        _ if !has_limit => None,
        (None, _) => Some(format!("{rule}, but no request is specified or request is 0")),
        (_, None) => Some(format!("{rule}, but no limit is specified or limit is 0")),
        (Some(request), Some(limit)) => {
            let ratio = limit.ratio_to(request);
            (ratio > bound.ratio_to(Quantity::pieces(1))).then(|| format!("{rule}, but provided ratio is {ratio:.6}"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::kinds::built_in;

    fn range(limits: Value) -> Value {
        json!({ "spec": { "limits": limits } })
    }

    fn pod(resources: Value) -> Value {
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "app", "resources": resources }] } })
    }

    fn refusal(plural: &str, object: &Value, range: &Value) -> String {
        check(built_in("", "v1", plural).unwrap(), object, [range]).err().unwrap_or_default()
    }

    #[test]
    fn a_container_is_given_what_it_does_not_say_and_the_pod_says_so() {
        let range = range(json!([{ "type": "Container", "default": { "cpu": "1", "memory": "1Gi" },
            "defaultRequest": { "cpu": "100m", "memory": "64Mi" } }]));
        let mut silent = pod(json!({}));
        fill(&mut silent, [&range]);
        let resources = &silent["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({ "cpu": "100m", "memory": "64Mi" }));
        assert_eq!(resources["limits"], json!({ "cpu": "1", "memory": "1Gi" }));
        let said = "LimitRanger plugin set: cpu, memory request for container app; cpu, memory limit for container app";
        assert_eq!(silent["metadata"]["annotations"][GIVEN], said);

        let mut limited = pod(json!({ "limits": { "cpu": "200m" }, "requests": { "memory": "1Mi" } }));
        fill(&mut limited, [&range]);
        let resources = &limited["spec"]["containers"][0]["resources"];
        assert_eq!(resources["requests"], json!({ "cpu": "200m", "memory": "1Mi" }), "a limit is asked for");
        assert_eq!(resources["limits"], json!({ "cpu": "200m", "memory": "1Gi" }));
        assert_eq!(limited["metadata"]["annotations"][GIVEN], "LimitRanger plugin set: memory limit for container app");
    }

    /// The runtime's share is nobody's to limit: a namespace bounds what its pods ask for.
    #[test]
    fn pod_is_bounded_without_its_overhead() {
        let bound = range(json!([{ "type": "Pod", "max": { "cpu": "1" } }]));
        let own = json!({ "cpu": "1" });
        let mut pod = pod(json!({ "requests": own, "limits": own }));
        pod["spec"]["overhead"] = json!({ "cpu": "500m" });
        assert_eq!(refusal("pods", &pod, &bound), "");
        pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("1001m");
        assert_eq!(refusal("pods", &pod, &bound), "maximum cpu usage per Pod is 1, but limit is 1001m");
    }

    #[test]
    fn every_bound_is_refused_with_upstreams_words() {
        let both =
            |request: &str, limit: &str| pod(json!({ "requests": { "cpu": request }, "limits": { "cpu": limit } }));
        let silent = pod(json!({}));
        let claim = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        let ratio = json!({ "type": "Container", "maxLimitRequestRatio": { "cpu": "2" } });
        let cases: [(&str, Value, Value, &str); 13] = [
            (
                "pods",
                json!({ "type": "Container", "min": { "cpu": "100m" } }),
                both("50m", "1"),
                "minimum cpu usage per Container is 100m, but request is 50m",
            ),
            (
                "pods",
                json!({ "type": "Container", "min": { "cpu": "100m" } }),
                silent.clone(),
                "minimum cpu usage per Container is 100m. No request is specified",
            ),
            (
                "pods",
                json!({ "type": "Container", "max": { "cpu": "1" } }),
                both("100m", "1500m"),
                "maximum cpu usage per Container is 1, but limit is 1500m",
            ),
            (
                "pods",
                json!({ "type": "Container", "max": { "cpu": "1" } }),
                silent.clone(),
                "maximum cpu usage per Container is 1. No limit is specified",
            ),
            (
                "pods",
                json!({ "type": "Pod", "max": { "cpu": "1" } }),
                both("2", "1"),
                "maximum cpu usage per Pod is 1, but request is 2",
            ),
            (
                "pods",
                json!({ "type": "Pod", "min": { "cpu": "1" } }),
                both("1", "500m"),
                "minimum cpu usage per Pod is 1, but limit is 500m",
            ),
            (
                "pods",
                ratio.clone(),
                both("100m", "300m"),
                "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            ),
            (
                "pods",
                ratio.clone(),
                both("0", "300m"),
                "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (
                "pods",
                ratio.clone(),
                pod(json!({ "requests": { "cpu": "1" } })),
                "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
            ),
            ("pods", ratio, both("100m", "200m"), ""),
            (
                "persistentvolumeclaims",
                json!({ "type": "PersistentVolumeClaim", "max": { "storage": "1Gi" } }),
                claim("2Gi"),
                "maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi",
            ),
            (
                "persistentvolumeclaims",
                json!({ "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" } }),
                claim("1Mi"),
                "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi",
            ),
            (
                "pods",
                json!({ "type": "Pod", "min": { "cpu": "1" }, "max": { "cpu": "2", "memory": "1Gi" } }),
                both("500m", "3"),
                "[minimum cpu usage per Pod is 1, but request is 500m, maximum cpu usage per Pod is 2, but limit is 3, \
              maximum memory usage per Pod is 1Gi. No limit is specified]",
            ),
        ];
        for (plural, limit, object, expected) in cases {
            assert_eq!(refusal(plural, &object, &range(json!([limit]))), expected);
        }
    }
}
