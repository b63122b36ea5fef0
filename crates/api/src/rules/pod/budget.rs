//! May this pod be evicted now? The decision of api-deletion 10.2, from the pod and the budgets of its namespace.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{list, word};
use crate::selector::object as selector;
use crate::status::{Cause, Status};
use crate::{meta, pod, time};

/// Most pods a budget remembers having let go.
const DISRUPTED_MAX: usize = 2000;
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// What an eviction takes. It holds for the pod and the budgets as they were seen: one that becomes ready meanwhile
/// must not slip through, so the caller writes only if they still are.
#[derive(Debug, Clone, PartialEq)]
pub enum Budget {
    /// Nothing.
    Free,
    /// This new state of the budget called `name` must be stored with the delete.
    Spend {
        /// The budget.
        name: String,
        /// Its next state, made from the one that was given.
        budget: Value,
    },
}

/// Decides, or refuses with the answer of the eviction. `budgets` are all those of the pod's namespace.
pub fn decide_eviction<'a>(
    pod: &Value,
    budgets: impl Iterator<Item = &'a Value>,
    now: Timestamp,
) -> Result<Budget, Status> {
    if pod::is_terminating(pod) || pod::is_terminal(pod) || word(&pod["status"], "phase") == "Pending" {
        return Ok(Budget::Free);
    }
    let mut found = budgets.filter(|budget| selector::selects(&budget["spec"]["selector"], pod));
    let Some(budget) = found.next() else { return Ok(Budget::Free) };
    let others: Vec<&str> = found.map(meta::name).collect();
    if !others.is_empty() {
        let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let names = [&[meta::name(budget)], others.as_slice()].concat().join(", ");
        return Err(Status::new(500, "", format!("{text} They are: {names}.")));
    }
    let count = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    if !pod::is_ready(pod) {
        let always = word(&budget["spec"], "unhealthyPodEvictionPolicy") == "AlwaysAllow";
        let healthy = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
        if always || healthy {
            return Ok(Budget::Free);
        }
    }
    spend(pod, budget, now)
}

fn spend(pod: &Value, budget: &Value, now: Timestamp) -> Result<Budget, Status> {
    let name = meta::name(budget);
    let status = &budget["status"];
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
    if status["observedGeneration"].as_i64().unwrap_or(0) < meta::generation(budget) {
        let text = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(text).with_retry_after(10));
    }
    let forbidden = |text: &str| {
        let kind = crate::built_in("policy", "v1", "poddisruptionbudgets").expect("budgets are served");
        Err(Status::forbidden(kind, name, text))
    };
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if status["disruptedPods"].as_object().map_or(0, serde_json::Map::len) > DISRUPTED_MAX {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return Err(refused(why_not(name, status)));
    }
    let mut next = budget.clone();
    let status = meta::child_mut(&mut next, "status");
    status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
    let gone = status.entry("disruptedPods").or_insert_with(|| json!({}));
    gone[meta::name(pod)] = json!(time::seconds(now));
    if allowed == 1 {
        let conditions = next.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter(|c| c["type"] == "DisruptionAllowed") {
            condition["status"] = json!("False");
            condition["reason"] = json!("InsufficientPods");
            condition["lastTransitionTime"] = json!(time::seconds(now));
        }
    }
    Ok(Budget::Spend { name: name.to_owned(), budget: next })
}

/// 429 with the budget as its cause. No time to wait is named: clients would wait in silence.
fn refused(text: String) -> Status {
    let cause = Cause { reason: "DisruptionBudget", message: text, field: String::new() };
    Status::too_many_requests(REFUSED, 0).with_cause(cause)
}

fn why_not(name: &str, status: &Value) -> String {
    let (current, desired) =
        (status["currentHealthy"].as_i64().unwrap_or(0), status["desiredHealthy"].as_i64().unwrap_or(0));
    if current <= desired {
        return format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently");
    }
    let opening = format!("The disruption budget {name} does not allow evicting pods currently");
    let condition =
        list(status, "conditions").iter().find(|c| c["type"] == "DisruptionAllowed" && c["status"] == "False");
    match condition.map(|c| (word(c, "reason"), word(c, "message"))) {
        Some(("SyncFailed", message)) => format!("{opening} because it failed sync: {message}"),
        Some((reason, message)) if !reason.is_empty() => format!("{opening} ({reason}): {message}"),
        Some(_) | None => opening,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn pod(phase: &str, ready: bool) -> Value {
        json!({"metadata": {"name": "p", "labels": {"app": "w"}}, "status": {"phase": phase,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}})
    }

    fn budget(allowed: i64, current: i64, desired: i64) -> Value {
        json!({"metadata": {"name": "b", "generation": 1}, "spec": {"selector": {"matchLabels": {"app": "w"}}},
            "status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": current,
                       "desiredHealthy": desired}})
    }

    fn decide(pod: &Value, budgets: &[Value]) -> Result<Budget, Status> {
        decide_eviction(pod, budgets.iter(), time::parse("2026-01-01T00:00:00Z").unwrap())
    }

    #[test]
    fn a_budget_is_spent_pod_by_pod() {
        let Budget::Spend { name, budget: next } = decide(&pod("Running", true), &[budget(1, 2, 1)]).unwrap() else {
            panic!("a ready pod costs")
        };
        assert_eq!((name.as_str(), &next["status"]["disruptionsAllowed"]), ("b", &json!(0)));
        assert_eq!(next["status"]["disruptedPods"], json!({"p": "2026-01-01T00:00:00Z"}));
        let error = decide(&pod("Running", true), &[budget(0, 1, 1)]).unwrap_err();
        assert_eq!((error.code, error.retry_after()), (429, None));
        let cause = &error.details.unwrap().causes[0];
        assert_eq!(cause.message, "The disruption budget b needs 1 healthy pods and has 1 currently");
    }

    #[test]
    fn eviction_of_an_unready_pod_costs_no_budget() {
        let spent = [budget(0, 1, 1)];
        assert_eq!(decide(&pod("Pending", false), &spent).unwrap(), Budget::Free);
        assert_eq!(decide(&pod("Failed", false), &spent).unwrap(), Budget::Free);
        assert_eq!(decide(&pod("Running", false), &spent).unwrap(), Budget::Free);
        assert!(decide(&pod("Running", false), &[budget(0, 0, 1)]).is_err());
        let mut always = budget(0, 0, 1);
        always["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(decide(&pod("Running", false), &[always]).unwrap(), Budget::Free);
        let mut other = budget(0, 0, 1);
        other["spec"]["selector"] = json!({"matchLabels": {"app": "x"}});
        assert_eq!(decide(&pod("Running", true), &[other]).unwrap(), Budget::Free);
    }

    #[test]
    fn eviction_under_an_outdated_budget_says_when_to_retry() {
        let mut newer = budget(1, 2, 1);
        newer["metadata"]["generation"] = json!(2);
        assert_eq!(decide(&pod("Running", true), &[newer]).unwrap_err().retry_after(), Some(10));
        let two = decide(&pod("Running", true), &[budget(1, 2, 1), budget(1, 2, 1)]).unwrap_err();
        assert_eq!((two.code, two.reason), (500, ""));
    }
}
