//! Roles and bindings: who may do what, as stored. How they are judged is [`crate::rbac`]'s.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::Value;

use super::value::{child, each_mut, list, put, word};
use super::{Rules, names, typed_as};
use crate::meta;
use crate::selector::object as selector;
use crate::status::Cause;

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) struct RoleRules;

impl Rules for RoleRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<Role>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::PathSegment
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_rules(object, true, causes);
    }
}

pub(crate) struct ClusterRoleRules;

impl Rules for ClusterRoleRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ClusterRole>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::PathSegment
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_rules(object, false, causes);
        validate_aggregation(object, causes);
    }
}

pub(crate) struct RoleBindingRules;

impl Rules for RoleBindingRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<RoleBinding>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::PathSegment
    }

    fn default(&self, object: &mut Value) {
        binding_defaults(object);
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_binding(object, &["ClusterRole", "Role"], causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        keeps_role(old, new, causes);
    }
}

pub(crate) struct ClusterRoleBindingRules;

impl Rules for ClusterRoleBindingRules {
    fn typed(&self, object: &Value) -> Result<Value, serde_json::Error> {
        typed_as::<ClusterRoleBinding>(object)
    }

    fn name_rule(&self) -> names::Rule {
        names::Rule::PathSegment
    }

    fn default(&self, object: &mut Value) {
        binding_defaults(object);
    }

    fn validate(&self, object: &Value, causes: &mut Vec<Cause>) {
        validate_binding(object, &["ClusterRole"], causes);
    }

    fn validate_update(&self, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
        keeps_role(old, new, causes);
    }
}

fn binding_defaults(object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    put(child(map, "roleRef"), "apiGroup", GROUP);
    for subject in each_mut(map, "subjects") {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            put(subject, "apiGroup", GROUP);
        }
    }
}

fn validate_rules(object: &Value, namespaced: bool, causes: &mut Vec<Cause>) {
    for (index, rule) in list(object, "rules").iter().enumerate() {
        let field = |key: &str| format!("rules[{index}].{key}");
        if list(rule, "verbs").is_empty() {
            causes.push(Cause::required(field("verbs"), "verbs must contain at least one value"));
        }
        let resources = !list(rule, "apiGroups").is_empty() || !list(rule, "resources").is_empty();
        if !list(rule, "nonResourceURLs").is_empty() {
            if namespaced {
                let text = "namespaced rules cannot apply to non-resource URLs";
                causes.push(Cause::invalid(field("nonResourceURLs"), rule["nonResourceURLs"].clone(), text));
            } else if resources || !list(rule, "resourceNames").is_empty() {
                let text = "rules cannot apply to both regular resources and non-resource URLs";
                causes.push(Cause::invalid(field("nonResourceURLs"), rule["nonResourceURLs"].clone(), text));
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            causes.push(Cause::required(field("apiGroups"), "resource rules must supply at least one api group"));
        }
        if list(rule, "resources").is_empty() {
            causes.push(Cause::required(field("resources"), "resource rules must supply at least one resource"));
        }
    }
}

/// A role that gathers says what; a selector that is not one would gather nothing, or everything, unnoticed.
fn validate_aggregation(object: &Value, causes: &mut Vec<Cause>) {
    let aggregation = &object["aggregationRule"];
    if aggregation.is_null() {
        return;
    }
    let selectors = list(aggregation, "clusterRoleSelectors");
    if selectors.is_empty() {
        let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        causes.push(Cause::required("aggregationRule.clusterRoleSelectors", text));
    }
    for (index, own) in selectors.iter().enumerate() {
        selector::validate(own, &format!("aggregationRule.clusterRoleSelectors[{index}]"), causes);
    }
}

fn validate_binding(object: &Value, role_kinds: &[&str], causes: &mut Vec<Cause>) {
    let role = &object["roleRef"];
    if word(role, "apiGroup") != GROUP {
        causes.push(Cause::not_supported("roleRef.apiGroup", word(role, "apiGroup"), &[GROUP]));
    }
    if !role_kinds.contains(&word(role, "kind")) {
        causes.push(Cause::not_supported("roleRef.kind", word(role, "kind"), role_kinds));
    }
    if word(role, "name").is_empty() {
        causes.push(Cause::required("roleRef.name", ""));
    }
    for (index, subject) in list(object, "subjects").iter().enumerate() {
        let field = |key: &str| format!("subjects[{index}].{key}");
        if word(subject, "name").is_empty() {
            causes.push(Cause::required(field("name"), ""));
        }
        let expected = match word(subject, "kind") {
            "ServiceAccount" => {
                // A binding in a namespace means an account there, unless it says otherwise.
                if word(subject, "namespace").is_empty() && meta::namespace(object).is_empty() {
                    causes.push(Cause::required(field("namespace"), ""));
                }
                ""
            }
            "User" | "Group" => GROUP,
            other => {
                causes.push(Cause::not_supported(field("kind"), other, &["ServiceAccount", "User", "Group"]));
                continue;
            }
        };
        if word(subject, "apiGroup") != expected {
            causes.push(Cause::not_supported(field("apiGroup"), word(subject, "apiGroup"), &[expected]));
        }
    }
}

fn keeps_role(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["roleRef"] != new["roleRef"] {
        causes.push(Cause::invalid("roleRef", new["roleRef"].clone(), "cannot change roleRef"));
    }
}
