//! GET of one object.

use api::Status;
use http::{Response, StatusCode};

use crate::body::Body;
use crate::list;
use crate::request::Request;
use crate::respond::{self, Shown};
use crate::state::{State, readable};

pub(crate) fn handle(state: &State, request: &Request) -> Result<Response<Body>, Status> {
    // We always answer from the newest state, so "not older than" only fails for the future.
    if let Some(asked) = list::parse_version(&request.query)? {
        list::check_not_future(state, asked)?;
    }
    let object = state.store.get(&request.key()).ok_or_else(|| Status::not_found(&request.kind, &request.name))?;
    respond::object(request, StatusCode::OK, &Shown::Stored(readable(&request.kind, object)?))
}
