//! PUT: the object as the client wants it, or only its status.

use api::Status;
use http::{Response, StatusCode};
use serde_json::Value;

use crate::admission;
use crate::authorize;
use crate::body::Body;
use crate::certificates;
use crate::change;
use crate::create::{self, Creation};
use crate::node_rules;
use crate::policies::{self, Arrival};
use crate::quotas::Reservation;
use crate::rbac;
use crate::request::Request;
use crate::respond;
use crate::state::State;
use crate::tickets::Held;

/// What is worth a word besides the answer goes to `warnings`, whether the request is refused or not.
pub(crate) async fn handle(
    state: &State,
    request: &Request,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status> {
    let kind = &request.kind;
    let dry_run = request.dry_run()?;
    request.accept.for_objects()?;
    let decoded =
        api::decode_object(kind, request.content_type.as_deref(), &request.body, request.field_validation()?)?;
    warnings.extend(decoded.warnings);
    let sent = decoded.value;
    let kind = kind.stored_kind();

    let creates = kind.create_on_update && request.subresource.is_empty();
    if creates && state.store.get(&request.key()).is_none() {
        let sent = request.kind.to_stored(sent);
        return put_creates(state, request, sent, warnings, dry_run).await;
    }
    let mut place = None;
    let mut held = Held::of(state, kind, &request.namespace, request.subresource_name(), false).await;
    let outcome = change::modify_holding(state, kind, &request.key(), dry_run, &mut held, |current| {
        let mut new = request.kind.to_successor(&current.value(), sent.clone());
        warnings.extend(successor(state, request, &current.value(), &mut new, &mut place)?);
        Ok(new)
    })
    .await?;
    respond::object(request, StatusCode::OK, &outcome.shown())
}

async fn put_creates(
    state: &State,
    request: &Request,
    mut sent: Value,
    warnings: &mut Vec<String>,
    dry_run: bool,
) -> Result<Response<Body>, Status> {
    // A version says that the client believes the object to exist.
    if !matches!(api::meta::resource_version(&sent), "" | "0") {
        return Err(Status::not_found(&request.kind, &request.name));
    }
    check_name(&sent, &request.name)?;
    api::meta::set_name(&mut sent, &request.name);
    authorize::authorize_create(state, request)?;
    rbac::check_grant(state, request, None, &sent)?;
    node_rules::check_create(state, &request.identity, &request.kind, &sent)?;
    let manager = Some(request.field_manager());
    let creation =
        Creation { kind: request.kind.stored_kind(), namespace: &request.namespace, manager, dry_run, is_own: false };
    let shown = create::create(state, &creation, sent, warnings).await?;
    respond::object(request, StatusCode::CREATED, &shown)
}

/// Makes `new` the lawful successor of `old` and records who wrote it. A write that changes nothing stays one. Its `place`
/// in the quotas is to be kept until it is stored.
pub(crate) fn successor(
    state: &State,
    request: &Request,
    old: &Value,
    new: &mut Value,
    place: &mut Option<Reservation>,
) -> Result<Vec<String>, Status> {
    let kind = request.kind.stored_kind();
    let subresource = request.subresource_name();
    let mut warnings = api::prepare_update(kind, subresource, old, new)?;
    node_rules::check_update(&request.identity, kind, old, new)?;
    rbac::check_grant(state, request, Some(old), new)?;
    certificates::admit_update(state, request, kind, old, new)?;
    admission::one_default(state, kind, new)?;
    admission::may_grow(state, kind, old, new)?;
    if subresource.is_none() {
        admission::allocate(state, kind, new, Some(old))?;
    }
    admit(state, request, old, new, place, &mut warnings)?;
    track(request, Some(old), new);
    // Not the writer's doing, so not the writer's own.
    admission::taint(state, kind, Some(old), new);
    Ok(warnings)
}

/// Records who wrote what, in the words of the writer's own version.
pub(crate) fn track(request: &Request, old: Option<&Value>, new: &mut Value) {
    let (kind, manager, now) = (&request.kind, request.field_manager(), request.now);
    let subresource = request.subresource_name();
    let Some(mut shown) = kind.to_shown(new) else {
        return api::track_update(kind, old, new, manager, kind.api_version(), subresource, now);
    };
    let old = old.and_then(|old| kind.to_shown(old));
    api::track_update(kind, old.as_ref(), &mut shown, manager, kind.api_version(), subresource, now);
    let entries = shown["metadata"].get_mut("managedFields").map(Value::take);
    let metadata = api::meta::meta_mut(new);
    match entries {
        None => drop(metadata.remove("managedFields")),
        Some(entries) => drop(metadata.insert("managedFields".to_owned(), entries)),
    }
}

/// Asks the namespace whether it takes `new` in the place of `old`.
pub(crate) fn admit(
    state: &State,
    request: &Request,
    old: &Value,
    new: &Value,
    place: &mut Option<Reservation>,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let (kind, subresource) = (request.kind.stored_kind(), request.subresource_name());
    // An earlier round's is given back before another is asked for.
    *place = None;
    let arrival = Arrival { kind, namespace: &request.namespace, subresource, old: Some(old), new, ranges: None };
    *place = policies::admit(state, &arrival, warnings)?;
    Ok(())
}

/// A name in the body may be left out, but not differ.
pub(crate) fn check_name(value: &Value, name: &str) -> Result<(), Status> {
    let own = api::meta::name(value);
    if own.is_empty() || own == name {
        return Ok(());
    }
    Err(Status::bad_request(format!("the name of the object ({own}) does not match the name on the URL ({name})")))
}
