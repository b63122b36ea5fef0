//! Which nodes a pod wants to be on, by their labels: for whoever looks for one, and for the node that it came to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Said of a node that a pod does not want.
pub const NOT_WANTED: &str = "node(s) didn't match Pod's node affinity/selector";

/// A node, as far as pods may ask for it.
#[derive(Clone, Copy, Debug)]
pub struct NodeLabels<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// Whether a pod would not take any node.
pub fn is_particular(spec: &PodSpec) -> bool {
    spec.node_selector.as_ref().is_some_and(|labels| !labels.is_empty()) || required(spec.affinity.as_ref()).is_some()
}

/// Whether a node is among those that a pod with this selector and affinity must be on.
pub fn wants(selector: &BTreeMap<String, String>, affinity: Option<&Affinity>, place: NodeLabels<'_>) -> bool {
    let selected = selector.iter().all(|(key, value)| place.labels.get(key) == Some(value));
    selected && required(affinity).is_none_or(|terms| terms.iter().any(|term| meets(term, place)))
}

fn required(affinity: Option<&Affinity>) -> Option<&[NodeSelectorTerm]> {
    let node = affinity?.node_affinity.as_ref()?;
    Some(&node.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms)
}

/// Whether a node meets a term. One without any requirement fits nobody.
pub fn meets(term: &NodeSelectorTerm, place: NodeLabels<'_>) -> bool {
    let expressions = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    if expressions.clone().next().is_none() && fields.clone().next().is_none() {
        return false;
    }
    let field = |key: &str| (key == "metadata.name").then_some(place.name);
    expressions.into_iter().all(|it| holds(it, place.labels.get(&it.key).map(String::as_str)))
        && fields.into_iter().all(|it| holds(it, field(&it.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().flatten().any(|one| one == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = requirement.values.as_ref().and_then(|values| number(values.first()?));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value.and_then(number).zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => value.and_then(number).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_wants_nodes_by_selector_and_by_affinity() {
        let labels = BTreeMap::from([("disk".to_owned(), "ssd".to_owned()), ("cores".to_owned(), "8".to_owned())]);
        let place = NodeLabels { name: "n1", labels: &labels };
        let wants = |spec: serde_json::Value| {
            let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
            (is_particular(&spec), wants(&spec.node_selector.unwrap_or_default(), spec.affinity.as_ref(), place))
        };
        assert_eq!(wants(json!({ "containers": [] })), (false, true));
        assert_eq!(wants(json!({ "containers": [], "nodeSelector": { "disk": "ssd" } })), (true, true));
        assert_eq!(wants(json!({ "containers": [], "nodeSelector": { "disk": "tape" } })), (true, false));
        let affinity = |terms: serde_json::Value| {
            let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
            wants(json!({ "containers": [], "affinity": { "nodeAffinity": required } }))
        };
        let many = |operator: &str| json!([{ "key": "cores", "operator": operator, "values": ["4"] }]);
        assert_eq!(affinity(json!([{ "matchExpressions": many("Gt") }])), (true, true));
        assert_eq!(affinity(json!([{ "matchExpressions": many("Lt") }])), (true, false));
        let named = json!([{ "key": "metadata.name", "operator": "In", "values": ["n1"] }]);
        assert_eq!(affinity(json!([{ "matchExpressions": many("In") }, { "matchFields": named }])), (true, true));
        assert_eq!(affinity(json!([{}])), (true, false));
    }
}
