//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use api::patch::{ApplyOptions, PatchType};
use api::{Cause, FieldValidation, Status};
use http::{Response, StatusCode};

use crate::admission;
use crate::authorize;
use crate::body::Body;
use crate::certificates;
use crate::change;
use crate::create::{self, Creation};
use crate::node_rules;
use crate::rbac;
use crate::request::Request;
use crate::respond;
use crate::state::State;
use crate::tickets::Held;
use crate::update;

/// What is worth a word besides the answer goes to `warnings`, whether the request is refused or not.
pub(crate) async fn handle(
    state: &State,
    request: &Request,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status> {
    request.accept.for_objects()?;
    let content_type = request.content_type.as_deref().unwrap_or_default();
    let patch_type = PatchType::from_content_type(content_type).ok_or_else(Status::unsupported_patch_type)?;
    let validation = request.field_validation()?;
    let dry_run = request.dry_run()?;
    match patch_type {
        PatchType::Apply => apply(state, request, validation, dry_run, warnings).await,
        PatchType::Json | PatchType::Merge | PatchType::Strategic => {
            merge(state, request, patch_type, validation, dry_run, warnings).await
        }
    }
}

async fn merge(
    state: &State,
    request: &Request,
    patch_type: PatchType,
    validation: FieldValidation,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status> {
    let kind = &request.kind;
    if request.query.get("force").is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::invalid_of("PatchOptions", "meta.k8s.io", "", vec![cause]));
    }
    let mut place = None;
    let mut held = Held::of(state, kind.stored_kind(), &request.namespace, request.subresource_name(), false).await;
    let outcome = change::modify_holding(state, kind, &request.key(), dry_run, &mut held, |current| {
        let old = current.value();
        let shown = kind.to_shown(&old);
        let make = || api::patch::patch(kind, patch_type, shown.as_ref().unwrap_or(&old), &request.body);
        let decoded = api::normalise_patched(kind, make, patch_type, &request.body, validation)?;
        warnings.extend(decoded.warnings);
        let mut new = kind.to_successor(&old, decoded.value);
        api::check_patched_uid(kind, &old, &new)?;
        warnings.extend(update::successor(state, request, &old, &mut new, &mut place)?);
        Ok(new)
    })
    .await?;
    respond::object(request, StatusCode::OK, &outcome.shown())
}

async fn apply(
    state: &State,
    request: &Request,
    validation: FieldValidation,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Result<Response<Body>, Status> {
    let kind = &request.kind;
    if kind.face.is_some() {
        // Ownership is recorded in the words of the stored kind; apply through another face would confuse the two.
        return Err(Status::unsupported_patch_type());
    }
    let Some(manager) = request.query.get("fieldManager") else {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Status::invalid_of("PatchOptions", "meta.k8s.io", "", vec![cause]));
    };
    let options = || ApplyOptions {
        manager,
        force: request.query.flag("force"),
        api_version: kind.api_version(),
        subresource: request.subresource_name(),
        now: request.now,
    };
    if state.store.get(&request.key()).is_none() {
        if !request.subresource.is_empty() {
            return Err(Status::not_found(kind, &request.name));
        }
        let make = || api::patch::apply(kind, None, &request.body, &options());
        let decoded = api::normalise_patched(kind, make, PatchType::Apply, &request.body, validation)?;
        warnings.extend(decoded.warnings);
        let mut object = decoded.value;
        // An applied document may leave its name to the path.
        update::check_name(&object, &request.name)?;
        api::meta::set_name(&mut object, &request.name);
        authorize::authorize_create(state, request)?;
        rbac::check_grant(state, request, None, &object)?;
        node_rules::check_create(state, &request.identity, kind, &object)?;
        certificates::admit_create(request, kind, &mut object)?;
        let creation = Creation { kind, namespace: &request.namespace, manager: None, dry_run, is_own: false };
        match create::create(state, &creation, object, warnings).await {
            // Somebody created it meanwhile: then this is an update.
            Err(status) if status.reason == "AlreadyExists" && !dry_run => {}
            Err(status) => return Err(status),
            Ok(shown) => return respond::object(request, StatusCode::CREATED, &shown),
        }
    }
    let mut place = None;
    let mut held = Held::of(state, kind.stored_kind(), &request.namespace, request.subresource_name(), false).await;
    let outcome = change::modify_holding(state, kind, &request.key(), dry_run, &mut held, |current| {
        let old = current.value();
        let make = || api::patch::apply(kind, Some(&old), &request.body, &options());
        let decoded = api::normalise_patched(kind, make, PatchType::Apply, &request.body, validation)?;
        warnings.extend(decoded.warnings);
        let mut new = decoded.value;
        api::check_patched_uid(kind, &old, &new)?;
        warnings.extend(api::prepare_update(kind, request.subresource_name(), &old, &mut new)?);
        admission::one_default(state, kind, &new)?;
        admission::may_grow(state, kind, &old, &new)?;
        node_rules::check_update(&request.identity, kind, &old, &new)?;
        rbac::check_grant(state, request, Some(&*old), &new)?;
        certificates::admit_update(state, request, kind, &old, &mut new)?;
        if request.subresource.is_empty() {
            admission::allocate(state, kind, &mut new, Some(&*old))?;
        }
        admission::taint(state, kind, Some(&*old), &mut new);
        update::admit(state, request, &old, &new, &mut place, warnings)?;
        // Whoever applies what is there already, defaults included, has written nothing.
        if api::patch::only_applied_again(&old, &new) {
            new = old.as_ref().clone();
        }
        Ok(new)
    })
    .await?;
    respond::object(request, StatusCode::OK, &outcome.shown())
}
