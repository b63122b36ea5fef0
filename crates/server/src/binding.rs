//! POST to `pods/NAME/binding` and `pods/NAME/eviction`: how a pod gets its node, and how it is asked to leave it.

use std::sync::Arc;

use api::rules::{Budget, Surge};
use api::termination::Requester;
use api::{Status, rules};
use http::Response;
use jiff::Timestamp;
use serde_json::Value;
use store::{Expect, Object, Step, TransactError};

use crate::body::Body;
use crate::bootstrap::known;
use crate::delete::{Performed, Removal};
use crate::request::Request;
use crate::respond;
use crate::state::{State, readable, write_failure};
use crate::{change, create, delete, evict_surge, termination_records};

/// How often another writer of the pod or of its budget may get in between.
const TRIES: usize = 100;

pub(crate) async fn bind(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let binding = read(request, "Binding")?;
    create::check_namespace_takes(state, &request.kind, &request.namespace, &request.name)?;
    change::modify(state, &request.kind, &request.key(), request.dry_run()?, |pod| {
        rules::bind(&request.kind, &pod.value(), &binding, state.now())
    })
    .await?;
    Ok(created())
}

/// Takes the eviction from the pod's budget and marks the pod, with the reason why it goes: one transaction, so that no
/// crash and no other writer can come between what is spent and what it is spent on.
pub(crate) async fn evict(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let eviction = read(request, "Eviction")?;
    let mut options = rules::delete_options_of_eviction(&eviction, &request.name)?;
    options.dry_run |= request.dry_run()?;
    options.requester = Some(Requester { user: request.identity.user.clone(), via: "Eviction" });
    create::check_namespace_takes(state, &request.kind, &request.namespace, &request.name)?;
    let key = request.key();
    for _ in 0..TRIES {
        let now = state.now();
        let pod = state.store.get(&key).ok_or_else(|| Status::not_found(&request.kind, &request.name))?;
        let pod = readable(&request.kind, pod)?;
        let marked = rules::mark_evicted(&pod.value(), now);
        // The version that the options may name is still the pod's own here.
        let decision = api::decide_delete(&request.kind, &marked, &options, now)?;
        let mut expects = vec![(key.clone(), Expect::Revision(pod.revision))];
        let mut steps = Vec::new();
        let cost = cost(state, request, &pod.value(), now);
        if let Surge::Waits { mark } = evict_surge::decide(state, request, &pod.value(), cost.as_ref().err(), now) {
            if mark && !options.dry_run {
                evict_surge::mark(state, request, api::meta::uid(&pod.value()), now).await?;
            }
            return Err(rules::surge_in_progress(cost.err()));
        }
        if let Some((budget, next)) = cost? {
            expects.push((budget.key.clone(), Expect::Revision(budget.revision)));
            steps.push(Step::Put { key: budget.key.clone(), value: next });
        }
        if options.dry_run {
            return Ok(created());
        }
        let mark = Step::Mark { key: key.clone(), value: marked };
        let removal = match Removal::of(&key, decision) {
            // Made from what says why, so it says why as well.
            Some(removal) if matches!(removal.step, Step::Mark { .. }) => removal,
            // Watchers learn why before it is gone.
            Some(_) => Removal { step: mark, then_delete: Some(key.clone()) },
            None => Removal { step: mark, then_delete: None },
        };
        if removal.removes() {
            termination_records::record_pod_without_node(state, &pod.value(), options.requester.as_ref()).await;
        }
        match removal.perform(&state.store, expects, steps).await {
            Ok(Performed::Whole(_)) => return Ok(created()),
            // The budget is paid, and the pod is marked; what is left is to remove it.
            Ok(Performed::MarkOnly(marked)) => {
                return delete::finish(state, &request.kind, marked).await.map(|_| created());
            }
            // Another eviction, the controller, or whoever changed the pod: look again at what is there.
            Err(TransactError::Conflict { .. }) => {}
            Err(error @ (TransactError::Refused(_) | TransactError::Log(_))) => {
                return Err(write_failure(state, error.into()));
            }
        }
    }
    Err(Status::timeout("couldn't update PodDisruptionBudget due to conflicts").with_retry_after(10))
}

/// What the eviction takes: the budget as it is and as it will be, or nothing. 429 when there is nothing to take.
fn cost(state: &State, request: &Request, pod: &Value, now: Timestamp) -> Result<Option<(Arc<Object>, Value)>, Status> {
    let budgets = known("policy", "poddisruptionbudgets");
    let all = state.store.list(budgets.collection(), &request.namespace, None);
    let all = all.map(|page| page.items).unwrap_or_default();
    let values: Vec<_> = all.iter().map(|budget| budget.value()).collect();
    match rules::decide_eviction(pod, values.iter().map(|value| &**value), now)? {
        Budget::Free => Ok(None),
        Budget::Spend { name, budget: next } => {
            Ok(all.into_iter().find(|budget| *budget.key.name == *name).map(|budget| (budget, next)))
        }
    }
}

/// The body as a value, checked to be of the kind the endpoint speaks. Any version of it will do.
fn read(request: &Request, kind: &str) -> Result<Value, Status> {
    request.accept.plain()?;
    let sent = api::decode::read_body(request.content_type.as_deref(), &request.body, kind)?;
    if !sent.kind.is_empty() && sent.kind != kind {
        return Err(Status::bad_request(format!("{} cannot be handled as a {kind}", sent.kind)));
    }
    Ok(sent.value)
}

fn created() -> Response<Body> {
    respond::status(&Status::new(201, "", ""))
}
