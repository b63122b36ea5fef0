//! Who may do what, read from the stored roles and bindings at the moment of asking.
//!
//! Nothing is cached: a binding counts with the next request. The few rules that do not come from roles (nodes, and
//! the group that may do everything) are in [`crate::authorize`].

pub(crate) mod aggregate;
mod escalation;
mod policy;
#[cfg(test)]
mod properties;

use api::rbac::{self, RequestedAccess};
use serde_json::Value;

use crate::bootstrap::known;
use crate::identity::Identity;
use crate::request::key;
use crate::state::State;

pub(crate) use escalation::{check_delete, check_grant};
pub(crate) use policy::{bootstrap, is_controller};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Why something is allowed, or what was missing when it is not.
pub(crate) struct RbacDecision {
    /// The binding that allows it, as upstream words it.
    pub(crate) allowed: Option<String>,
    /// Roles that are bound but do not exist.
    pub(crate) missing: Vec<String>,
}

/// Looks for a binding that lets `identity` do `verb` on `asked` in `namespace` (empty: the whole cluster).
pub(crate) fn judge(
    state: &State,
    identity: &Identity,
    verb: &str,
    asked: RequestedAccess<'_>,
    namespace: &str,
) -> RbacDecision {
    let mut verdict = RbacDecision { allowed: None, missing: Vec::new() };
    let namespace = if matches!(asked, RequestedAccess::Path(_)) { "" } else { namespace };
    visit(state, identity, namespace, &mut verdict.missing, &mut |binding, rule| {
        if rbac::grants(rule, verb, asked) {
            verdict.allowed = Some(binding());
        }
        verdict.allowed.is_some()
    });
    verdict
}

/// All rules that hold for `identity` in `namespace`.
pub(crate) fn rules_of(state: &State, identity: &Identity, namespace: &str) -> Vec<Value> {
    let mut all = Vec::new();
    visit(state, identity, namespace, &mut Vec::new(), &mut |_, rule| {
        all.push(rule.clone());
        false
    });
    all
}

/// Shows `each` every rule that holds for `identity`, cluster-wide bindings first, until it says that it has seen
/// enough.
fn visit(
    state: &State,
    identity: &Identity,
    namespace: &str,
    missing: &mut Vec<String>,
    each: &mut dyn FnMut(&dyn Fn() -> String, &Value) -> bool,
) {
    let scopes = [("clusterrolebindings", "", "ClusterRoleBinding"), ("rolebindings", namespace, "RoleBinding")];
    for (plural, place, word) in scopes.into_iter().take(if namespace.is_empty() { 1 } else { 2 }) {
        let Ok(page) = state.store.list(known(GROUP, plural).collection(), place, None) else { continue };
        for binding in page.items {
            if !rbac::concerns(&binding.value(), &identity.user, &identity.groups, place) {
                continue;
            }
            let role = &binding.value()["roleRef"];
            let (kind, name) = (role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default());
            let Some(rules) = role_rules(state, kind, name, place) else {
                missing.push(format!("{}.{GROUP} {name:?} not found", kind.to_lowercase()));
                continue;
            };
            let reason = || {
                let place = if place.is_empty() { String::new() } else { format!("/{place}") };
                format!("RBAC: allowed by {word} \"{}{place}\" of {kind} {name:?}", binding.key.name)
            };
            if rules.iter().any(|rule| each(&reason, rule)) {
                return;
            }
        }
    }
}

/// The rules of a role; of an aggregated one, what it gathers from others by their labels at this moment.
fn role_rules(state: &State, kind: &str, name: &str, namespace: &str) -> Option<Vec<Value>> {
    let (plural, place) = if kind == "Role" { ("roles", namespace) } else { ("clusterroles", "") };
    let kind = known(GROUP, plural);
    let role = state.store.get(&key(kind, place, name))?;
    if plural == "clusterroles" && aggregate::gathers(&role) {
        let all = state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default();
        return Some(aggregate::gathered(&role, &all));
    }
    Some(role.value()["rules"].as_array().cloned().unwrap_or_default())
}
