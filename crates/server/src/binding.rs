//! POST to `pods/NAME/binding` and `pods/NAME/eviction`: how a pod gets its node, and how it is asked to leave it.

use api::rules::Budget;
use api::{Status, rules};
use http::Response;
use jiff::Timestamp;
use serde_json::Value;
use store::{Expect, Step, WriteError};

use crate::body::Body;
use crate::bootstrap::known;
use crate::request::Request;
use crate::respond;
use crate::state::{State, log_failure};
use crate::{change, create, delete};

/// How often another writer of a budget may get in between.
const BUDGET_TRIES: usize = 100;

pub(crate) async fn bind(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let binding = read(request, "Binding")?;
    create::check_namespace_takes(state, request.kind, &request.namespace, &request.name)?;
    change::modify(state, request.kind, &request.key(), request.dry_run()?, |pod| {
        rules::bind(request.kind, &pod.value(), &binding, Timestamp::now())
    })
    .await?;
    Ok(created())
}

pub(crate) async fn evict(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let eviction = read(request, "Eviction")?;
    let mut options = rules::delete_options_of_eviction(&eviction, &request.name)?;
    options.dry_run |= request.dry_run()?;
    create::check_namespace_takes(state, request.kind, &request.namespace, &request.name)?;
    let key = request.key();
    // The preconditions are judged before the condition is written, which changes the version they may name.
    let pod = state.store.get(&key).ok_or_else(|| Status::not_found(request.kind, &request.name))?;
    api::decide_delete(request.kind, &pod.value(), &options, Timestamp::now())?;
    let unchanged = spend(state, request, &pod, options.dry_run).await?;
    change::modify(state, request.kind, &key, options.dry_run, |found| {
        if unchanged && found.revision != pod.revision {
            return Err(rules::still_processed(&request.name));
        }
        Ok(rules::mark_evicted(&found.value(), Timestamp::now()))
    })
    .await?;
    options.resource_version = None;
    delete::delete(state, request.kind, &key, &options).await?;
    Ok(created())
}

/// Takes the eviction from the pod's budget. Answers whether it is only allowed while the pod stays as it was seen.
async fn spend(state: &State, request: &Request, pod: &store::Object, dry_run: bool) -> Result<bool, Status> {
    let budgets = known("policy", "poddisruptionbudgets");
    for _ in 0..BUDGET_TRIES {
        let all = state.store.list(budgets.collection(), &request.namespace, None);
        let all = all.map(|page| page.items).unwrap_or_default();
        let values: Vec<_> = all.iter().map(|budget| budget.value()).collect();
        let values = values.iter().map(|value| &**value);
        let (name, next) = match rules::decide_eviction(&pod.value(), values, Timestamp::now())? {
            Budget::Free => return Ok(false),
            Budget::FreeIfUnchanged => return Ok(true),
            Budget::Spend { .. } if dry_run => return Ok(false),
            Budget::Spend { name, budget } => (name, budget),
        };
        let Some(seen) = all.iter().find(|budget| *budget.key.name == *name) else { continue };
        let step = Step::Put { key: seen.key.clone(), value: next };
        match state.store.write(&seen.key, Expect::Revision(seen.revision), vec![step]).await {
            Ok(_) => return Ok(false),
            // Another eviction, or the controller: look again at what is left.
            Err(WriteError::Conflict(_)) => {}
            Err(error @ WriteError::Log(_)) => return Err(log_failure(error)),
        }
    }
    Err(Status::timeout("couldn't update PodDisruptionBudget due to conflicts").with_retry_after(10))
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
