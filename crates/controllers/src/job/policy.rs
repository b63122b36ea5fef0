//! What a Job says about failures and successes: podFailurePolicy and successPolicy.

use serde::Deserialize;

use super::indexes::CompletionIndexes;
use super::job_pod::JobPod;

/// Rules about pods that have failed; the first that matches counts.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub(crate) struct PodFailurePolicy {
    rules: Vec<FailureRule>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct FailureRule {
    action: String,
    on_exit_codes: Option<ExitCodes>,
    on_pod_conditions: Option<Vec<ConditionPattern>>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct ExitCodes {
    container_name: Option<String>,
    operator: String,
    values: Vec<i32>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
struct ConditionPattern {
    r#type: String,
    status: Option<String>,
}

/// What follows from the failure of a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FailureAction {
    /// It counts.
    Count,
    /// It does not.
    Ignore,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

impl PodFailurePolicy {
    /// What follows from the failure of this pod.
    pub(crate) fn action(&self, pod: &JobPod) -> FailureAction {
        for (number, rule) in self.rules.iter().enumerate() {
            let matched = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
                (Some(codes), _) => codes.matched(pod, rule, number),
                (None, Some(patterns)) => patterns.iter().find_map(|it| it.matched(pod, rule, number)),
                (None, None) => None,
            };
            let Some(message) = matched else { continue };
            match rule.action.as_str() {
                "FailJob" => return FailureAction::FailJob(message),
                "FailIndex" => return FailureAction::FailIndex,
                "Ignore" => return FailureAction::Ignore,
                "Count" => return FailureAction::Count,
                // A rule of a later version says nothing to us.
                _ => {}
            }
        }
        FailureAction::Count
    }
}

impl ExitCodes {
    fn matched(&self, pod: &JobPod, rule: &FailureRule, number: usize) -> Option<String> {
        let named = |container: &str| self.container_name.as_deref().is_none_or(|name| name == container);
        let listed = |code: i32| match self.operator.as_str() {
            "In" => self.values.contains(&code),
            "NotIn" => !self.values.contains(&code),
            _ => false,
        };
        let exit = pod.exits.iter().find(|it| it.code != 0 && named(&it.container) && listed(it.code))?;
        let (namespace, name, action) = (&pod.namespace, &pod.name, &rule.action);
        Some(format!(
            "Container {} for pod {namespace}/{name} failed with exit code {} matching {action} rule at index {number}",
            exit.container, exit.code
        ))
    }
}

impl ConditionPattern {
    fn matched(&self, pod: &JobPod, rule: &FailureRule, number: usize) -> Option<String> {
        let status = self.status.as_deref().unwrap_or("True");
        pod.conditions.iter().find(|(kind, is)| **kind == *self.r#type && **is == *status)?;
        let (namespace, name, kind, action) = (&pod.namespace, &pod.name, &self.r#type, &rule.action);
        Some(format!("Pod {namespace}/{name} has condition {kind} matching {action} rule at index {number}"))
    }
}

/// When enough indexes have succeeded; one rule is enough.
#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub(crate) struct SuccessPolicy {
    rules: Vec<SuccessRule>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct SuccessRule {
    succeeded_indexes: Option<String>,
    succeeded_count: Option<i32>,
}

impl SuccessPolicy {
    /// Why these successes are enough, if they are.
    pub(crate) fn met(&self, succeeded: &CompletionIndexes, completions: u32) -> Option<String> {
        let is_met = |rule: &SuccessRule| {
            let count = rule.succeeded_count.map(i64::from);
            match &rule.succeeded_indexes {
                Some(text) => {
                    let asked = CompletionIndexes::parse(text, completions);
                    succeeded.shared_with(&asked) >= count.unwrap_or_else(|| asked.total())
                }
                None => count.is_some_and(|count| succeeded.total() >= count),
            }
        };
        let number = self.rules.iter().position(is_met)?;
        Some(format!("Matched rules at index {number}"))
    }
}
