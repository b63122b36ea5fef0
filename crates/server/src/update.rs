//! PUT: the object as the client wants it, or only its status.

use api::Status;
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::Value;

use crate::admission;
use crate::authorize;
use crate::body::Body;
use crate::change::{self, Outcome};
use crate::create::{self, Creation};
use crate::node_rules;
use crate::rbac;
use crate::request::Request;
use crate::respond;
use crate::state::State;

pub(crate) async fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let kind = request.kind;
    let dry_run = request.dry_run()?;
    request.accept.for_objects()?;
    let decoded =
        api::decode_object(kind, request.content_type.as_deref(), &request.body, request.field_validation()?)?;
    let mut warnings = decoded.warnings;
    let sent = decoded.value;
    let kind = kind.stored_kind();
    let allocating = admission::allocating(state, kind).await;

    let creates = kind.create_on_update && request.subresource.is_none();
    if creates && state.store.get(&request.key()).is_none() {
        drop(allocating);
        let sent = request.kind.to_stored(sent);
        return put_creates(state, request, sent, warnings, dry_run).await;
    }
    let outcome = change::modify(state, kind, &request.key(), dry_run, |current| {
        let mut new = request.kind.to_successor(&current.value(), sent.clone());
        warnings.extend(successor(state, request, &current.value(), &mut new)?);
        Ok(new)
    })
    .await?;
    answer(request, outcome, &mut warnings)
}

async fn put_creates(
    state: &State,
    request: &Request,
    mut sent: Value,
    mut warnings: Vec<String>,
    dry_run: bool,
) -> Result<Response<Body>, Status> {
    // A version says that the client believes the object to exist.
    if !matches!(api::meta::resource_version(&sent), "" | "0") {
        return Err(Status::not_found(request.kind, &request.name));
    }
    check_name(&sent, &request.name)?;
    api::meta::set_name(&mut sent, &request.name);
    authorize::authorize_create(state, request)?;
    rbac::check_grant(state, request, None, &sent)?;
    node_rules::check_create(&request.identity, request.kind, &sent)?;
    let manager = Some(request.field_manager());
    let creation = Creation { kind: request.kind.stored_kind(), namespace: &request.namespace, manager, dry_run };
    let (shown, further) = create::create(state, &creation, sent).await?;
    warnings.extend(further);
    let mut response = respond::object(request, StatusCode::CREATED, &shown)?;
    respond::warn(&mut response, &warnings);
    Ok(response)
}

/// Makes `new` the lawful successor of `old` and records who wrote it. A write that changes nothing stays one.
pub(crate) fn successor(state: &State, request: &Request, old: &Value, new: &mut Value) -> Result<Vec<String>, Status> {
    let kind = request.kind.stored_kind();
    let subresource = request.subresource_name();
    let warnings = api::prepare_update(kind, subresource, old, new)?;
    node_rules::check_update(&request.identity, kind, old, new)?;
    rbac::check_grant(state, request, Some(old), new)?;
    admission::one_default(state, kind, new)?;
    if subresource.is_none() {
        admission::allocate(state, kind, new, Some(old))?;
    }
    let manager = request.field_manager();
    api::track_update(kind, Some(old), new, manager, &kind.api_version(), subresource, Timestamp::now());
    // Not the writer's doing, so not the writer's own.
    admission::taint(kind, Some(old), new);
    Ok(warnings)
}

/// The answer to an update or a patch.
pub(crate) fn answer(
    request: &Request,
    outcome: Outcome,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status> {
    let mut response = respond::object(request, StatusCode::OK, &outcome.shown())?;
    // A retried change may have warned more than once.
    let mut seen = std::collections::BTreeSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    respond::warn(&mut response, warnings);
    Ok(response)
}

/// A name in the body may be left out, but not differ.
pub(crate) fn check_name(value: &Value, name: &str) -> Result<(), Status> {
    let own = api::meta::name(value);
    if own.is_empty() || own == name {
        return Ok(());
    }
    Err(Status::bad_request(format!("the name of the object ({own}) does not match the name on the URL ({name})")))
}
