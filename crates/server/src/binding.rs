//! POST to `pods/NAME/binding` and `pods/NAME/eviction`: how a pod gets its node, and how it is asked to leave it.

use api::{Status, rules};
use http::Response;
use jiff::Timestamp;
use serde_json::Value;

use crate::body::Body;
use crate::request::Request;
use crate::respond;
use crate::state::State;
use crate::{change, create, delete};

pub(crate) async fn bind(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let binding = read(request, "Binding")?;
    create::check_namespace_takes(state, request.kind, &request.namespace, &request.name)?;
    change::modify(state, request.kind, &request.key(), request.dry_run()?, |pod| {
        rules::bind(request.kind, &pod.value, &binding, Timestamp::now())
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
    api::decide_delete(request.kind, &pod.value, &options, Timestamp::now())?;
    change::modify(state, request.kind, &key, options.dry_run, |pod| {
        Ok(rules::mark_evicted(&pod.value, Timestamp::now()))
    })
    .await?;
    options.resource_version = None;
    delete::delete(state, request.kind, &key, &options).await?;
    Ok(created())
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
