//! DELETE of a collection: list, then delete each by name. Not atomic, and not meant to be.

use api::termination::Requester;
use api::{DeleteOptions, Status};
use http::Response;

use crate::body::Body;
use crate::delete;
use crate::list::{self, Selection};
use crate::rbac;
use crate::request::Request;
use crate::state::State;

pub(crate) async fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    let mut options =
        api::decode_delete_options(request.content_type.as_deref(), &request.body, request.query.pairs())?;
    options.requester = Some(Requester { user: request.identity.user.clone(), via: "Delete" });
    let form = request.accept.for_objects()?;
    let selection = Selection::parse(&request.kind, &request.query)?;
    let listed = list::page(state, request, &selection)?;
    // What cannot be read is chosen by nobody, unless everything is meant.
    let unreadable = match selection.takes_all() && request.query.get("continue").is_none() {
        true => state.store.unreadable(request.kind.collection(), &request.namespace),
        false => Vec::new(),
    };
    for object in listed.items.iter().chain(&unreadable) {
        let each = DeleteOptions { dry_run: options.dry_run, ..options.clone() };
        let deleted = match rbac::check_delete(state, request, &object.key.name) {
            Ok(()) => delete::delete(state, &request.kind, &object.key, &each).await.map(drop),
            Err(refused) => Err(refused),
        };
        match deleted {
            Ok(()) => {}
            // Gone meanwhile: that is what was asked for.
            Err(status) if status.code == 404 => {}
            // What no cluster can do without stays; the rest was asked for all the same.
            Err(status) if status.code == 403 => {}
            Err(status) => return Err(status),
        }
    }
    // The answer is the list as it was read, before any of it was marked.
    list::answer(request, form, listed)
}
