//! Label selectors as objects have them, asked about labels wherever those are.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

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

/// The selector, narrowed to whoever has the same values under the keys `same` as `labels`, and others under the keys `other`. A key
/// that is not among the labels asks for nothing.
pub(crate) fn with_label_keys(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
    same: &[String],
    other: &[String],
) -> LabelSelector {
    let mut narrowed = selector.clone();
    for (keys, operator) in [(same, "In"), (other, "NotIn")] {
        for (key, value) in keys.iter().filter_map(|key| labels.get_key_value(key)) {
            narrowed.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    }
    narrowed
}
