//! Nobody gives away what they do not have: every write of a role or a binding is judged by what it would grant.
//!
//! Upstream's rules, and one more: a default cluster role counts as at least what the next start makes of it again.

use api::rbac::{self, RequestedAccess};
use api::{Kind, Status};
use serde_json::{Value, json};

use super::{GROUP, judge, policy, role_rules, rules_of};
use crate::bootstrap::known;
use crate::identity::Identity;
use crate::request::Request;
use crate::state::State;

/// What only the garbage collector writes, and what the server fills in. None of it grants anything.
const GRANTS_NOTHING: [&str; 5] = ["ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion"];

/// Refuses a role or a binding that gives more than the writer has, unless they may `escalate` or `bind`. A label alone can give:
/// others gather by it. So every change is judged but that of fields that grant nothing.
pub(crate) fn check_grant(state: &State, request: &Request, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    let kind = &request.kind;
    let exempt = kind.group != GROUP || request.identity.is_in("system:masters");
    if exempt || old.is_some_and(|old| granting_part(old) == granting_part(new)) {
        return Ok(());
    }
    if kind.plural.ends_with("bindings") {
        check_binding(state, request, new)
    } else {
        check_role(state, request, old, new)
    }
}

/// Refuses to delete a default cluster role to those who have less than it has by default: the next start makes it anew, and
/// whoever is bound to it has it again.
pub(crate) fn check_delete(state: &State, request: &Request, name: &str) -> Result<(), Status> {
    let kind = &request.kind;
    if kind.group != GROUP || kind.plural != "clusterroles" || request.identity.is_in("system:masters") {
        return Ok(());
    }
    let wanted = policy::default_rules(name);
    if wanted.is_empty() || may(state, request, "escalate", &kind.plural, name) {
        return Ok(());
    }
    refuse_more(kind, name, &request.identity, &rules_of(state, &request.identity, ""), &wanted)
}

fn check_role(state: &State, request: &Request, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    let (kind, name) = (&request.kind, api::meta::name(new));
    // By the name in the path, as upstream: whoever creates has none there, and needs the right to escalate any.
    if may(state, request, "escalate", &kind.plural, &request.name) {
        return Ok(());
    }
    let own = rules_of(state, &request.identity, &request.namespace);
    let mut wanted = new["rules"].as_array().cloned().unwrap_or_default();
    if kind.plural == "clusterroles" {
        wanted.extend(policy::restored_rules(new));
    }
    refuse_more(kind, name, &request.identity, &own, &wanted)?;
    // It can gather anything, and keeps what it gathers from being made less.
    let gathers = |role: &Value| !role["aggregationRule"].is_null();
    if (gathers(new) || old.is_some_and(gathers)) && !everything().iter().all(|rule| rbac::covers(&own, rule)) {
        let text = "must have cluster-admin privileges to use the aggregationRule";
        return Err(Status::forbidden(kind, name, text));
    }
    Ok(())
}

fn check_binding(state: &State, request: &Request, new: &Value) -> Result<(), Status> {
    let role = &new["roleRef"];
    let (kind, name) = (role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default());
    let plural = if kind == "Role" { "roles" } else { "clusterroles" };
    let namespace = request.namespace.as_str();
    if may(state, request, "bind", plural, name) {
        return Ok(());
    }
    let Some(mut wanted) = role_rules(state, kind, name, namespace) else {
        return Err(Status::not_found(known(GROUP, plural), name));
    };
    if kind != "Role"
        && let Some(stored) = state.store.get(&crate::request::key(known(GROUP, plural), "", name))
    {
        wanted.extend(policy::restored_rules(&stored.value()));
    }
    let own = rules_of(state, &request.identity, namespace);
    refuse_more(&request.kind, api::meta::name(new), &request.identity, &own, &wanted)
}

fn may(state: &State, request: &Request, verb: &str, resource: &str, name: &str) -> bool {
    let asked = RequestedAccess::Resource { group: GROUP, resource, subresource: "", name };
    judge(state, &request.identity, verb, asked, &request.namespace).allowed.is_some()
}

/// All of an object that can grant something.
fn granting_part(object: &Value) -> Value {
    let mut part = object.clone();
    if let Some(metadata) = part.get_mut("metadata").and_then(Value::as_object_mut) {
        GRANTS_NOTHING.iter().for_each(|key| drop(metadata.remove(*key)));
    }
    part
}

fn everything() -> [Value; 2] {
    [
        json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }),
        json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }),
    ]
}

fn refuse_more(kind: &Kind, name: &str, identity: &Identity, own: &[Value], wanted: &[Value]) -> Result<(), Status> {
    let mut beyond: Vec<String> = Vec::new();
    for rule in wanted.iter().filter(|rule| !rbac::covers(own, rule)).map(shown) {
        if !beyond.contains(&rule) {
            beyond.push(rule);
        }
    }
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
