//! Who may do what, read from the stored roles and bindings at the moment of asking.
//!
//! Nothing is cached: a binding counts with the next request. The few rules that do not come from roles (nodes, and
//! the group that may do everything) are in [`crate::authorize`].

pub(crate) mod aggregate;
mod policy;

use api::rbac::{self, Asked};
use api::selector::object as selector;
use api::{Kind, Status};
use serde_json::Value;

use crate::bootstrap::known;
use crate::identity::Identity;
use crate::request::{Request, key};
use crate::state::State;

pub(crate) use policy::bootstrap;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Why something is allowed, or what was missing when it is not.
pub(crate) struct Verdict {
    /// The binding that allows it, as upstream words it.
    pub(crate) allowed: Option<String>,
    /// Roles that are bound but do not exist.
    pub(crate) missing: Vec<String>,
}

/// Looks for a binding that lets `identity` do `verb` on `asked` in `namespace` (empty: the whole cluster).
pub(crate) fn judge(state: &State, identity: &Identity, verb: &str, asked: Asked<'_>, namespace: &str) -> Verdict {
    let mut verdict = Verdict { allowed: None, missing: Vec::new() };
    let namespace = if matches!(asked, Asked::Path(_)) { "" } else { namespace };
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

/// The rules of a role, with those that an aggregated role gathers from others by their labels.
fn role_rules(state: &State, kind: &str, name: &str, namespace: &str) -> Option<Vec<Value>> {
    let (plural, place) = if kind == "Role" { ("roles", namespace) } else { ("clusterroles", "") };
    let kind = known(GROUP, plural);
    let role = state.store.get(&key(kind, place, name))?;
    let value = role.value();
    let mut rules = value["rules"].as_array().cloned().unwrap_or_default();
    let selectors = value["aggregationRule"]["clusterRoleSelectors"].as_array();
    if let Some(selectors) = selectors.filter(|selectors| !selectors.is_empty()) {
        let all = state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default();
        for other in all.iter().filter(|other| other.key != role.key) {
            if selectors.iter().any(|own| selector::selects(own, &other.value())) {
                rules.extend(other.value()["rules"].as_array().into_iter().flatten().cloned());
            }
        }
    }
    Some(rules)
}

/// Nobody may give, by writing a role or a binding, what they do not have: unless they may `escalate` or `bind`.
pub(crate) fn check_grant(state: &State, request: &Request, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    let kind = request.kind;
    let identity = &request.identity;
    if kind.group != GROUP || identity.is_in("system:masters") {
        return Ok(());
    }
    let namespace = request.namespace.as_str();
    let may = |verb: &str, resource: &str, name: &str| {
        let asked = Asked::Resource { group: GROUP, resource, subresource: "", name };
        judge(state, identity, verb, asked, namespace).allowed.is_some()
    };
    let name = api::meta::name(new);
    let wanted = if kind.plural.ends_with("bindings") {
        let unchanged = old.is_some_and(|old| old["roleRef"] == new["roleRef"] && old["subjects"] == new["subjects"]);
        let role = &new["roleRef"];
        let (role_kind, role_name) =
            (role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default());
        let plural = if role_kind == "Role" { "roles" } else { "clusterroles" };
        if unchanged || may("bind", plural, role_name) {
            return Ok(());
        }
        let Some(rules) = role_rules(state, role_kind, role_name, namespace) else {
            return Err(Status::not_found(known(GROUP, plural), role_name));
        };
        rules
    } else {
        let unchanged =
            old.is_some_and(|old| old["rules"] == new["rules"] && old["aggregationRule"] == new["aggregationRule"]);
        if unchanged || may("escalate", kind.plural, name) {
            return Ok(());
        }
        if new.get("aggregationRule").is_some() {
            let text = "must have cluster-admin privileges to use the aggregationRule";
            return Err(Status::forbidden(kind, name, text));
        }
        new["rules"].as_array().cloned().unwrap_or_default()
    };
    refuse_more(kind, name, identity, &rules_of(state, identity, namespace), &wanted)
}

fn refuse_more(kind: &Kind, name: &str, identity: &Identity, own: &[Value], wanted: &[Value]) -> Result<(), Status> {
    let beyond: Vec<String> = wanted.iter().filter(|rule| !rbac::covers(own, rule)).map(shown).collect();
    if beyond.is_empty() {
        return Ok(());
    }
    let groups: Vec<String> = identity.groups.iter().map(|group| format!("{group:?}")).collect();
    let text = format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        identity.user,
        groups.join(" "),
        beyond.join("\n")
    );
    Err(Status::forbidden(kind, name, &text))
}

/// A rule the way upstream prints it in refusals.
fn shown(rule: &Value) -> String {
    let keys = [
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    ];
    let parts: Vec<String> = keys
        .iter()
        .filter_map(|(word, key)| {
            let values: Vec<String> = rule[*key].as_array()?.iter().map(ToString::to_string).collect();
            (!values.is_empty()).then(|| format!("{word}:[{}]", values.join(" ")))
        })
        .collect();
    format!("{{{}}}", parts.join(", "))
}
