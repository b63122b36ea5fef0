//! The Kubernetes words we speak: kinds, defaults, validation, patches, selectors, tables, errors.
//!
//! No I/O, no clock: time comes in as a value. Objects are `serde_json::Value`s; `k8s-openapi` structs are
//! views on them. A new kind is a row in [`kinds`] plus its rules.
//!
//! Start with [`kinds`] (what is served), then follow one request: [`decode`] reads the body, [`rules`] prepares
//! it, [`deletion`] decides how an object leaves, [`status`] is every answer that is not an object.

pub mod amounts;
pub mod bounds;
pub mod cron;
pub mod decode;
mod deletion;
pub mod discovery;
pub mod kinds;
pub mod limits;
mod managed_fields;
pub mod meta;
pub mod patch;
pub mod placement;
pub mod pod;
pub mod pod_security;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod rbac;
pub mod rules;
pub mod scale;
pub mod selector;
pub mod status;
pub mod table;
pub mod termination;
pub mod time;
pub mod volume;

mod schema;

pub use decode::{Decoded, FieldValidation, decode_delete_options, decode_object, normalise_patched};
pub use deletion::{DeleteDecision, DeleteOptions, Propagation, decide_delete, update_removes};
pub use kinds::{
    CustomKind, DefinitionError, Face, Kind, Names, RefusedKind, Registry, Subresource, built_in, token_request,
};
pub use managed_fields::track_update;
pub use patch::{ApplyOptions, PatchType, apply, patch};
pub use protobuf::decode_envelope;
pub use rules::{check_patched_uid, check_sent, prepare_create, prepare_update};
pub use selector::{FieldSelector, LabelSelector};
pub use status::{Cause, Details, Status};
pub use termination::TerminationRecord;

#[cfg(test)]
mod properties;
