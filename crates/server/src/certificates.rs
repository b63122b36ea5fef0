//! Requests for certificates (`certificates.k8s.io`): who may ask, approve and sign, and the part that does so by itself.
//!
//! ```text
//!  create ─▶ [admit_create] who asks is written in ─▶ approve: a person, or [controller] for nodes ─▶ sign: [controller] ─▶ removed
//! ```
//!
//! Whoever may approve for a signer can become anybody that the signer vouches for. So approving and signing need the verbs `approve`
//! and `sign` on the signer besides the right to write the object.

mod approval;
mod controller;
mod signing_request;

use std::net::IpAddr;

use api::{Cause, Kind, Status};
use serde_json::{Value, json};

use crate::authorize::{Attributes, Target, decide};
use crate::identity::Identity;
use crate::request::Request;
use crate::state::State;

pub(crate) use controller::keep;
pub(crate) use signing_request::SigningRequest;
#[cfg(test)]
pub(crate) use signing_request::tests;

const GROUP: &str = "certificates.k8s.io";
const COLLECTION: &str = "certificatesigningrequests.certificates.k8s.io";
/// The address from which a request came; nobody but the server writes it.
const REQUESTED_FROM: &str = "adieu.dev/requested-from";
/// No certificate of a client says that it may do everything.
const MASTERS: &str = "system:masters";

/// Writes into a new request who asks for it, and refuses one that cannot be read or asks for too much.
pub(crate) fn admit_create(request: &Request, kind: &Kind, object: &mut Value) -> Result<(), Status> {
    if kind.collection() != COLLECTION {
        return Ok(());
    }
    let name = api::meta::name(object).to_owned();
    let Identity { user, groups, uid, extra } = &request.identity;
    let Some(spec) = object["spec"].as_object_mut() else { return Ok(()) };
    for (key, value, is_there) in [
        ("username", json!(user), true),
        ("groups", json!(groups), !groups.is_empty()),
        ("uid", json!(uid), !uid.is_empty()),
        ("extra", json!(extra), !extra.is_empty()),
    ] {
        match is_there {
            true => spec.insert(key.to_owned(), value),
            false => spec.remove(key),
        };
    }
    let encoded = spec.get("request").and_then(Value::as_str).unwrap_or_default().to_owned();
    let signer = spec.get("signerName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let asked = SigningRequest::parse(&encoded).map_err(|complaint| {
        Status::invalid(kind, &name, vec![Cause::invalid("spec.request", encoded.as_str(), &complaint)])
    })?;
    if signer == signing_request::CLIENT && asked.organizations.iter().any(|group| group == MASTERS) {
        let text = format!("use of {signer} signer with {MASTERS} group is not allowed");
        return Err(Status::forbidden(kind, &name, &text));
    }
    set_origin(object, request.peer.map(|peer: IpAddr| json!(peer.to_string())));
    Ok(())
}

/// Lets those approve and sign who may do that for the signer, keeps the origin, and dates what was decided.
pub(crate) fn admit_update(
    state: &State,
    request: &Request,
    kind: &Kind,
    old: &Value,
    new: &mut Value,
) -> Result<(), Status> {
    if kind.collection() != COLLECTION {
        return Ok(());
    }
    set_origin(new, old["metadata"]["annotations"].get(REQUESTED_FROM).cloned());
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let verb = match request.subresource_name() {
        Some("approval") => Some(("approve", "approve")),
        Some("status") if old["status"] != new["status"] => Some(("sign", "sign")),
        _ => None,
    };
    if let Some((verb, word)) = verb
        && !may(state, &request.identity, verb, signer)
    {
        let text = format!("user not permitted to {word} requests with signerName {signer:?}");
        return Err(Status::forbidden(kind, api::meta::name(old), &text));
    }
    date_conditions(old, new, &api::time::seconds(request.now));
    Ok(())
}

/// Whether `identity` has the verb on the signer, or on all of its domain.
fn may(state: &State, identity: &Identity, verb: &str, signer: &str) -> bool {
    let all = format!("{}/*", signer.split('/').next().unwrap_or_default());
    [signer, &all].into_iter().any(|name| {
        let target = Target::Resource { group: GROUP, resource: "signers", subresource: "", namespace: "", name };
        decide(state, identity, &Attributes { verb, target }).allowed
    })
}

fn set_origin(object: &mut Value, origin: Option<Value>) {
    let metadata = api::meta::meta_mut(object);
    match origin {
        Some(origin) => {
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(REQUESTED_FROM.to_owned(), origin);
            }
        }
        None => {
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(REQUESTED_FROM);
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
    }
}

/// Conditions without a time happened now.
fn date_conditions(old: &Value, new: &mut Value, now: &str) {
    let before = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in new["status"]["conditions"].as_array_mut().into_iter().flatten() {
        let same = before.iter().find(|own| own["type"] == condition["type"] && own["status"] == condition["status"]);
        let since = same.map_or(json!(now), |own| own["lastTransitionTime"].clone());
        for (key, time) in [("lastUpdateTime", json!(now)), ("lastTransitionTime", since)] {
            if condition[key].is_null() && condition.is_object() && !time.is_null() {
                condition[key] = time;
            }
        }
    }
}
