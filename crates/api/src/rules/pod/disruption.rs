//! `pods/eviction`: a delete that says why. Whether it may happen is [`super::budget`]'s.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::binding::set_condition;
use crate::deletion::DeleteOptions;
use crate::meta;
use crate::status::Status;

/// The delete that an `Eviction` body for the pod called `name` asks for.
pub fn delete_options_of_eviction(eviction: &Value, name: &str) -> Result<DeleteOptions, Status> {
    let named = meta::name(eviction);
    if named != name {
        let message = format!("name in URL does not match name in Eviction object: {name} != {named}");
        return Err(Status::bad_request(message));
    }
    crate::decode::delete_options_from(&eviction["deleteOptions"])
}

/// The pod, told that it is being evicted: the write that precedes the delete.
pub fn mark_evicted(pod: &Value, now: Timestamp) -> Value {
    let mut marked = pod.clone();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True",
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    });
    set_condition(&mut marked, condition, now);
    marked
}
