//! Label selectors as objects have them, asked about labels wherever those are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Whether it has no requirement at all.
pub(crate) fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether it takes whoever has these labels. An empty one takes everybody.
pub(crate) fn takes<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let named = selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value));
    named
        && selector.match_expressions.iter().flatten().all(|it| {
            let value = label(&it.key);
            let listed = || value.is_some_and(|value| it.values.iter().flatten().any(|one| one == value));
            match it.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
