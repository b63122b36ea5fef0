//! OpenAPI v3: for every kind its paths, and the schemas that `kubectl explain` reads. Each kind has a PATCH operation
//! that takes `fieldValidation`, so that clients leave validation to the server.
//!
//! No strategic-merge content type is listed: a client that sees one also wants full schemas (api-surface 6.3).

use serde_json::{Map, Value, json};

use super::schemas;

use crate::kinds::{Kind, group_version};

/// `GET /openapi/v3`: which documents there are. The hash in each address changes when its document does.
pub fn openapi_v3_index() -> Value {
    let paths: Map<String, Value> = super::group_versions()
        .into_iter()
        .filter_map(|(group, version)| {
            let path = prefix(group, version);
            let hash = fingerprint(&openapi_v3(group, version)?.to_string());
            let url = format!("/openapi/v3/{path}?hash={hash:016X}");
            Some((path, json!({ "serverRelativeURL": url })))
        })
        .collect();
    json!({ "paths": paths })
}

/// `GET /openapi/v3/api/v1`, `GET /openapi/v3/apis/{group}/{version}`.
pub fn openapi_v3(group: &str, version: &str) -> Option<Value> {
    let paths: Map<String, Value> = super::kinds_of(group, version).map(path_entry).collect();
    if paths.is_empty() {
        return None;
    }
    let mut schemas = Map::new();
    super::kinds_of(group, version).for_each(|kind| schemas::add(kind, &mut schemas));
    Some(json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": "v1.36.4" }, "paths": paths,
        "components": { "schemas": schemas },
    }))
}

fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{}", group_version(group, version)) }
}

fn path_entry(kind: &'static Kind) -> (String, Value) {
    let prefix = prefix(kind.group, kind.version);
    let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
    let path = format!("/{prefix}{scope}/{}/{{name}}", kind.plural);
    let query = |name: &str, kind: &str| json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } });
    let operation = json!({
        "operationId": format!("patch{}", kind.kind),
        "parameters": [
            query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string"),
            query("force", "boolean"),
        ],
        "responses": { "200": { "description": "OK" }, "201": { "description": "Created" } },
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": { "group": kind.group, "version": kind.version, "kind": kind.kind },
    });
    let schema = schemas::published_name(kind).map(|name| json!({ "$ref": format!("#/components/schemas/{name}") }));
    let get = json!({
        "operationId": format!("read{}", kind.kind),
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": schema } } } },
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": operation["x-kubernetes-group-version-kind"],
    });
    (path, json!({ "get": get, "patch": operation }))
}

/// FNV-1a: stable across builds, and no secret.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const TITLE: &str = "Kubernetes";
const VERSION: &str = "v1.36.4";

/// `GET /openapi/v2` as JSON: a document without definitions, which makes old clients skip their own validation.
pub fn openapi_v2_empty() -> Value {
    json!({ "swagger": "2.0", "info": { "title": TITLE, "version": VERSION }, "paths": {}, "definitions": {} })
}

/// The same as the protobuf message `openapi.v2.Document`, the only form `kubectl` before 1.27 asks for:
/// `swagger = 1`, `info = 2 { title = 1, version = 2 }`, `paths = 8`, `definitions = 9`.
pub fn openapi_v2_empty_protobuf() -> Vec<u8> {
    let info = [field(1, TITLE.as_bytes()), field(2, VERSION.as_bytes())].concat();
    [field(1, b"2.0"), field(2, &info), field(8, b""), field(9, b"")].concat()
}

/// One length-delimited field of fewer than 128 bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).ok().filter(|n| *n < 128).expect("the document is a few words long");
    let mut out = vec![number << 3 | 2, length];
    out.extend_from_slice(bytes);
    out
}
