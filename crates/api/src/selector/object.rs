//! A selector that is part of an object: `matchLabels` and `matchExpressions`, all of which must hold.

use serde_json::Value;

use crate::meta;
use crate::rules::names;
use crate::rules::value::{list, word};
use crate::status::Cause;

/// Whether `selector` takes `object`. A selector that is not there takes nothing, an empty one everything.
pub fn selects(selector: &Value, object: &Value) -> bool {
    selector.is_object() && takes(selector, |key| meta::label(object, key))
}

/// The same for labels that are not (yet) an object's.
pub(crate) fn takes<'a>(selector: &Value, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let all_equal = pairs.into_iter().all(|(key, value)| label(key) == value.as_str());
    all_equal
        && list(selector, "matchExpressions").iter().all(|expression| {
            let found = label(word(expression, "key"));
            let among = |found: &str| list(expression, "values").iter().any(|value| value == found);
            match word(expression, "operator") {
                "In" => found.is_some_and(among),
                "NotIn" => found.is_none_or(|found| !among(found)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

/// Whether it has no requirement at all.
pub(crate) fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
        && list(selector, "matchExpressions").is_empty()
}

/// The selector as one line, the way queries write it: `a=b,c in (d,e)`.
pub(crate) fn to_text(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in list(selector, "matchExpressions") {
        let key = word(expression, "key");
        let mut values: Vec<&str> = list(expression, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push(match word(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort();
    parts.join(",")
}

/// What is wrong with the selector at `field`.
pub(crate) fn validate(selector: &Value, field: &str, causes: &mut Vec<Cause>) {
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        if let Some(text) = names::qualified(key) {
            causes.push(Cause::invalid(format!("{field}.matchLabels"), key.as_str(), &text));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(text) = names::label_value(value) {
            causes.push(Cause::invalid(format!("{field}.matchLabels"), value, &text));
        }
    }
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let at = |key: &str| format!("{field}.matchExpressions[{index}].{key}");
        let given = list(expression, "values").len();
        match word(expression, "operator") {
            "In" | "NotIn" if given == 0 => {
                causes.push(Cause::required(at("values"), "must be specified when `operator` is 'In' or 'NotIn'"));
            }
            "Exists" | "DoesNotExist" if given > 0 => {
                let text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(at("values"), text));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => causes.push(Cause::invalid(at("operator"), other, "not a valid selector operator")),
        }
        if let Some(text) = names::qualified(word(expression, "key")) {
            causes.push(Cause::invalid(at("key"), word(expression, "key"), &text));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_must_all_hold() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front", "back"]}, {"key": "old", "operator": "DoesNotExist"}]});
        assert!(selects(&selector, &object));
        assert!(!selects(&json!({"matchLabels": {"app": "db"}}), &object));
        assert!(!selects(
            &json!({"matchExpressions": [{"key": "app", "operator": "Exists"},
            {"key": "tier", "operator": "NotIn", "values": ["front"]}]}),
            &object
        ));
        assert!(selects(&json!({}), &object) && !selects(&Value::Null, &object));
        assert_eq!(to_text(&selector), "!old,app=web,tier in (back,front)");
    }
}
