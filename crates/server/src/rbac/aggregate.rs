//! Cluster roles that gather the rules of others: what they gather is written into them, for people to read.
//!
//! Decisions do not wait for it: [`super::judge`] gathers by itself. Driven by changes of cluster roles, never by a clock.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Status;
use api::selector::object as selector;
use futures::FutureExt as _;
use serde_json::Value;
use store::Object;
use tokio_util::sync::CancellationToken;

use super::{GROUP, policy};
use crate::background::{keep_right, source};
use crate::bootstrap::known;
use crate::change;
use crate::state::State;

/// Keeps every gathering role as it should be until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let roles = source(&state.store, known(GROUP, "clusterroles").collection(), "", |_| ());
    let clock = state.clock;
    let gather = move || {
        let state = Arc::clone(&state);
        async move { gather(&state).await }.boxed()
    };
    keep_right("clusterrole-aggregation-controller", (clock, stop), vec![roles], gather).await;
}

pub(super) async fn gather(state: &State) -> Result<(), Status> {
    let kind = known(GROUP, "clusterroles");
    let all = state.store.list(kind.collection(), "", None).map(|page| page.items).unwrap_or_default();
    for role in &all {
        if !gathers(role) {
            continue;
        }
        let rules = each_once(gathered(role, &all));
        if role.value()["rules"].as_array().is_some_and(|stored| *stored == rules) {
            continue;
        }
        let written = change::modify(state, kind, &role.key, false, |current| {
            let mut new = current.to_value();
            // One that changed meanwhile is looked at again with that change.
            if current.revision == role.revision {
                new["rules"] = Value::from(rules.clone());
            }
            Ok(new)
        });
        match written.await {
            Ok(_) => {}
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(())
}

/// Whether `role` is made of what others have.
pub(super) fn gathers(role: &Object) -> bool {
    role.value()["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

/// What `role` has of `all`, and of nothing else: what was gathered before and is no longer labelled is gone. The roles of the
/// first start have their default rules besides.
pub(super) fn gathered(role: &Object, all: &[Arc<Object>]) -> Vec<Value> {
    let value = role.value();
    let is_default = api::meta::label(&value, "kubernetes.io/bootstrapping").is_some();
    let mut rules = if is_default { policy::default_rules(&role.key.name) } else { Vec::new() };
    let selectors = value["aggregationRule"]["clusterRoleSelectors"].as_array();
    let takes = |other: &Value| selectors.into_iter().flatten().any(|own| selector::selects(own, other));
    for other in all.iter().filter(|other| other.key != role.key).map(|other| other.value()) {
        if takes(&other) {
            rules.extend(other["rules"].as_array().into_iter().flatten().cloned());
        }
    }
    rules
}

/// Each rule once, in the order of their first.
fn each_once(rules: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    rules.into_iter().filter(|rule| seen.insert(rule.to_string())).collect()
}
