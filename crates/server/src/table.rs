//! Tables and partial metadata: the forms of an object that are not the object.

use std::sync::Arc;

use api::{Cause, Kind, Status};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::query::Query;

/// How much of the object a row carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    pub(crate) fn parse(query: &Query) -> Result<Self, Status> {
        match query.get("includeObject") {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::Nothing),
            Some("Object") => Ok(Self::Object),
            Some(other) => {
                let cause = Cause::not_supported("includeObject", other, &["None", "Metadata", "Object"]);
                Err(Status::invalid_of("TableOptions", "meta.k8s.io", "", vec![cause]))
            }
        }
    }
}

/// A table of `objects` with its columns.
pub(crate) fn table(
    kind: &Kind,
    version: &str,
    objects: impl Iterator<Item = Arc<Value>>,
    metadata: Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = objects.map(|object| row(kind, &object, now, include)).collect();
    assemble(version, metadata, Some(api::table::columns(kind)), rows)
}

/// One watch event's table: a row, and the columns only in the first event of the stream.
pub(crate) fn event(
    kind: &Kind,
    version: &str,
    object: &Value,
    include: Include,
    first: bool,
    now: Timestamp,
) -> Value {
    let metadata = json!({ "resourceVersion": api::meta::resource_version(object) });
    let columns = first.then(|| api::table::columns(kind));
    assemble(version, metadata, columns, vec![row(kind, object, now, include)])
}

/// A bookmark's table: its row holds the bookmark, and no cells mean anything.
pub(crate) fn bookmark(version: &str, object: &Value) -> Value {
    let metadata = json!({ "resourceVersion": api::meta::resource_version(object) });
    assemble(version, metadata, None, vec![json!({ "cells": [], "object": object })])
}

/// A table of these rows.
pub(crate) fn assemble(version: &str, metadata: Value, columns: Option<Value>, rows: Vec<Value>) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        // Upstream sends null after the first event of a watch; clients then keep the columns they have.
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// One row of a table.
pub(crate) fn row(kind: &Kind, object: &Value, now: Timestamp, include: Include) -> Value {
    let mut row = json!({ "cells": api::table::cells(kind, object, now) });
    if let Some(conditions) = api::table::row_conditions(kind, object) {
        row["conditions"] = conditions;
    }
    match include {
        Include::Nothing => {}
        Include::Metadata => row["object"] = partial(object),
        Include::Object => row["object"] = whole(kind, object),
    }
    row
}

/// `PartialObjectMetadata`.
pub(crate) fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata") })
}

/// The same as JSON, appended to `out`.
pub(crate) fn write_partial(out: &mut Vec<u8>, object: &Value) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    serde_json::to_writer(&mut *out, metadata).expect("a JSON value with string keys serialises");
    out.push(b'}');
}

/// The object with its kind and apiVersion.
pub(crate) fn whole(kind: &Kind, object: &Value) -> Value {
    let mut out = json!({ "kind": kind.kind, "apiVersion": kind.api_version() });
    let shown = kind.to_shown(object);
    if let (Some(out), Some(fields)) = (out.as_object_mut(), shown.as_ref().unwrap_or(object).as_object()) {
        out.extend(fields.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    out
}
