//! Whether a container that has ended may run again: by a rule of its own, its own policy, or its pod's.

use serde_json::Value;

use super::{list, word};

/// Whether the main container of that name, which ended with this code, may run again.
pub(super) fn may_run_again(spec: &Value, name: &str, code: i64) -> bool {
    if any_container_may_restart_all(spec) {
        return true;
    }
    let by_policy = |policy: &str| match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    };
    let container = list(spec, "containers").iter().find(|container| word(container, "name") == name);
    match container.map(|container| (container, word(container, "restartPolicy"))) {
        None | Some((_, "")) => by_policy(word(spec, "restartPolicy")),
        Some((container, own)) => {
            list(container, "restartPolicyRules").iter().any(|rule| holds(rule, code)) || by_policy(own)
        }
    }
}

fn any_container_may_restart_all(spec: &Value) -> bool {
    let mut containers = list(spec, "initContainers").iter().chain(list(spec, "containers"));
    let asks = |rule: &Value| word(rule, "action") == "RestartAllContainers";
    containers.any(|container| list(container, "restartPolicyRules").iter().any(asks))
}

fn holds(rule: &Value, code: i64) -> bool {
    let codes = &rule["exitCodes"];
    let named = list(codes, "values").iter().any(|value| value.as_i64() == Some(code));
    match word(codes, "operator") {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn container_may_run_again_by_its_rules_then_its_policy_then_that_of_its_pod() {
        let rules = json!([{ "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } }]);
        let but = json!([{ "action": "Restart", "exitCodes": { "operator": "NotIn", "values": [42] } }]);
        for (pods, own, rules, code, expected) in [
            ("Always", Value::Null, Value::Null, 0, true),
            ("OnFailure", Value::Null, Value::Null, 0, false),
            ("OnFailure", Value::Null, Value::Null, 1, true),
            ("Never", Value::Null, Value::Null, 1, false),
            ("Never", json!("OnFailure"), Value::Null, 1, true),
            ("Always", json!("Never"), Value::Null, 1, false),
            ("Never", json!("Never"), rules.clone(), 42, true),
            ("Never", json!("Never"), rules, 43, false),
            ("Never", json!("Never"), but.clone(), 43, true),
            ("Never", json!("Never"), but, 42, false),
        ] {
            let app = json!({ "name": "app", "restartPolicy": own, "restartPolicyRules": rules });
            let spec = json!({ "restartPolicy": pods, "containers": [app] });
            assert_eq!(may_run_again(&spec, "app", code), expected, "{spec} {code}");
        }
        let all = json!([{ "action": "RestartAllContainers", "exitCodes": { "operator": "In", "values": [1] } }]);
        let init = json!({ "name": "init", "restartPolicy": "Never", "restartPolicyRules": all });
        let spec = json!({ "restartPolicy": "Never", "initContainers": [init], "containers": [{ "name": "app" }] });
        assert!(may_run_again(&spec, "app", 0), "another one may ask for it");
    }
}
