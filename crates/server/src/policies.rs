//! What a namespace asks of what is put into it: limit ranges, pod security, quotas.
//!
//! [`fill`] runs before an object is judged by its own rules, [`admit`] after: what is not sound is told so first.

use std::sync::Arc;

use api::pod_security::{self, LevelAt, Policy};
use api::{Kind, Status, limits};
use serde_json::Value;

use crate::create;
use crate::mountable_secrets;
use crate::quotas::Reservation;
use crate::state::{State, core_kind};

/// Pods of a namespace that are looked at when its level changes.
const LOOKED_AT: usize = 3000;

/// Something that is about to be stored.
pub(crate) struct Arrival<'a> {
    pub(crate) kind: &'a Arc<Kind>,
    pub(crate) namespace: &'a str,
    /// The endpoint of a part that it came through.
    pub(crate) subresource: Option<&'a str>,
    /// What it takes the place of.
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: &'a Value,
    /// The limit ranges that it was filled from, if it was.
    pub(crate) ranges: Option<&'a Ranges>,
}

/// The limit ranges of a namespace.
pub(crate) type Ranges = Vec<Arc<Value>>;

/// Gives a new pod what the limit ranges of its namespace give, and answers them. One that a node runs without the API stays as
/// it is.
pub(crate) fn fill(state: &State, kind: &Kind, namespace: &str, object: &mut Value) -> Option<Ranges> {
    if kind.collection() != "pods" || !object["spec"].is_object() || api::pod::is_mirror(object) {
        return None;
    }
    let ranges = ranges(state, namespace);
    limits::fill(object, ranges.iter().map(|range| &**range));
    Some(ranges)
}

/// Refuses what the namespace does not take; what is only frowned upon goes to `warnings`. Whoever stores the object
/// holds the reservation until it is stored.
pub(crate) fn admit(
    state: &State,
    arrival: &Arrival<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<Reservation>, Status> {
    let refuse = |text: String| Status::forbidden(arrival.kind, api::meta::name(arrival.new), &text);
    mountable_secrets::check(state, arrival).map_err(refuse)?;
    check_limits(state, arrival).map_err(refuse)?;
    warnings.extend(check_security(state, arrival).map_err(refuse)?);
    state.quotas.reserve(&state.store, arrival, state.now()).map_err(refuse)
}

fn ranges(state: &State, namespace: &str) -> Ranges {
    let all = state.store.list(core_kind("limitranges").collection(), namespace, None);
    all.map(|page| page.items).unwrap_or_default().iter().map(|range| range.value()).collect()
}

/// Pods change what is limited in them only by a resize; claims can.
fn check_limits(state: &State, arrival: &Arrival<'_>) -> Result<(), String> {
    let asked = match arrival.kind.collection() {
        "pods" => {
            let may_differ = arrival.old.is_none() || arrival.subresource == Some("resize");
            may_differ && !api::pod::is_mirror(arrival.new)
        }
        "persistentvolumeclaims" => {
            arrival.subresource.is_none() && api::meta::deletion_timestamp(arrival.new).is_none()
        }
        _ => false,
    };
    if !asked {
        return Ok(());
    }
    let check = |ranges: &Ranges| limits::check(arrival.kind, arrival.new, ranges.iter().map(|range| &**range));
    arrival.ranges.map_or_else(|| check(&ranges(state, arrival.namespace)), check)
}

fn check_security(state: &State, arrival: &Arrival<'_>) -> Result<Vec<String>, String> {
    let Arrival { kind, namespace, subresource, old, new, .. } = *arrival;
    if kind.collection() == "namespaces" && subresource.is_none() {
        return Ok(old.map(|old| existing(state, old, new)).unwrap_or_default());
    }
    let is_pod = kind.collection() == "pods";
    let looked_at = match (is_pod, subresource) {
        (true, None | Some("ephemeralcontainers")) => {
            old.is_none_or(|old| pod_security::is_significant(old, new)).then_some(new)
        }
        (false, None) => pod_security::template(kind, new),
        _ => None,
    };
    let Some(pod) = looked_at else { return Ok(Vec::new()) };
    let Some(home) = create::namespace(state, namespace) else { return Ok(Vec::new()) };
    let policy = Policy::of(&home.value());
    if policy.is_free() {
        return Ok(Vec::new());
    }
    let broken = |at: LevelAt| Some(pod_security::violations(pod, at)).filter(|violations| !violations.is_empty());
    let refused = if is_pod { broken(policy.enforce) } else { None };
    if let Some(violations) = broken(policy.audit) {
        let (kind, name, level) = (&kind.kind, api::meta::name(new), policy.audit);
        tracing::info!(namespace, kind, name, %level, violations = violations.reasons(), "would violate pod security");
    }
    if let Some(violations) = refused {
        return Err(format!("violates PodSecurity \"{}\": {violations}", policy.enforce));
    }
    let warned = broken(policy.warn);
    Ok(warned
        .map(|violations| format!("would violate PodSecurity \"{}\": {violations}", policy.warn))
        .into_iter()
        .collect())
}

/// What to say about the pods that a namespace has already when it becomes stricter.
fn existing(state: &State, old: &Value, new: &Value) -> Vec<String> {
    let (before, after) = (Policy::of(old).enforce, Policy::of(new).enforce);
    if !after.is_stricter_than(before) {
        return Vec::new();
    }
    let name = api::meta::name(new);
    let pods = state.store.list("pods", name, None).map(|page| page.items).unwrap_or_default();
    let mut warnings = Vec::new();
    if pods.len() > LOOKED_AT {
        let all = pods.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {LOOKED_AT} of {all} existing pods"
        ));
    }
    let looked_at = pods.iter().take(LOOKED_AT);
    let unfit = looked_at.map(|pod| (&*pod.key.name, pod_security::violations(&pod.value(), after)));
    warnings.extend(pod_security::existing(name, after, unfit.filter(|(_, violations)| !violations.is_empty())));
    warnings
}
