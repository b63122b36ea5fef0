//! Definitions of custom resources: there are none, and clients that look for one are told so.
//!
//! kubectl asks for them when it meets a kind whose description has no PATCH (a list, a review), before it sends it. A
//! path that is not there would stop it.

use api::Status;
use http::{Response, StatusCode};
use serde_json::json;

use crate::body::Body;
use crate::request::{ResourceAddress, Verb};
use crate::respond;

/// The answer to a question about definitions; `None` for every other question.
pub(crate) fn answer(address: &ResourceAddress, verb: Verb) -> Option<Result<Response<Body>, Status>> {
    let asked = (address.group.as_str(), address.version.as_str(), address.resource.as_str());
    if asked != ("apiextensions.k8s.io", "v1", "customresourcedefinitions") || !address.namespace.is_empty() {
        return None;
    }
    Some(match verb {
        Verb::List => {
            let none = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList",
                "metadata": { "resourceVersion": "1" }, "items": [] });
            Ok(respond::json(StatusCode::OK, respond::to_bytes(&none)))
        }
        Verb::Get | Verb::Delete => {
            let name = &address.name;
            let message = format!("customresourcedefinitions.apiextensions.k8s.io {name:?} not found");
            Err(Status::new(404, "NotFound", message))
        }
        Verb::Watch | Verb::Create | Verb::Update | Verb::Patch | Verb::DeleteCollection => Err(Status::no_such_path()),
    })
}
