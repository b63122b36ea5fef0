//! `scale` of a workload: a small object of its own, read from and written to the workload.

use api::patch::PatchType;
use api::{FieldValidation, Status, scale};
use http::{Response, StatusCode};
use serde_json::Value;

use crate::body::Body;
use crate::change;
use crate::request::{Request, Verb};
use crate::respond::{self, Shown};
use crate::state::State;
use crate::update;

pub(crate) async fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    request.accept.for_objects()?;
    if request.verb == Verb::Get {
        let found = state.store.get(&request.key()).ok_or_else(|| Status::not_found(&request.kind, &request.name))?;
        return answer(request, &found.value());
    }
    let validation = request.field_validation()?;
    let outcome = change::modify(state, &request.kind, &request.key(), request.dry_run()?, |current| {
        let asked = asked(request, &current.value(), validation)?;
        update::check_name(&asked, &request.name)?;
        let mut new = scale::apply(&request.kind, &current.value(), &asked)?;
        api::prepare_update(&request.kind, None, &current.value(), &mut new)?;
        let (kind, manager) = (&request.kind, request.field_manager());
        api::track_update(
            kind,
            Some(&*current.value()),
            &mut new,
            manager,
            kind.api_version(),
            Some("scale"),
            request.now,
        );
        Ok(new)
    })
    .await?;
    answer(request, &outcome.shown().value())
}

/// The scale that the request wants, given the workload as it is.
fn asked(request: &Request, workload: &Value, validation: FieldValidation) -> Result<Value, Status> {
    let content_type = request.content_type.as_deref();
    if request.verb == Verb::Update {
        return Ok(api::decode_object(scale::kind(), content_type, &request.body, validation)?.value);
    }
    let patch_type = PatchType::from_content_type(content_type.unwrap_or_default());
    match patch_type.ok_or_else(Status::unsupported_patch_type)? {
        PatchType::Apply => Err(Status::unsupported_patch_type()),
        patch_type @ (PatchType::Json | PatchType::Merge | PatchType::Strategic) => {
            let make = || api::patch::patch(scale::kind(), patch_type, &scale::of(workload), &request.body);
            Ok(api::normalise_patched(scale::kind(), make, patch_type, &request.body, validation)?.value)
        }
    }
}

fn answer(request: &Request, workload: &Value) -> Result<Response<Body>, Status> {
    respond::object_of(request, scale::kind(), StatusCode::OK, &Shown::made(scale::of(workload)))
}
